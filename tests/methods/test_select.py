"""Each selector against hand-made cases, brute force and scipy."""

import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from support.messages import shown
from support.strategies import SEEDS

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.methods.select import NoSelection, Threshold, Tournament, Truncation, TTest, WinnerTakesAll

NAN, INF = float("nan"), float("inf")


def make(fitness, std=NAN, episodes=1) -> PopulationStats:
    fitness = np.array(fitness, np.float64)
    n = len(fitness)
    zeros = np.zeros(n, np.int64)
    std = np.broadcast_to(np.float64(std), n)
    return PopulationStats(np.arange(100, 100 + n), zeros, zeros, fitness, std, np.broadcast_to(episodes, n), {})


def measured(returns) -> PopulationStats:
    """PopulationStats of members with these episodes."""
    known = [[r for r in episodes if r == r] for episodes in returns]
    return make(
        [statistics.fmean(k) if k else NAN for k in known],
        [statistics.stdev(k) if len(k) > 1 else NAN for k in known],
        [len(k) for k in known],
    )


def decide(selector, population, generation=0) -> tuple[list[int], list[bool]]:
    selection = selector((7, generation), population, np.arange(len(population.uid)))
    return selection.parents.tolist(), selection.explore.tolist()


def copies(selector, population, generations=400) -> np.ndarray:
    """How often each member [child, parent] took each parent."""
    n = len(population.uid)
    counts = np.zeros((n, n))
    for generation in range(generations):
        counts[np.arange(n), decide(selector, population, generation)[0]] += 1
    return counts / generations


# ------------------------------------------------------------------------------------------ truncation


@pytest.mark.parametrize(
    ("n", "replaced"), [(2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (8, 2), (10, 2), (11, 2), (20, 5), (80, 20)]
)
def test_truncation_counts_by_hand(n, replaced):
    parents, explore = decide(Truncation(), make(np.arange(n)))
    assert [i for i in range(n) if parents[i] != i] == list(range(replaced))
    assert explore == [i < replaced for i in range(n)]
    assert all(parent >= n - replaced for parent in parents[:replaced])


@given(
    st.fractions(0, 1, max_denominator=20), st.fractions(0, 1, max_denominator=20), st.integers(2, 101), st.randoms()
)
def test_truncation_counts_by_brute_force(bottom, top, n, chance):
    assume(0 < bottom < 1 and 0 < top < 1 and bottom + top <= 1)
    order = chance.sample(range(n), n)  # from the worst to the best
    replaced = max(1, bottom.numerator * n // bottom.denominator)
    donors = min(max(1, top.numerator * n // top.denominator), n - replaced)
    parents, _ = decide(Truncation(float(bottom), float(top)), make(np.argsort(order)))
    assert {i for i in range(n) if parents[i] != i} == set(order[:replaced])
    assert {parents[i] for i in order[:replaced]} <= set(order[n - donors :])


def test_a_fraction_that_floats_cannot_hold_is_not_rounded_down():
    parents, _ = decide(Truncation(0.57, 0.1), make(np.arange(100)))  # 0.57 * 100 = 56.99999999999999
    assert sum(parent != i for i, parent in enumerate(parents)) == 57


def test_top_and_bottom_never_overlap():
    for generation in range(30):
        parents, _ = decide(Truncation(1e-10, 1 - 1e-10), make(np.arange(5)), generation)
        assert parents[0] != 0 and parents[1:] == [1, 2, 3, 4]


def test_truncation_donors_are_uniform():
    top = copies(Truncation(), make(np.arange(8)))
    assert top[:2, 6:] == pytest.approx(np.full((2, 2), 0.5), abs=0.1)
    above = copies(Truncation(bottom=0.4, parents="above"), make(np.arange(10)))  # fastpbrl
    assert above[:4, 4:] == pytest.approx(np.full((4, 6), 1 / 6), abs=0.08)
    assert np.diag(above)[4:].tolist() == [1] * 6


def test_the_bottom_explores_where_nobody_donates():
    found = decide(Truncation(parents="none"), make([4, NAN, 3, 1, 5, 7, 2, 6]))
    assert found == (list(range(8)), [i in (1, 3) for i in range(8)])


def test_truncation_replaces_the_diverged_first():
    parents, explore = decide(Truncation(), make([NAN, -1e9, 3, 4, INF, 5, 6, 7]))
    assert explore == [True, False, False, False, True, False, False, False]
    assert {parents[0], parents[4]} <= {6, 7}
    parents, explore = decide(Truncation(), make([NAN, 1.0, NAN, -INF]))  # more diverged than one quarter
    assert parents == [1, 1, 1, 1] and explore == [True, False, True, True]
    for generation in range(20):
        parents, _ = decide(Truncation(0.25, 0.75), make([NAN, 1.0, NAN, 2.0]), generation)
        assert {parents[0], parents[2]} <= {1, 3} and (parents[1], parents[3]) == (1, 3)


def test_equal_members_are_replaced_by_lot():
    counts = copies(Truncation(), make(np.zeros(4)))
    assert np.diag(counts) == pytest.approx([0.75] * 4, abs=0.08)
    assert counts[~np.eye(4, dtype=bool)] == pytest.approx([1 / 12] * 12, abs=0.06)


# ------------------------------------------------------------------------------- winner and tournament


def test_winner_takes_all():
    assert decide(WinnerTakesAll(), make([1, 5, NAN, 2])) == ([1, 1, 1, 1], [True, False, True, True])
    winners = {decide(WinnerTakesAll(), make([3, 3, 1]), generation)[0][2] for generation in range(30)}
    assert winners == {0, 1}


def test_tournament_copies_only_the_better():
    counts = copies(Tournament(), make([10, 20, 30, 40]))
    expected = np.array([[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 2, 1], [0, 0, 0, 3]]) / 3
    assert counts == pytest.approx(expected, abs=0.1)


def test_tournament_between_equals_is_a_coin_toss_with_one_winner():
    population = make([0.0, 0.0])
    outcomes = [tuple(decide(Tournament(), population, generation)[0]) for generation in range(300)]
    assert set(outcomes) == {(0, 0), (1, 1)}
    assert outcomes.count((0, 0)) == pytest.approx(150, abs=35)


def test_tournament_rescues_every_diverged_member():
    for generation in range(30):
        parents, _ = decide(Tournament(), make([NAN, NAN, INF, 1.0]), generation)
        assert parents == [3, 3, 3, 3]


# ------------------------------------------------------------------------------------------- threshold


def test_threshold_by_hand():
    # Mean 2, standard deviation 1.414: the margin is 0.5 x 1.414 = 0.707.
    population = make([0, 1, 2, 3, 4])
    seen = [decide(Threshold(0.5, 0.025), population, generation) for generation in range(60)]
    assert {tuple(parents[2:]) for parents, _ in seen} == {(2, 3, 4)}
    assert {parents[0] for parents, _ in seen} == {parents[1] for parents, _ in seen} == {3, 4}
    assert all(explore == [True, True, False, False, False] for _, explore in seen)
    assert decide(Threshold(0.5, 1.5), population)[1] == [True, False, False, False, False]
    assert decide(Threshold(0.5, 2.0), population)[1] == [False] * 5  # strictly below


@given(st.lists(st.integers(-800, -200).map(lambda x: x / 10) | st.just(NAN), min_size=2, max_size=12), SEEDS)
def test_threshold_by_brute_force(fitness, seed):
    known = [f for f in fitness if f == f]
    assume(known)
    margin = max(0.8 * statistics.pstdev(known), 2.0)
    low, high = statistics.fmean(known) - margin, statistics.fmean(known) + margin
    assume(all(min(abs(f - low), abs(f - high)) > 1e-9 for f in known))  # where the last bit decides, either is right
    parents, explore = decide(Threshold(0.8, 2.0), make(fitness), seed)
    leaders = {i for i, f in enumerate(fitness) if f > high}
    for i, f in enumerate(fitness):
        assert explore[i] == (not f >= low)
        allowed = (leaders or ({i} if f == f else {j for j, g in enumerate(fitness) if g == g})) if explore[i] else {i}
        assert parents[i] in allowed


def test_threshold_with_nobody_above_explores_in_place():
    population = make([10, 10, 10, 10, 0])  # mean 8, margin 4: nobody is above 12
    assert decide(Threshold(1.0, 0.0), population) == ([0, 1, 2, 3, 4], [False] * 4 + [True])
    parents, explore = decide(Threshold(), make([5, 5, 5, NAN]))  # equal members, at the best possible return say
    assert explore == [False] * 3 + [True] and parents[:3] == [0, 1, 2] and parents[3] != 3


def test_threshold_zero_leaves_equal_members_alone():
    assert decide(Threshold(0.0, 0.0), make([0.1, 0.1, 0.1])) == ([0, 1, 2], [False] * 3)  # np.mean is above 0.1


# ---------------------------------------------------------------------------------------------- t-test


EPISODES = st.lists(st.integers(-400, 400).map(lambda x: x / 100), min_size=2, max_size=10)


@given(EPISODES, EPISODES, SEEDS)
def test_t_test_agrees_with_scipy(one, other, seed):
    assume(len({*one}) > 1 and len({*other}) > 1 and statistics.fmean(one) != statistics.fmean(other))
    population = measured([one, other])
    worse, better = np.argsort(population.fitness)
    pvalue = stats.ttest_ind(one, other, equal_var=False).pvalue
    parents, explore = decide(TTest(p=0.1), population, seed)
    assert parents[better] == better
    assert explore[worse] == (parents[worse] == better) == (pvalue < 0.1)


@pytest.mark.parametrize(
    ("returns", "copied"),
    [
        ([[1, 1, 1], [2, 2, 2]], True),  # neither varies: any difference counts
        ([[2, 2, 2], [2, 2, 2]], False),
        ([[1, 1, 1], [2, 2.1, 1.9]], True),  # one varies
        ([[1, NAN, NAN], [9, 9, 9]], False),  # a single episode is no evidence
        ([[1, 2, 1], [9, NAN, NAN]], False),
        ([[1, 2, 3], [1.5, 2.5, 3.5]], False),
        ([[NAN, NAN, NAN], [1, NAN, NAN]], True),  # diverged: no test needed
    ],
)
def test_t_test_by_hand(returns, copied):
    assert decide(TTest(), measured(returns))[1] == [copied, False]


@pytest.mark.parametrize(
    ("std", "episodes", "copied"),
    [
        (0.5, 10, True),  # t = 4.5
        (2.0, 10, False),  # t = 1.1: more scatter, less evidence
        (2.0, 100, True),  # t = 3.5: more episodes, more evidence
        ([2.0, 0.0], [100, 2], True),
        (0.0, 2, True),
        (0.0, 1, False),  # whatever a trainer puts down as the std of too few episodes
        (0.0, [0, 5], False),
        (NAN, [5, 1], False),
        (NAN, 5, False),
        (INF, 5, False),
        (1e300, 5, False),  # the variance overflows
        (1e-300, 5, True),  # and underflows
    ],
)
def test_t_test_by_std_and_episodes(std, episodes, copied):
    """The evidence for a fitness of 2 over one of 1."""
    assert decide(TTest(), make([1.0, 2.0], std, episodes)) == ([int(copied), 1], [copied, False])


def test_t_test_of_a_whole_population_agrees_with_scipy():
    generator = np.random.default_rng(2)
    population = make(generator.normal(size=12), generator.uniform(0.2, 2, 12), generator.integers(2, 20, 12))
    p = [
        [stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue for b in zip(*population[3:6], strict=True)]
        for a in zip(*population[3:6], strict=True)
    ]
    beaten = (np.array(p) < 0.05) & (population.fitness[:, None] < population.fitness)  # [member, opponent]
    copied = copies(TTest(), population, 200) > 0  # each pair meets with certainty: (10 / 11) ** 200 is 5e-9
    assert np.array_equal(copied & ~np.eye(12, dtype=bool), beaten) and 10 < beaten.sum() < 60


# ------------------------------------------------------------------------------------------------ keep


def test_keep():
    assert decide(NoSelection(), make([1, NAN, 3])) == ([0, 1, 2], [False] * 3)
    assert decide(NoSelection(explore=True), make([1, NAN, 3])) == ([0, 1, 2], [True] * 3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Truncation, {"bottom": 0.6, "top": 0.5}),
        (Truncation, {"bottom": 0}),
        (Truncation, {"bottom": NAN}),
        (Truncation, {"bottom": 1.0, "parents": "above"}),
        (Truncation, {"top": -0.1}),
        (Threshold, {"threshold_std": -1}),
        (Threshold, {"threshold_abs": NAN}),
        (TTest, {"p": 0}),
        (TTest, {"p": 5}),
    ],
    ids=shown,
)
def test_nonsense_is_refused(kind, options, said):
    with pytest.raises(BadInput) as error:
        kind(**options)
    said(error.value)


def test_fractions_that_fill_the_population_are_accepted():
    for bottom in (0.1, 0.3, 0.4, 0.7, 0.9):
        Truncation(bottom, 1 - bottom)
    Truncation(bottom=0.8, parents="above")
