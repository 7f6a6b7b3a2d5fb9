"""What every selector promises, whatever its rule. Hypothesis makes each population once, for all of them."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.strategies import INF, NAN, SEEDS, populations

from shoal.core.population import PopulationStats, Selection
from shoal.methods.select import SELECTORS, NoSelection, Threshold, Truncation

VARIANTS = {
    **{name: selector() for name, selector in SELECTORS.items()},
    "truncation_half": Truncation(0.5, 0.5),
    "truncation_above": Truncation(0.4, parents="above"),
    "threshold_zero": Threshold(0.0, 0.0),
    "none_explore": NoSelection(explore=True),
}
MIXED = [3.0, NAN, -2.0, INF, 3.0, 7.5, -INF, 0.0, 7.5, -40.0, 1.0]


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def selector(request):
    return request.param


def make(fitness, uid=None, spread=0.1) -> PopulationStats:
    """PopulationStats whose episodes scatter a little around the fitness; whoever diverged has none."""
    fitness = np.array(fitness, np.float64)
    n = len(fitness)
    uid = np.arange(10, 10 + n) if uid is None else np.array(uid)
    finite = np.isfinite(fitness)
    std, episodes = np.where(finite, spread * (1 + uid % 3), NAN), np.where(finite, 3 + uid % 5, 0)
    steps = np.full(n, 1000)
    hyper = {"x": np.arange(n, dtype=np.float32)}
    return PopulationStats(uid, steps // 1000, steps, fitness, std, episodes, hyper)


def everyone(selector, stats: PopulationStats, generation: int = 0) -> Selection:
    return selector((3, generation), stats, np.arange(len(stats.uid)))


def by_uid(selection: Selection, stats: PopulationStats) -> dict[int, tuple[int, bool]]:
    parents = stats.uid[selection.parents].tolist()
    return dict(zip(stats.uid.tolist(), zip(parents, selection.explore.tolist(), strict=True), strict=True))


def rows_of(stats: PopulationStats) -> st.SearchStrategy:
    """Some of the members, in any order."""
    rows = st.lists(st.integers(0, len(stats.uid) - 1), unique=True)
    return rows.map(lambda chosen: np.array(chosen, np.int64))


@given(populations(), SEEDS)
def test_the_order_of_the_cards_does_not_matter(stats, generation):
    order = np.argsort(stats.fitness)
    shuffled = stats.take(order)
    for name, selector in VARIANTS.items():
        expected = by_uid(everyone(selector, stats, generation), stats)
        assert by_uid(everyone(selector, shuffled, generation), shuffled) == expected, name


@given(st.data(), populations(), SEEDS)
def test_deciding_for_some_equals_deciding_for_all(data, stats, generation):
    """One parent and one flag for each; stats and rows are left as they were."""
    rows = data.draw(rows_of(stats))
    given, before = rows.copy(), stats.take(np.arange(len(stats.uid)))
    for name, selector in VARIANTS.items():
        everybody = everyone(selector, stats, generation)
        some = selector((3, generation), stats, rows)
        assert some.parents.dtype == np.int64 and some.explore.dtype == bool, name
        assert some.parents.tolist() == everybody.parents[rows].tolist(), name
        assert some.explore.tolist() == everybody.explore[rows].tolist(), name
        some.parents[:] = everybody.parents[:] = 0  # what is returned is not a view of what was given
        assert rows.tolist() == given.tolist(), name
        for one, other in zip(before, stats, strict=True):
            np.testing.assert_equal(other, one, name)


@given(populations(least=2), SEEDS)
def test_who_copies_whom(stats, generation):
    """Nobody copies a worse one, or one that diverged. Whoever did is replaced at once, wherever anybody did not; the best
    is never overwritten. Whatever the evidence, nothing warns."""
    fitness, finite = stats.fitness, np.isfinite(stats.fitness)
    assume(finite.any())
    best = np.flatnonzero(fitness == fitness[finite].max())
    for name, selector in VARIANTS.items():
        parents, explore = everyone(selector, stats, generation)
        assert np.all((parents == np.arange(len(fitness))) | finite[parents]), name
        assert not np.any(fitness[parents[finite]] < fitness[finite]), name
        assert selector.min_population == 1 or (finite[parents] & explore)[~finite].all(), name
        assert np.all(np.isin(parents[best], best)) and (len(best) > 1 or parents[best] == best), name


@given(populations(fitness=st.sampled_from([NAN, INF, -INF])) | populations().map(lambda stats: stats.take(np.r_[:1])))
def test_where_nobody_is_finite_and_alone_everybody_keeps(stats):
    n = len(stats.uid)
    for name, selector in VARIANTS.items():
        selection = everyone(selector, stats)
        assert selection.parents.tolist() == list(range(n)), name
        assert selection.explore.tolist() == [selector == NoSelection(explore=True)] * n, name


@given(populations(), SEEDS)
def test_parents_keep_theirs(stats, generation):
    """Whoever donates is not replaced in the same generation, except where opponents are drawn member by member."""
    for name, selector in VARIANTS.items():
        if not isinstance(selector, SELECTORS["tournament"] | SELECTORS["t_test"]):
            parents = everyone(selector, stats, generation).parents
            assert parents[parents].tolist() == parents.tolist(), name


def test_equal_fitness_is_decided_by_lot(selector):
    n, generations = 6, 120
    stats = make(np.zeros(n), spread=0.0)
    parents = np.stack([everyone(selector, stats, generation).parents for generation in range(generations)])
    copied = (parents != np.arange(n)).mean(0)
    assert np.all(copied < 1)
    if copied.any():  # then it must hit everybody, and everybody must donate
        assert np.all(copied > 0)
        assert set(parents[parents != np.arange(n)].tolist()) == set(range(n))


def test_the_key_and_the_uid_decide(selector):
    stats = make(MIXED)
    first, again = (by_uid(everyone(selector, stats), stats) for _ in range(2))
    assert first == again
    if selector in (Truncation(0.5, 0.5), SELECTORS["tournament"]()):  # these draw among many
        others = [by_uid(everyone(selector, stats, generation), stats) for generation in range(1, 6)]
        assert any(other != first for other in others)
        renamed = make(MIXED, uid=np.arange(900, 911))
        assert everyone(selector, renamed).parents.tolist() != everyone(selector, stats).parents.tolist()
