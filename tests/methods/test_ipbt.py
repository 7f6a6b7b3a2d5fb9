"""IPBT, by hand: when all begin again, from what, and how often members copy after that."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from support.messages import Said

from shoal.core.errors import BadInput
from shoal.core.evolution import Cards, Decision, Range
from shoal.methods.explore import Perturb
from shoal.methods.ipbt import Ipbt
from shoal.methods.select import Truncation

SPACE = {"rate": Range(1e-4, 1.0, "log"), "width": Range(1, 9, integer=True)}
SELECT = Truncation(1 / 8, 1 / 8)


class Run:
    """Eight members in a given order, and the decisions about them; fitness rises with uid, from a given best."""

    def __init__(
        self, patience: int = 2, start_after: int = 0, order: np.ndarray | None = None, generations: int = 1000
    ):
        method = Ipbt(select=SELECT, explore=Perturb(), start_after=start_after, rows=16, patience=patience)
        self.evolver = method.evolver(SPACE, {}, generations)
        self.order = np.arange(8) if order is None else order
        self.state, hyper = self.evolver.init((0,), np.arange(8))
        self.hyper, self.generation = {name: x[self.order] for name, x in hyper.items()}, 0

    def tell(self, best: float, spoilt: tuple[int, ...] = ()) -> Decision:
        n, fitness = len(self.order), best - 7 + self.order.astype(float)
        fitness[np.isin(self.order, spoilt)] = math.nan
        whole = np.full(n, self.generation)
        steps, nothing = 100 * (whole + 1), np.full(n, math.nan)
        cards = Cards(self.order, whole, steps, fitness, nothing, whole, self.hyper)
        self.state, decision = self.evolver.decide((0, self.generation), self.state, cards, np.arange(n))
        assert isinstance(decision, Decision)
        self.hyper, self.generation = decision.hyper, self.generation + 1
        return decision


def copied(decision: Decision) -> int:
    return int((decision.parents != np.arange(8)).sum())


def pace(decision: Decision) -> tuple[float, float]:
    """Its pace, and how often it has begun again."""
    return decision.metrics["ipbt/pace"], decision.metrics["ipbt/restarts"]


def test_it_begins_again_when_nothing_improves() -> None:
    """Patience 2: the means of 1 2 and 3 3 rise, those of 2 3 and 3 2 do not. Then every second interval is left alone."""
    run = Run()
    for best in (1, 2, 3, 3):
        decision = run.tell(best)
        assert copied(decision) == 1 and not decision.renewed and decision.metrics["ipbt/pace"] == 1
    decision = run.tell(2)
    assert pace(decision) == (2, 1)
    assert set(decision.renewed) == set(range(8))
    assert {row for row, share in decision.renewed.items() if share == (0.2, 0.1)} == {4, 5, 6, 7}
    assert {row for row, share in decision.renewed.items() if share == (0.0, 1.0)} == {0, 1, 2, 3}
    assert decision.parents[:4].tolist() == [0, 1, 2, 3] and set(decision.parents[4:]) <= {6, 7}
    assert np.isnan(run.state["before"]).all()
    assert [copied(run.tell(best)) for best in (1, 1, 2, 2, 3, 3, 4, 4)] == [0, 1] * 4  # from 1 to 4 it rises
    assert [pace(run.tell(0)), pace(run.tell(0))] == [(2, 1), (4, 2)]


def test_equal_fitness_is_decided_by_lot_where_all_begin_again() -> None:
    """Over many keys everybody keeps a share of what it has, and everybody begins with nothing."""
    halves: dict[tuple[float, float], set[int]] = {(0.2, 0.1): set(), (0.0, 1.0): set()}
    whole, nothing = np.arange(8), np.full(8, math.nan)
    for seed in range(100):
        evolver = Ipbt(select=SELECT, explore=Perturb(), rows=16, patience=1).evolver(SPACE, {}, 1000)
        state, hyper = evolver.init((seed,), whole)
        for generation in range(2):
            now = np.full(8, generation)
            equal = Cards(whole, now, 100 * (now + 1), np.ones(8), nothing, whole, hyper)
            state, decision = evolver.decide((seed, generation), state, equal, whole)
        assert isinstance(decision, Decision) and len(decision.renewed) == 8
        for row, share in decision.renewed.items():
            halves[share].add(row)
    assert halves == {(0.2, 0.1): set(range(8)), (0.0, 1.0): set(range(8))}


def test_a_mean_above_the_one_before_goes_on_for_ever() -> None:
    run = Run()
    assert all(not run.tell(best).renewed for best in np.cumsum(np.ones(7)))


def test_not_before_it_may() -> None:
    run = Run(start_after=900)
    assert [bool(run.tell(1).renewed) for _ in range(9)] == [False] * 8 + [True]


@pytest.mark.parametrize(("generations", "begun"), [(6, 1), (5, 0), (2, 0)])
def test_nobody_begins_again_where_no_two_of_the_new_intervals_fit(generations: int, begun: int) -> None:
    """After the second generation fitness has stalled; two intervals of two generations need four more."""
    run = Run(patience=1, generations=generations)
    run.tell(5)
    assert bool(run.tell(4).renewed) == begun and run.state["restarts"] == begun


def test_who_diverged_is_observed_where_others_only_go_on() -> None:
    """The interval between two copyings in which member 2 diverges is the worst change there can be, and its line's end."""
    run = Run(patience=1)
    run.tell(5)
    assert run.tell(4).renewed
    run.tell(4, (2,))
    assert run.state["rows"][-1, 2] == -math.inf and not np.isnan(run.state["began"][2]).any()


def test_how_far_lines_got() -> None:
    """Member 0 copies 7 and goes on in its line, whatever becomes of 7; at the end, lines are observations."""
    run = Run(patience=1)
    before = run.hyper = run.hyper | {"rate": np.geomspace(1e-3, 0.1, 8).astype(np.float32)}  # those of another run
    run.tell(5)
    assert run.state["line"].tolist() == [7, 1, 2, 3, 4, 5, 6, 7]
    run.tell(4)
    assert run.state["restarts"] == 1
    rows = run.state["beginnings"][-8:]
    assert rows[:, 0].tolist() == [0] * 8 and rows[:, 2].tolist() == [-2, -1, 0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(rows[:, 3], np.log(before["rate"] / 1e-4) / np.log(1e4), atol=1e-5)
    np.testing.assert_allclose(rows[:, 4], (before["width"] - 1) / 8, atol=1e-6)
    assert run.state["line"].tolist() == list(range(8)) and np.isnan(run.state["reached"]).all()
    while run.state["restarts"] < 2:
        run.tell(4)
    earlier, later = run.state["beginnings"][-16:-8], run.state["beginnings"][-8:]
    np.testing.assert_array_equal(earlier[:, 0], 0)
    np.testing.assert_array_equal(later[:, 0], 1)


def test_where_all_have_diverged_all_begin_again() -> None:
    run = Run()
    run.tell(1)
    decisions = [run.tell(0, tuple(range(8))) for _ in range(3)]
    assert [len(x.renewed) for x in decisions] == [0, 0, 8] and set(decisions[-1].renewed.values()) == {(0.0, 1.0)}


def test_who_diverges_between_two_copyings_copies_at_once() -> None:
    run = Run(patience=1)
    run.tell(5)
    assert run.tell(4).renewed
    since = run.state["since"]
    decision = run.tell(4, (2,))
    assert copied(decision) == 1 and decision.parents[2] != 2 and run.state["waited"] == 1
    assert run.state["line"][2] == decision.parents[2]
    assert np.flatnonzero(run.state["since"] != since).tolist() == [2]
    assert np.flatnonzero(np.isfinite(run.state["before"])).tolist() == [2]


def test_half_of_the_hyperparameters_are_what_promises_most() -> None:
    """Lines with high rates got far. Of the four that are not drawn at random, all begin with high ones."""
    run = Run(patience=1)
    run.hyper = {"rate": 10.0 ** np.linspace(-4, 0, 8).astype(np.float32), "width": run.hyper["width"]}
    run.state["began"] = np.stack([np.linspace(0, 1, 8), (run.hyper["width"] - 1) / 8], 1)
    run.tell(5)
    rate = run.tell(4).hyper["rate"]
    at_random = np.arange(8) % 2 == 1  # every other one, from the best down
    assert (rate[~at_random] > 0.1).all(), rate
    assert len(set(rate.tolist())) > 4


def test_an_agent_must_name_its_weights(said: Said) -> None:
    with pytest.raises(BadInput) as error:
        Ipbt(select=SELECT).fit(SimpleNamespace(weights=()), 8)
    said(error.value)


@pytest.mark.parametrize("spoilt", [(7, 3), tuple(range(8))])
def test_the_order_of_cards_does_not_matter(spoilt: tuple[int, ...]) -> None:
    order = np.random.default_rng(0).permutation(8)
    run, other = Run(patience=1), Run(patience=1, order=order)
    for best in (3, 2, 2, 2):
        decision, shuffled = run.tell(best, spoilt), other.tell(best, spoilt)
        assert order[shuffled.parents].tolist() == decision.parents[order].tolist()
        assert {int(order[row]): share for row, share in shuffled.renewed.items()} == dict(decision.renewed)
        for name, x in decision.hyper.items():
            np.testing.assert_array_equal(shuffled.hyper[name], x[order])
    assert not set(decision.parents) & set(spoilt) or len(spoilt) == 8
    assert all(np.array_equal(x, other.state[name], equal_nan=True) for name, x in run.state.items())
