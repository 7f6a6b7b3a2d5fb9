"""MF-PBT, by hand: who copies whom, when, and with whose hyperparameters (arXiv 2506.03225, section 4)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.core.population import PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.methods.explore import Perturb
from shoal.methods.mf_pbt import MfPbt

SPACE = {"rate": Range(1e-6, 1e6, "log")}
TIMES = Perturb(factors=(2.0,), resample_probability=0.0)


def stats(fitness: list[float], generation: int) -> PopulationStats:
    """Member i has uid i and the rate i + 1."""
    n = len(fitness)
    whole, nothing = np.arange(n), np.full(n, math.nan)
    hyper = {"rate": np.arange(1, n + 1, dtype=np.float32)}
    return PopulationStats(whole, np.full(n, generation), whole, np.array(fitness), nothing, whole, hyper)


def decide(fitness: list[float], generation: int, periods: tuple[int, ...], order: np.ndarray | None = None) -> dict:
    """Of every uid: its parent's uid, and its next rate."""
    evolver, before = (
        MfPbt(explore=TIMES, periods=periods).evolver(SearchSpace(SPACE, {}, {}), 8),
        stats(fitness, generation),
    )
    order = np.arange(len(fitness)) if order is None else order
    shown = before.take(order)
    _, decision = evolver.decide((0, generation), (), shown, np.arange(len(order)))
    parents, rates = shown.uid[decision.parents], decision.hyper["rate"]
    return {int(u): (int(p), round(float(r), 3)) for u, p, r in zip(shown.uid, parents, rates, strict=True)}


# Sub-population 0: uids 0 2 4 ... 14, from best to worst 0 2 ... 14. Sub-population 1: uids 1 3 ... 15, likewise.
FITNESS = [100.0, 95, 90, 85, 80, 75, 70, 65, 60, 55, 50, 45, 40, 35, 30, 25]


def test_a_round_of_the_fast_ones_only() -> None:
    """Quarters of two. The third, uids 8 and 10, takes the weights of 1 and 3, which are slower: with their rates."""
    found = decide(FITNESS, 0, (1, 5))
    changed = {8: (1, 2.0), 10: (3, 4.0), 12: (2, 6.0), 14: (0, 2.0)}
    assert found == {uid: (uid, uid + 1.0) for uid in range(16)} | changed


def test_a_round_of_both() -> None:
    """The slow ones take outsiders' weights 0 and 2 with the rate of their own best, uid 1."""
    found = decide(FITNESS, 4, (1, 5))
    assert {uid: found[uid] for uid in range(1, 16, 2)} == {
        **{uid: (uid, uid + 1.0) for uid in (1, 3, 5, 7)},
        **{9: (0, 2.0), 11: (2, 2.0), 13: (3, 8.0), 15: (1, 4.0)},
    }


def test_who_is_as_fast_gives_no_hyperparameters() -> None:
    """But the best of the own sub-population does, with the weights of 1 and 3."""
    found = decide(FITNESS, 0, (1, 1))
    assert (found[8], found[10]) == ((1, 1.0), (3, 1.0))


def test_equal_fitness_is_decided_by_lot() -> None:
    """Over many keys everybody gives, and everybody takes."""
    evolver, equal, everybody = (
        MfPbt(explore=TIMES, periods=(1, 1)).evolver(SearchSpace(SPACE, {}, {}), 8),
        stats([1.0] * 16, 0),
        np.arange(16),
    )
    givers, takers = set(), set()
    for seed in range(100):
        _, decision = evolver.decide((seed,), (), equal, everybody)
        takers |= set(np.flatnonzero(decision.parents != everybody).tolist())
        givers |= set(decision.parents[decision.parents != everybody].tolist())
    assert givers == takers == set(range(16))


def test_what_it_tells_of_its_rounds() -> None:
    evolver = MfPbt(explore=TIMES, periods=(1, 5)).evolver(SearchSpace(SPACE, {}, {}), 8)
    for generation, told in ((0, (1, 2)), (4, (2, 4))):
        _, decision = evolver.decide((0, generation), (), stats(FITNESS, generation), np.arange(16))
        assert decision.metrics == dict(zip(("mf_pbt/evolving", "mf_pbt/migrants"), told, strict=True))


def test_outsiders_that_are_no_better_are_left() -> None:
    """Each takes the next of them, in order, so that one that is worse ends nothing for others above it. Equal is not
    better: uid 3 is worth as much as uid 10."""
    fitness = [100.0, 65, 90, 50, 80, 14, 70, 13, 60, 12, 50, 11, 40, 10, 30, 9]
    found = decide(fitness, 0, (1, 5))
    assert (found[8], found[10]) == ((1, 2.0), (10, 11.0))


def test_an_outsider_that_one_does_not_want_is_left_for_the_next() -> None:
    """The third quarter, uids 8 and 10, has 60 and 50; the best outsiders have 55 and 15: 50 takes 55."""
    fitness = [100.0, 55, 90, 15, 80, 14, 70, 13, 60, 12, 50, 11, 40, 10, 30, 9]
    found = decide(fitness, 0, (1, 5))
    assert (found[8], found[10]) == ((8, 9.0), (1, 2.0))


def test_who_diverged_copies_in_every_round() -> None:
    fitness = [*FITNESS[:15], math.nan]
    fitness[2] = math.inf
    found = decide(fitness, 1, (3, 5))
    assert found[2] == (0, 2.0) and found[15] == (1, 4.0)
    assert all(found[uid] == (uid, uid + 1.0) for uid in range(16) if uid not in (2, 15))
    lost = [math.nan if uid % 2 else x for uid, x in enumerate(FITNESS)]
    assert decide(lost, 1, (3, 5))[7] == (0, 2.0)  # all of its own are gone
    assert decide([math.nan] * 16, 0, (1, 2)) == {uid: (uid, uid + 1.0) for uid in range(16)}


@pytest.mark.parametrize("periods", [(1,), (1, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 17])
def test_the_order_of_cards_does_not_matter_and_the_best_is_kept(periods: tuple[int, ...], n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(20):
        fitness = generator.integers(0, 4, n).astype(float)  # many ties
        fitness[generator.random(n) < 0.2] = math.nan
        generation = int(generator.integers(8))
        found = decide(fitness.tolist(), generation, periods)
        assert found == decide(fitness.tolist(), generation, periods, generator.permutation(n))
        if np.isfinite(fitness).any():
            best = np.nanmax(fitness)
            assert any(fitness[uid] == best and found[uid][0] == uid for uid in range(n))
            assert all(np.isfinite(fitness[parent]) for parent, _ in found.values())
