"""The evolver: first hyperparameters, inheritance, and who explores."""

import numpy as np
import pytest
from support.messages import shown

from shoal.core.errors import BadInput
from shoal.core.population import Explore, PopulationStats, PureEvolver, Select, Selection
from shoal.core.space import Range, SearchSpace
from shoal.methods import explore, select
from shoal.methods.independent import Independent
from shoal.methods.pbt import Pbt

SPACE = {
    "learning_rate": Range(1e-5, 1e-2, "log"),
    "discount": Range(0.9, 0.999, "one_minus_log"),
    "epochs": Range(1, 10, integer=True, initial=4),
}
START = {"learning_rate": 3e-4, "clip": 0.2, "discount": 0.99, "epochs": 2.0}


def keep(space: dict[str, Range], start: dict[str, float]) -> PureEvolver:
    return Independent().evolver(SearchSpace(space, {}, start), 8)


def pbt(
    select: Select, explore: Explore, space: dict[str, Range], start: dict[str, float], burn_in: int = 0
) -> PureEvolver:
    return Pbt(select=select, explore=explore, burn_in=burn_in).evolver(SearchSpace(space, {}, start), 8)


def population(fitness=range(8), steps=1000) -> PopulationStats:
    fitness = np.array(fitness, np.float64)
    n = len(fitness)
    uid = np.arange(n) + 20
    hyper = keep(SPACE, START).init((0, 0), uid)[1]
    steps = np.broadcast_to(steps, n).astype(np.int64)
    std, episodes = np.full(n, 0.1), np.full(n, 5)
    return PopulationStats(uid, steps // 1000, steps, fitness, std, episodes, hyper)


def decide(evolver, stats, generation=1, rows=None):
    rows = np.arange(len(stats.uid)) if rows is None else rows
    return evolver.decide((0, generation), (), stats, rows)[1]


def test_first_hyperparameters():
    uid = np.arange(400)
    state, hyper = keep(SPACE, START).init((0, 0), uid)
    assert (
        state == ()
        and set(hyper) == set(START)
        and all(x.dtype == np.float32 and x.shape == (400,) for x in hyper.values())
    )
    assert set(hyper["clip"].tolist()) == {np.float32(0.2)}  # not tuned: the agent's own value
    assert set(hyper["epochs"].tolist()) == {4}  # tuned, with a start
    decades = np.histogram(np.log10(hyper["learning_rate"]), [-5, -4, -3, -2])[0]
    assert decades.sum() == 400 and decades.min() > 90  # tuned: from the prior
    unit = [(np.log10(hyper["learning_rate"]) + 5) / 3, (np.log10(1 - hyper["discount"]) + 1) / -2]
    assert abs(np.corrcoef(unit)[0, 1]) < 0.25  # each has draws of its own


def test_first_hyperparameters_depend_on_the_uid_alone():
    evolver = keep(SPACE, START)
    everybody = evolver.init((0, 0), np.arange(10))[1]
    some = evolver.init((0, 0), np.array([7, 3]))[1]
    other_seed = evolver.init((1, 0), np.arange(10))[1]
    assert all(some[name].tolist() == x[[7, 3]].tolist() for name, x in everybody.items())
    assert other_seed["discount"].tolist() != everybody["discount"].tolist()


def test_children_explore_what_their_parents_have():
    stats = population()
    stats.hyper["learning_rate"].clip(2e-5, 5e-3, out=stats.hyper["learning_rate"])  # away from the reflecting bounds
    decision = decide(pbt(select.Truncation(), explore.Perturb(resample_probability=0.0), SPACE, START), stats)
    assert decision.parents[2:].tolist() == [2, 3, 4, 5, 6, 7] and set(decision.parents[:2]) <= {6, 7}
    rate, parent = decision.hyper["learning_rate"], stats.hyper["learning_rate"][decision.parents]
    assert np.all(np.isclose(rate[:2] / parent[:2], 0.8) | np.isclose(rate[:2] / parent[:2], 1.2))
    assert rate[2:].tobytes() == stats.hyper["learning_rate"][2:].tobytes()
    assert decision.hyper["clip"].tolist() == stats.hyper["clip"].tolist()
    assert all(x.dtype == np.float32 for x in decision.hyper.values())


def test_without_exploration_children_have_exactly_the_parents_values():
    stats = population()
    decision = decide(pbt(select.WinnerTakesAll(), explore.NoExploration(), SPACE, START), stats)
    for name, x in decision.hyper.items():
        assert x.tobytes() == np.full(8, stats.hyper[name][7]).tobytes()


def test_copies_are_of_what_the_cards_show():
    """A -> B -> C in one generation: C inherits B's old values, not A's."""

    def chain(key, stats, rows):
        return Selection(np.array([0, 0, 1])[rows], np.array([False, True, True])[rows])

    stats = population(range(3))
    decision = decide(pbt(chain, explore.NoExploration(), SPACE, START), stats)
    assert decision.hyper["discount"].tolist() == stats.hyper["discount"][[0, 0, 1]].tolist()


@pytest.mark.parametrize("explorer", [explore.Perturb(), explore.Resample(), explore.Gaussian(), explore.Mutate(1.0)])
def test_where_nobody_copies_nothing_changes_by_a_bit(explorer):
    stats = population(fitness=[np.nan] * 8)
    stats.hyper["discount"][:2] = np.nan, 0.5  # not even what lies outside the range
    decision = decide(pbt(select.Truncation(), explorer, SPACE, START), stats)
    assert decision.parents.tolist() == list(range(8))
    assert all(x.tobytes() == stats.hyper[name].tobytes() for name, x in decision.hyper.items())


def test_twins_part():
    stats = population(fitness=[1, 1, 9, 1])
    decision = decide(pbt(select.WinnerTakesAll(), explore.Gaussian(), SPACE, START), stats)
    assert decision.parents.tolist() == [2, 2, 2, 2]
    children = {tuple(decision.hyper[name][i] for name in SPACE) for i in (0, 1, 3)}
    assert len(children) == 3


def test_every_process_decides_the_same():
    stats, evolver = population(), pbt(select.Tournament(), explore.Perturb(), SPACE, START)
    everybody = decide(evolver, stats)
    for rows in (np.array([0, 1, 2]), np.array([7, 4]), np.array([3])):
        some = decide(evolver, stats, rows=rows)
        assert some.parents.tolist() == everybody.parents[rows].tolist()
        assert all(x.tolist() == everybody.hyper[name][rows].tolist() for name, x in some.hyper.items())


def test_generations_differ_and_repeat():
    stats, evolver = population(), pbt(select.Tournament(), explore.Perturb(), SPACE, START)
    runs = [[decide(evolver, stats, generation).parents.tolist() for generation in range(6)] for _ in range(2)]
    assert runs[0] == runs[1] and len({tuple(parents) for parents in runs[0]}) > 1


def test_burn_in_counts_the_steps_of_each_member():
    stats = population(fitness=[0, 1, 2, 9], steps=[4999, 5000, 6000, 0])
    decision = decide(pbt(select.WinnerTakesAll(), explore.Perturb(), SPACE, START, burn_in=5000), stats)
    assert decision.parents.tolist() == [0, 3, 3, 3]
    assert decision.hyper["discount"][0] == stats.hyper["discount"][0]
    everybody = pbt(select.NoSelection(explore=True), explore.Resample(), SPACE, START, burn_in=5000)
    changed = decide(everybody, stats).hyper["discount"] != stats.hyper["discount"]
    assert changed.tolist() == [False, True, True, False]


def test_who_diverges_copies_before_it_may_otherwise():
    stats = population(fitness=[np.nan, 1, 2, 9], steps=[400, 400, 400, 400])
    decision = decide(pbt(select.WinnerTakesAll(), explore.Perturb(), SPACE, START, burn_in=5000), stats)
    assert decision.parents.tolist() == [3, 1, 2, 3]
    assert decision.hyper["discount"][0] != stats.hyper["discount"][3]


def test_every_worker_has_members_with_the_defaults():
    """The first of its population, whose uids go on where those of another worker end."""
    method = Pbt(select=select.Truncation(), explore=explore.Perturb(), default_members=0.25)
    assert np.flatnonzero(method.holds_defaults(np.arange(24), 8)).tolist() == [0, 1, 8, 9, 16, 17]
    search = SearchSpace({"learning_rate": SPACE["learning_rate"]}, {"learning_rate": 3e-4}, {})
    rates = method.evolver(search, 8).init((0, 0), np.arange(8, 16))[1]["learning_rate"]
    assert (rates == np.float32(3e-4)).tolist() == [True, True] + [False] * 6


def test_keep_is_the_control():
    stats = population(fitness=[np.nan, 1, 2, 3])
    decision = decide(keep(SPACE, START), stats)
    assert decision.parents.tolist() == [0, 1, 2, 3]
    assert all(x.tobytes() == stats.hyper[name].tobytes() for name, x in decision.hyper.items())


def test_errors_come_at_construction(said):
    with pytest.raises(BadInput) as error:
        pbt(select.Tournament(), explore.Perturb(), {"discount": Range(0.9, 1.0, "one_minus_log")}, {})
    said(error.value)


@pytest.mark.parametrize(
    "chosen",
    [
        None,
        "ab",
        (np.arange(4),),
        (np.arange(3), np.zeros(3, bool)),
        (np.arange(4) + 1, np.zeros(4, bool)),
        (np.arange(4) - 1, np.zeros(4, bool)),
        (np.arange(4.0), np.zeros(4, bool)),
        (np.arange(4), np.zeros(4)),
    ],
    ids=shown,
)
def test_a_selector_that_gives_no_choice(chosen, said):
    evolver = pbt(lambda key, stats, rows: chosen, explore.NoExploration(), SPACE, START)
    with pytest.raises(BadInput) as error:
        decide(evolver, population(range(4)))
    said(error.value)


@pytest.mark.parametrize(("factor", "epochs", "fixed"), [(2, 8, 6), (0.3, 2, 1)])  # 2.4 is no integer
def test_values_of_an_explorer_are_moved_into_their_ranges(factor, epochs, fixed):
    start = {"discount": 0.99, "epochs": 8.0, "fixed": 3.0}
    space = {"discount": Range(0.9, 0.999, "one_minus_log"), "epochs": Range(1, 8, integer=True)}
    stats = population(range(4))._replace(hyper={name: np.full(4, x, np.float32) for name, x in start.items()})

    def scaled(key, hyper, space, uid):
        return {name: factor * x for name, x in hyper.items()}

    hyper = decide(pbt(select.WinnerTakesAll(), scaled, space, {"fixed": 3.0}), stats).hyper
    assert hyper["discount"].min() >= 0.9 and hyper["discount"].max() <= 0.999
    assert (hyper["epochs"][0], round(hyper["fixed"][0])) == (epochs, fixed)


@pytest.mark.parametrize(
    "changed", [None, {}, {"x": np.ones(1), "y": np.ones(1)}, {"x": np.full(1, np.nan)}], ids=shown
)
def test_an_explorer_that_gives_no_hyperparameters(changed, said):
    with pytest.raises(BadInput) as error:
        pbt(select.NoSelection(), lambda key, hyper, space, uid: changed, {}, {"x": 1.0})
    said(error.value)
