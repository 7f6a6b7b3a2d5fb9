"""What every selector promises, whatever its rule."""

import numpy as np
import pytest

from shoal.core.evolution import Cards, Selection
from shoal.methods.select import SELECTORS, KeepWeights, Threshold, Truncation

NAN, INF = float("nan"), float("inf")
VARIANTS = {
    **{name: selector() for name, selector in SELECTORS.items()},
    "truncation_half": Truncation(0.5, 0.5),
    "truncation_above": Truncation(0.4, donors="above"),
    "threshold_zero": Threshold(0.0, 0.0),
    "keep_explore": KeepWeights(explore=True),
}
MIXED = [3.0, NAN, -2.0, INF, 3.0, 7.5, -INF, 0.0, 7.5, -40.0, 1.0]


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def selector(request):
    return request.param


def make(fitness, uid=None, spread=0.1) -> Cards:
    """Cards whose episodes scatter a little around the fitness; whoever diverged has none."""
    fitness = np.array(fitness, np.float64)
    n = len(fitness)
    uid = np.arange(10, 10 + n) if uid is None else np.array(uid)
    finite = np.isfinite(fitness)
    deviation, episodes = np.where(finite, spread * (1 + uid % 3), NAN), np.where(finite, 3 + uid % 5, 0)
    steps = np.full(n, 1000)
    hyper = {"x": np.arange(n, dtype=np.float32)}
    return Cards(uid, steps // 1000, steps, fitness, deviation, episodes, hyper)


def everyone(selector, cards: Cards, generation: int = 0) -> Selection:
    return selector((3, generation), cards, np.arange(len(cards.uid)))


def take(cards: Cards, rows) -> Cards:
    return Cards(
        *(part[rows] if not isinstance(part, dict) else {k: v[rows] for k, v in part.items()} for part in cards)
    )


def by_uid(selection: Selection, cards: Cards, mine=slice(None)) -> dict[int, tuple[int, bool]]:
    parents = cards.uid[selection.parents].tolist()
    return dict(zip(cards.uid[mine].tolist(), zip(parents, selection.explore.tolist(), strict=True), strict=True))


def test_the_answer_has_one_parent_and_one_flag_for_each(selector):
    cards = make(MIXED)
    for mine in (np.array([2, 5, 1]), np.zeros(0, np.int64)):
        selection = selector((3, 0), cards, mine)
        assert selection.parents.dtype == np.int64 and selection.explore.dtype == bool
        assert selection.parents.shape == selection.explore.shape == mine.shape
        assert np.all((selection.parents >= 0) & (selection.parents < len(MIXED)))


def test_the_order_of_the_cards_does_not_matter(selector):
    cards = make(MIXED)
    for generation in range(10):
        order = np.random.default_rng(generation).permutation(len(MIXED))
        shuffled = take(cards, order)
        expected = by_uid(everyone(selector, cards, generation), cards)
        assert by_uid(everyone(selector, shuffled, generation), shuffled) == expected


def test_deciding_for_some_equals_deciding_for_all(selector):
    cards = make(MIXED)
    for generation in range(10):
        mine = np.random.default_rng(generation).permutation(len(MIXED))[:4]
        everybody = everyone(selector, cards, generation)
        some = selector((3, generation), cards, mine)
        assert some.parents.tolist() == everybody.parents[mine].tolist()
        assert some.explore.tolist() == everybody.explore[mine].tolist()


def test_cards_and_rows_are_left_as_they_were(selector):
    cards, mine = make(MIXED), np.arange(len(MIXED))
    selection = selector((3, 0), cards, mine)
    selection.parents[:] = 0  # what is returned is not a view of what was given
    assert mine.tolist() == list(range(len(MIXED)))
    for before, after in zip(make(MIXED), cards, strict=True):
        np.testing.assert_equal(after, before)


@pytest.mark.parametrize("worthless", [NAN, INF, -INF])
def test_non_finite_fitness_never_becomes_a_parent(selector, worthless):
    cards = make([worthless, 2.0, worthless, -5.0, worthless, 9.0, 1.0])
    for generation in range(30):
        parents = everyone(selector, cards, generation).parents
        for i, parent in enumerate(parents):
            assert parent == i or np.isfinite(cards.fitness[parent])


@pytest.mark.parametrize("worthless", [NAN, INF, -INF])
@pytest.mark.parametrize("diverged", [1, 4, 7])
def test_whoever_diverged_is_replaced_at_once(selector, worthless, diverged):
    """However many they are, in a population as a whole and in a worker's share of it that may hold no other."""
    for generation in range(20):
        rng = np.random.default_rng(generation)
        fitness = rng.normal(size=8)
        lost = rng.permutation(8)[:diverged]
        fitness[lost] = worthless
        cards = make(fitness)
        for mine in (np.arange(8), np.sort(lost), rng.permutation(8)[:3]):
            selection = selector((3, generation), cards, mine)
            sound = np.isfinite(fitness[mine])
            rescued = np.isfinite(fitness[selection.parents]) & selection.explore
            assert np.all(rescued[~sound]) or selector.needs == 1
            assert np.isfinite(fitness[selection.parents[sound]]).all()


def test_where_nobody_is_finite_everybody_keeps(selector):
    for n in (1, 2, 5):
        selection = everyone(selector, make([NAN, INF, -INF, NAN, NAN][:n]))
        assert selection.parents.tolist() == list(range(n))
        assert selection.explore.tolist() == [selector == KeepWeights(explore=True)] * n


def test_a_member_alone_keeps(selector):
    selection = everyone(selector, make([1.0]))
    assert selection.parents.tolist() == [0]
    assert selection.explore.tolist() == [selector == KeepWeights(explore=True)]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9, 32])
def test_the_best_is_never_overwritten_and_nobody_copies_a_worse_one(selector, n):
    for generation in range(15):
        fitness = np.random.default_rng(generation).normal(size=n)
        fitness[np.random.default_rng(generation + 1).random(n) < 0.2] = NAN
        if np.isfinite(fitness).any():
            parents = everyone(selector, make(fitness), generation).parents
            best = np.nanargmax(fitness)
            assert parents[best] == best
            assert not np.any(fitness[parents] < fitness)


def test_parents_keep_theirs(selector):
    """Whoever donates is not replaced in the same generation, except where opponents are drawn member by member."""
    if not isinstance(selector, SELECTORS["tournament"] | SELECTORS["t_test"]):
        for generation in range(20):
            parents = everyone(selector, make(MIXED), generation).parents
            assert parents[parents].tolist() == parents.tolist()


def test_equal_fitness_is_decided_by_lot(selector):
    n, generations = 6, 120
    cards = make(np.zeros(n), spread=0.0)
    parents = np.stack([everyone(selector, cards, generation).parents for generation in range(generations)])
    copied = (parents != np.arange(n)).mean(0)
    assert np.all(copied < 1)
    if copied.any():  # then it must hit everybody, and everybody must donate
        assert np.all(copied > 0)
        assert set(parents[parents != np.arange(n)].tolist()) == set(range(n))


def test_extreme_fitness_raises_no_error_and_no_warning(selector):
    for fitness in ([1e308, -1e308, 1e308], [-1e308, 1e308, 0.0], [5e-324, 0.0, -5e-324], [1e200, 1e200, -1e200]):
        cards = make([*fitness, NAN])
        parents = everyone(selector, cards).parents
        assert not np.any(cards.fitness[parents] < cards.fitness)
        assert (parents[3] != 3) == (selector.needs > 1)


def test_missing_evidence_raises_no_error_and_no_warning(selector):
    for deviation in (NAN, 0.0, INF, 1e300, 5e-324):
        for episodes in (0, 1, 2, 1000):
            cards = make([4.0, NAN, 2.0, 4.0])
            cards.deviation[:], cards.episodes[:] = deviation, episodes
            parents = everyone(selector, cards).parents
            assert not np.any(cards.fitness[parents] < cards.fitness)
            assert (parents[1] != 1) == (selector.needs > 1)


def test_the_key_and_the_uid_decide(selector):
    cards = make(MIXED)
    first, again = (by_uid(everyone(selector, cards), cards) for _ in range(2))
    assert first == again
    if selector in (Truncation(0.5, 0.5), SELECTORS["tournament"]()):  # these draw among many
        others = [by_uid(everyone(selector, cards, generation), cards) for generation in range(1, 6)]
        assert any(other != first for other in others)
        renamed = make(MIXED, uid=np.arange(900, 911))
        assert everyone(selector, renamed).parents.tolist() != everyone(selector, cards).parents.tolist()
