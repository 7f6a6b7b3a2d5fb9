"""Replay buffer against lists of transitions in plain Python."""

from __future__ import annotations

import functools
from collections import deque
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from scipy import stats
from support.cases import examples

from shoal.core.spec import Box, Discrete, Spec
from shoal.core.types import Rollout
from shoal.rl import replay_buffer as ring

ENDS = {"none": (False, False), "terminated": (True, False), "truncated": (False, True), "both": (True, True)}
KINDS = (*ENDS, "left out")
STORE = jax.jit(ring.store)


@functools.partial(jax.jit, static_argnums=(2, 3, 5))
def sample(memory: Any, key: jax.Array, shape: Any, n: int, discount: jax.Array, frames: int) -> tuple[Any, jax.Array]:
    """Transitions, and the number of steps that one can start at."""
    return ring.sample(memory, key, shape, n, discount, frames), ring.starts(memory, n, frames).sum()


class Step(NamedTuple):
    """One transition. Observations are numbered, so that whatever is drawn tells where it comes from."""

    obs: int
    action: Any
    reward: float
    next_obs: int
    terminated: bool
    truncated: bool

    @property
    def ends(self) -> bool:
        return self.terminated or self.truncated


class Transition(NamedTuple):
    """What is drawn: numbers of observations, the last of `frames`; None where nobody asks what follows."""

    obs: list[int]
    action: Any
    reward: float
    next_obs: list[int] | None
    bootstrap: float


class Life:
    """A memory, and beside it the last steps of each environment as lists.

    A step begins with what followed the one before it, unless that ended an episode. `room`: for observations.
    """

    def __init__(self, slots: int, environments: int, length: int, dtype: str = "float32", room: int = 0):
        self.replay_buffer = ring.empty(Spec((2,), dtype, Box((-1.0,) * 2, (1.0,) * 2)), slots, environments, room)
        self.past = [deque(maxlen=slots) for _ in range(environments)]  # type: ignore[var-annotated]
        self.shape, self.dtype, self.time, self.owner = (length, environments), dtype, 0, 0

    def add(self, kinds: np.ndarray, owner: int = 0) -> None:
        """One rollout, of steps of these kinds [T, B]."""
        if owner != self.owner:
            self.cut(*self.past)
        self.owner, number = owner, self.time * self.shape[1] + np.arange(kinds.size).reshape(self.shape)
        rows = [[self._step(i, kind) for i, kind in zip(*row, strict=True)] for row in zip(number, kinds, strict=True)]
        for row, stay in zip(rows, kinds != "left out", strict=True):
            for steps, step, stays in zip(self.past, row, stay, strict=True):
                if stays:
                    steps.append(step)
                else:
                    self.cut(steps)  # nothing follows it
        self.time += self.shape[0]
        columns = [np.array([[step[i] for step in row] for row in rows]) for i in range(6)]
        obs, next_obs = (numbered(columns[i]).astype(self.dtype) for i in (0, 3))
        reward = np.where(kinds == "left out", np.nan, columns[2]).astype(np.float32)
        rollout = Rollout(obs, columns[1], reward, next_obs, columns[4], columns[5], {"not": np.zeros(3)})
        self.replay_buffer = STORE(self.replay_buffer, rollout, kinds != "left out", np.uint32(owner))

    def live(self, rollouts: int, seed: int = 1, ends: float = 0.2, lost: float = 0.0) -> Life:
        """So many rollouts by chance."""
        rng = np.random.default_rng(seed)
        for _ in range(rollouts):
            self.add(rng.choice(KINDS, self.shape, p=[1 - ends - lost, ends / 2, ends / 2, 0, lost]))
        return self

    def cut(self, *environments: deque[Step]) -> None:
        for steps in environments:
            if steps:
                steps[-1] = steps[-1]._replace(truncated=True)

    def _step(self, number: int, kind: str) -> Step:
        action, reward = np.float32([1 / (1 + number), number]), float(np.float32((number % 17) / 3 - 2))
        terminated, truncated = ENDS.get(kind, (False, False))
        after = number + (1000 if terminated or truncated else self.shape[1])
        return Step(int(number), action, reward, int(after), terminated, truncated)

    def draw(self, count: int, n: int = 1, discount: float = 0.9, seed: int = 0, frames: int = 1) -> ring.Batch:
        key, shape = jax.random.key(seed), (4, count // 4)
        batch, starts = sample(self.replay_buffer, key, shape, n, np.float32(discount), frames)
        self.starts = int(starts)
        assert batch.obs.shape == (4, count // 4, 2 * frames) and batch.reward.shape == (4, count // 4)
        return jax.tree.map(lambda x: np.asarray(x).reshape(count, *x.shape[2:]), batch)

    def known(self, n: int, discount: float = 0.9, frames: int = 1) -> list[Transition]:
        """Every transition of n steps that can be drawn, by its definition."""
        return [
            self._transition(list(steps), i, n, discount, frames)
            for steps in self.past
            for i in range(self._first(list(steps), frames), len(steps) - n + 1)
        ]

    def _first(self, steps: list[Step], frames: int) -> int:
        """The first step of which all that is seen is there."""
        gone = self.gone(steps)
        return gone + (frames - 1 if gone or len(steps) == len(self.replay_buffer.steps.reward) else 0)

    def gone(self, steps: list[Step]) -> int:
        """How many of the oldest steps have lost the observation that they begin with: each place holds one, the newest is
        that of what follows the newest step."""
        ages, (length, environments) = [1], self.shape
        for step, following in zip(steps[-2::-1], steps[:0:-1], strict=True):
            left_out = following.obs > step.obs + environments and following.obs // environments % length
            ages.append(ages[-1] + 1 + bool(left_out or (step.next_obs != following.obs and not step.terminated)))
        return sum(age >= len(self.replay_buffer.obs) for age in ages[: len(steps)])

    def _transition(self, steps: list[Step], i: int, n: int, discount: float, frames: int) -> Transition:
        last = next((k for k in range(i, i + n) if steps[k].ends), i + n - 1)
        reward = sum(discount**k * step.reward for k, step in enumerate(steps[i : last + 1]))
        now, end = _seen(steps, i, frames), steps[last]
        if end.terminated:
            return Transition(now, steps[i].action, reward, None, 0.0)
        after = [*_seen(steps, last, frames)[1:], end.next_obs]
        return Transition(now, steps[i].action, reward, after, discount ** (last - i + 1))


def _seen(steps: list[Step], i: int, frames: int) -> list[int]:
    """The numbers of the last observations of the episode that step i belongs to; before the first one, that one."""
    first = next((k for k in range(i, 0, -1) if steps[k - 1].ends), 0)
    return [steps[max(i - k, first)].obs for k in range(frames - 1, -1, -1)]


def numbered(number: Any) -> np.ndarray:
    """An observation [..., 2] that tells its number, in a byte each."""
    return np.stack([number, np.asarray(number) // 7], -1) % 251


def numbers(obs: np.ndarray) -> np.ndarray:
    return obs[..., -2].astype(int)


# Slots, environments, steps of a rollout; rollouts fill the ring exactly or not, or are longer; images; room to spare.
SHAPES = [(7, 2, 4, "uint8"), (5, 3, 1), (3, 2, 6), (6, 1, 4, "float32", 12)]
DRAWS = st.sampled_from([(1, 1), (3, 1), (2, 3)])  # steps, frames


class Ring(RuleBasedStateMachine):
    """Rollouts of any steps, in lives of one member or another, and transitions drawn whenever one likes."""

    @initialize(shape=st.sampled_from(SHAPES))
    def begin(self, shape: Any) -> None:
        self.life, self.filled = Life(*shape), 0

    @rule(data=st.data(), owner=st.sampled_from((0, 0, 0, 1)))
    def rollout(self, data: st.DataObject, owner: int) -> None:
        size = int(np.prod(self.life.shape))
        kinds = data.draw(st.lists(st.sampled_from(("none", "none", *KINDS)), min_size=size, max_size=size))
        self.life.add(np.array(kinds).reshape(self.life.shape), owner)

    @rule(how=DRAWS, discount=st.sampled_from((0.0, 0.5, 0.9, 1.0)), seed=st.integers(0, 2**31 - 1))
    def draw(self, how: tuple[int, int], discount: float, seed: int) -> None:
        """Each transition by its definition: ends cut it short, and so does a step that was left out; the newest steps never
        go on with the oldest. Nothing that is stored knows of the discount."""
        n, frames = how
        known = {numbered(one.obs[-1])[0]: one for one in self.life.known(n, discount, frames)}
        batch = self.life.draw(64, n, discount, seed, frames)
        assert self.life.starts == len(known)
        if not known:
            return
        expected = [known[number] for number in numbers(batch.obs)]
        followed = [one.next_obs is not None for one in expected]
        after = [numbered(one.next_obs) for one in expected if one.next_obs is not None]
        np.testing.assert_array_equal(batch.obs, [numbered(one.obs).ravel() for one in expected])
        np.testing.assert_array_equal(batch.next_obs[followed], np.reshape(after, (-1, 2 * frames)))
        np.testing.assert_array_equal(batch.action, [one.action for one in expected])
        np.testing.assert_allclose(batch.reward, [one.reward for one in expected], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(batch.bootstrap, [one.bootstrap for one in expected], rtol=1e-6)

    @invariant()
    def the_last_steps_are_there(self) -> None:
        """The count stops at the number of slots, the position goes on in circles."""
        memory, slots = jax.tree.map(np.asarray, self.life.replay_buffer), len(self.life.replay_buffer.steps.reward)
        steps = memory.steps
        np.testing.assert_array_equal(memory.filled, [len(past) for past in self.life.past])
        assert memory.filled.sum() >= self.filled and not np.isnan(steps.reward).any()
        self.filled = memory.filled.sum()
        for b, past in enumerate(self.life.past):
            whole = len(past) - self.life.gone(list(past))
            for age, expected in enumerate(reversed(past), 1):
                slot = (memory.position[b] - age) % slots
                obs = [memory.obs[(steps.number[slot, b] + k) % len(memory.obs), b].tolist() for k in (0, 1)]
                if age <= whole:
                    assert obs[0] == numbered(expected.obs).tolist()
                    assert expected.terminated or obs[1] == numbered(expected.next_obs).tolist()
                assert steps.action[slot, b].tolist() == expected.action.tolist()
                assert steps.reward[slot, b] == np.float32(expected.reward)
                assert (steps.terminated[slot, b], steps.truncated[slot, b]) == expected[4:]


@examples(4, 200)
def test_the_ring_is_the_lists_of_the_last_steps(examples: int) -> None:
    run_state_machine_as_test(Ring, settings=settings(max_examples=examples))


def test_observations_and_actions_keep_their_types():
    """Images take a byte per pixel; nothing else of them is remembered."""
    life = Life(7, 2, 4, "uint8").live(3)
    steps, batch = life.replay_buffer.steps, life.draw(64)
    assert life.replay_buffer.obs.dtype == batch.obs.dtype == batch.next_obs.dtype == np.uint8
    assert steps.terminated.dtype == steps.truncated.dtype == bool
    assert set(numbers(batch.obs)) <= {step.obs for past in life.past for step in past}
    memory = ring.empty(Spec((84, 84, 4), "uint8", Discrete(3)), 10, 2)
    assert memory.steps.action.dtype == np.int32 and memory.steps.action.shape == (10, 2)
    assert memory.obs.nbytes == 11 * 2 * 84 * 84 * 4


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("lost", [0.0, 0.4])
@pytest.mark.parametrize("rollouts", [2, 3, 5], ids=["half full", "full", "overwritten"])
def test_every_step_that_is_stored_is_drawn_as_often(rollouts, lost, n):
    """And no other, such as an empty slot; of the last n - 1 steps it is not known how they go on."""
    life = Life(9, 2, 3).live(rollouts, lost=lost)
    expected = sorted(one.obs[-1] for one in life.known(n))
    assert len(expected) >= (2 if lost else 8)
    drawn, counts = np.unique(numbers(life.draw(20_000, n).obs), return_counts=True)
    np.testing.assert_array_equal(drawn, expected)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.slow
def test_draws_are_independent():
    """Place and environment, one transition and the next, one batch and the next."""
    life = Life(4, 3, 2).live(2, ends=0)
    first = numbers(life.draw(20_000).obs)
    pairs = np.unique(first[:-1] * 12 + first[1:], return_counts=True)[1]
    assert len(pairs) == 144 and stats.chisquare(pairs).pvalue > 1e-3
    np.testing.assert_array_equal(first, numbers(life.draw(20_000).obs))
    assert 0.05 < (first == numbers(life.draw(20_000, seed=1).obs)).mean() < 0.12
