"""What every explorer promises, whatever its rule."""

import numpy as np
import pytest

from shoal.core.evolution import Range
from shoal.core.keys import draws
from shoal.methods.explore import EXPLORERS, Gaussian, KeepValues, Mutate, Perturb
from shoal.methods.ranges import sample

VARIANTS = {
    **{name: explorer() for name, explorer in EXPLORERS.items()},
    "perturb_always": Perturb(resample_probability=0.0),
    "perturb_wildly": Perturb((3e-30, 7e29), 0.1),
    "mutate_always": Mutate(1.0),
    "gaussian_wide": Gaussian(3.0),
}
ALWAYS = ("perturb_always", "mutate_always", "gaussian", "gaussian_wide")  # nothing stays as it was
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


@pytest.fixture(params=VARIANTS.items(), ids=VARIANTS.keys())
def named(request):
    return request.param


@pytest.fixture
def explorer(named):
    return named[1]


def inherited(uid=UID) -> dict[str, np.ndarray]:
    return {name: sample(r, draws((9, i), uid, 1)[:, 0]) for i, (name, r) in enumerate(SPACE.items())}


def at_the(end: int) -> dict[str, np.ndarray]:
    """Everybody at the lower (0) or the upper (-1) bound."""
    ends = {name: r.choices[end] if r.choices else (r.low, r.high)[end] for name, r in SPACE.items()}
    return {name: np.full(len(UID), x, np.float32) for name, x in ends.items()}


def assert_valid(hyper: dict[str, np.ndarray]) -> None:
    for name, r in SPACE.items():
        x = hyper[name]
        assert x.dtype == np.float32
        if r.choices:
            assert np.isin(x, np.float32(r.choices)).all()
        else:
            assert np.all((x.astype(np.float64) >= r.low) & (x.astype(np.float64) <= r.high)), name
        if r.integer:
            assert np.all(x == np.rint(x))


def test_values_stay_in_their_range_over_many_generations(explorer):
    hyper = inherited()
    for generation in range(60):
        hyper = explorer((4, generation), hyper, SPACE, UID)
        assert list(hyper) == list(SPACE)
        assert_valid(hyper)


@pytest.mark.parametrize("end", [0, -1])
def test_nothing_sticks_to_a_bound(explorer, end):
    hyper = start = at_the(end)
    freed = {name: np.zeros(len(UID), bool) for name in SPACE}
    for generation in range(60):
        hyper = explorer((4, generation), hyper, SPACE, UID)
        for name in SPACE:
            freed[name] |= hyper[name] != start[name]
    expected = not isinstance(explorer, KeepValues)
    assert {name: bool(moved.all()) for name, moved in freed.items()} == dict.fromkeys(SPACE, expected)


def test_whole_numbers_and_choices_move_every_time(named):
    name, explorer = named
    if name in ALWAYS:
        hyper = inherited()
        for generation in range(30):
            new = explorer((4, generation), hyper, SPACE, UID)
            for which in DISCRETE:
                assert np.all(new[which] != hyper[which]), which
            hyper = new


def test_whole_numbers_visit_all_their_values(explorer):
    if not isinstance(explorer, KeepValues):
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


def test_what_was_inherited_is_left_as_it_was(explorer):
    hyper, space = inherited(), dict(SPACE)
    explorer((4, 0), hyper, space, UID)
    assert all(hyper[name].tobytes() == x.tobytes() for name, x in inherited().items())
    assert space == SPACE


def test_draws_depend_on_key_name_and_uid_alone(explorer):
    hyper = inherited()
    everybody = explorer((4, 0), hyper, SPACE, UID)
    rows = np.array([7, 2, 11])
    some = explorer((4, 0), {n: hyper[n][rows] for n in reversed(SPACE)}, SPACE, UID[rows])
    alone = explorer((4, 0), {"log": hyper["log"]}, {"log": SPACE["log"]}, UID)
    assert all(some[name].tolist() == everybody[name][rows].tolist() for name in SPACE)
    assert alone["log"].tolist() == everybody["log"].tolist()


def test_children_of_one_parent_part(explorer):
    """Between them, the children of one parent differ, and so do two hyperparameters of equal range and value."""
    space = {"a": Range(0.1, 10.0, "log"), "b": Range(0.1, 10.0, "log")}
    hyper, uid = {name: np.ones(60, np.float32) for name in space}, np.arange(60)
    new = explorer((4, 0), hyper, space, uid)
    later = explorer((4, 1), hyper, space, uid)
    same = isinstance(explorer, KeepValues)
    assert (len(set(new["a"].tolist())) == 1) == same
    assert (new["a"].tolist() == new["b"].tolist()) == same
    assert (new["a"].tolist() == later["a"].tolist()) == same


def test_nobody_to_explore(explorer):
    new = explorer((4, 0), inherited(UID[:0]), SPACE, UID[:0])
    assert all(x.shape == (0,) and x.dtype == np.float32 for x in new.values())
