"""What every explorer promises, whatever its rule. Hypothesis makes each space once, for all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import CHOICES, INTEGERS, RANGES, SEEDS

from shoal.core.keys import draws
from shoal.core.space import Range
from shoal.methods.explore import EXPLORERS, Gaussian, Mutate, NoExploration, Perturb
from shoal.methods.ranges import sample

VARIANTS = {
    **{name: explorer() for name, explorer in EXPLORERS.items()},
    "perturb_always": Perturb(resample_probability=0.0),
    "perturb_wildly": Perturb((3e-30, 7e29), 0.1),
    "mutate_always": Mutate(1.0),
    "gaussian_wide": Gaussian(3.0),
}
ALWAYS = ("perturb_always", "mutate_always", "gaussian", "gaussian_wide")  # nothing stays as it was
SPACES = st.dictionaries(st.sampled_from("abcdef"), RANGES, min_size=1)
SPACE = {
    "linear": Range(0.0, 1.0),
    "signed": Range(-3.0, 2.0),
    "log": Range(3e-5, 3e-3, "log"),
    "discount": Range(0.9, 0.9999, "one_minus_log"),
    "trace": Range(0.0, 0.99, "one_minus_log"),
    "whole": Range(1, 5, integer=True),
    "switch": Range(0, 1, integer=True),
    "whole_log": Range(1, 4096, "log", integer=True),
    "ordered": Range(choices=(32, 64, 128, 256), ordered=True),
    "unordered": Range(choices=(0.1, -0.5, 0.7)),
    "pair": Range(choices=(0.1, 0.2), ordered=True),
}
DISCRETE = [name for name, r in SPACE.items() if r.integer or r.choices]
UID = np.arange(50, 62)


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def explorer(request):
    return request.param


def inherited(uid=UID, space=SPACE) -> dict[str, np.ndarray]:
    return {name: sample(r, draws((9, i), uid, 1)[:, 0]) for i, (name, r) in enumerate(space.items())}


def at_the(end: int) -> dict[str, np.ndarray]:
    """Everybody at the lower (0) or the upper (-1) bound."""
    ends = {name: r.choices[end] if r.choices else (r.low, r.high)[end] for name, r in SPACE.items()}
    return {name: np.full(len(UID), x, np.float32) for name, x in ends.items()}


def assert_valid(hyper: dict[str, np.ndarray], space: dict[str, Range]) -> None:
    for name, r in space.items():
        x = hyper[name]
        assert x.dtype == np.float32
        if r.choices:
            assert np.isin(x, np.float32(r.choices)).all()
        else:
            assert np.all((x.astype(np.float64) >= r.low) & (x.astype(np.float64) <= r.high)), name
        if r.integer:
            assert np.all(x == np.rint(x))


@given(SPACES, SEEDS)
def test_values_stay_in_their_range(space, seed):
    """From one generation to the next, and those of the parent are left as they were."""
    for which, explorer in VARIANTS.items():
        hyper = inherited(space=space)
        for generation in range(3):
            before = {name: x.tobytes() for name, x in hyper.items()}
            new = explorer((seed, generation), hyper, space, UID)
            assert list(new) == list(space), which
            assert_valid(new, space)
            assert before == {name: x.tobytes() for name, x in hyper.items()}, which
            hyper = new


@pytest.mark.parametrize("end", [0, -1])
def test_nothing_sticks_to_a_bound(explorer, end):
    hyper = start = at_the(end)
    freed = {name: np.zeros(len(UID), bool) for name in SPACE}
    for generation in range(60):
        hyper = explorer((4, generation), hyper, SPACE, UID)
        for name in SPACE:
            freed[name] |= hyper[name] != start[name]
        if all(moved.all() for moved in freed.values()):
            break
    expected = not isinstance(explorer, NoExploration)
    assert {name: bool(moved.all()) for name, moved in freed.items()} == dict.fromkeys(SPACE, expected)


@given(st.dictionaries(st.sampled_from("abcdef"), INTEGERS | CHOICES, min_size=1), SEEDS)
def test_whole_numbers_and_choices_move_every_time(space, seed):
    hyper = inherited(space=space)
    for which in ALWAYS:
        new = VARIANTS[which]((seed, 0), hyper, space, UID)
        for name, r in space.items():
            assert np.all(new[name] != hyper[name]), (which, r)


def test_whole_numbers_visit_all_their_values(explorer):
    if not isinstance(explorer, NoExploration):
        hyper, seen = at_the(0), {name: set() for name in DISCRETE}
        for generation in range(80):
            hyper = explorer((4, generation), hyper, SPACE, UID)
            for name in DISCRETE:
                seen[name] |= set(hyper[name].tolist())
        assert seen["whole"] == {1, 2, 3, 4, 5} and seen["switch"] == {0, 1}
        assert seen["ordered"] == {32, 64, 128, 256}
        assert len(seen["unordered"]) == 3 and len(seen["pair"]) == 2 and len(seen["whole_log"]) > 5


def test_only_the_space_is_explored(explorer):
    hyper = {**inherited(), "fixed": np.full(len(UID), 0.3, np.float32)}
    new = explorer((4, 0), hyper, {"log": SPACE["log"]}, UID)
    assert new.keys() == hyper.keys()
    for name in hyper.keys() - {"log"}:
        assert new[name].tobytes() == hyper[name].tobytes()


@given(SPACES, st.lists(st.integers(0, len(UID) - 1), min_size=1, unique=True), SEEDS)
def test_draws_depend_on_key_name_and_uid_alone(space, rows, seed):
    hyper, name = inherited(space=space), min(space)
    for which, explorer in VARIANTS.items():
        everybody = explorer((seed, 0), hyper, space, UID)
        some = explorer((seed, 0), {n: hyper[n][rows] for n in reversed(space)}, space, UID[rows])
        alone = explorer((seed, 0), {name: hyper[name]}, {name: space[name]}, UID)
        assert all(some[name].tolist() == everybody[name][rows].tolist() for name in space), which
        assert alone[name].tolist() == everybody[name].tolist(), which


def test_children_of_one_parent_part(explorer):
    """Between them, the children of one parent differ, and so do two hyperparameters of equal range and value."""
    space = {"a": Range(0.1, 10.0, "log"), "b": Range(0.1, 10.0, "log")}
    hyper, uid = {name: np.ones(60, np.float32) for name in space}, np.arange(60)
    new = explorer((4, 0), hyper, space, uid)
    later = explorer((4, 1), hyper, space, uid)
    same = isinstance(explorer, NoExploration)
    assert (len(set(new["a"].tolist())) == 1) == same
    assert (new["a"].tolist() == new["b"].tolist()) == same
    assert (new["a"].tolist() == later["a"].tolist()) == same


def test_nobody_to_explore(explorer):
    new = explorer((4, 0), inherited(UID[:0]), SPACE, UID[:0])
    assert all(x.shape == (0,) and x.dtype == np.float32 for x in new.values())
