"""Replay memory against lists of transitions in plain Python."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.tiny import same

from shoal.core.spec import Continuous, Discrete, Spec
from shoal.core.types import Rollout
from shoal.rl import replay_memory as ring

A = 2  # components of an action


class Step(NamedTuple):
    """One transition. Observations are numbered, so that whatever is drawn tells where it comes from."""

    obs: int
    action: Any
    reward: float
    next_obs: int
    terminated: bool
    truncated: bool


class Life:
    """A memory, and beside it the last steps of each environment as lists; a share `lost` of them is left out.

    A step begins with what followed the one before it, unless that ended an episode. `room`: for observations.
    """

    def __init__(
        self,
        slots: int,
        environments: int,
        length: int,
        ends: float = 0.2,
        dtype: str = "float32",
        lost: float = 0.0,
        room: int = 0,
    ):
        self.memory = ring.empty(Spec((2,), dtype, Continuous((-1.0,) * A, (1.0,) * A)), slots, environments, room)
        self.past = [deque(maxlen=slots) for _ in range(environments)]  # type: ignore[var-annotated]
        self.length, self.ends, self.dtype, self.lost = length, ends, dtype, lost
        self.rng, self.time = np.random.default_rng(slots + 10 * environments), 0

    def live(self, rollouts: int) -> Life:
        for _ in range(rollouts):
            rows = [[self._step(b, t) for b in range(len(self.past))] for t in range(self.length)]
            kept = self.rng.random((self.length, len(self.past))) >= self.lost
            for row, those in zip(rows, kept, strict=True):
                for steps, step, stays in zip(self.past, row, those, strict=True):
                    if stays:
                        steps.append(step)
                    elif steps:
                        steps[-1] = steps[-1]._replace(truncated=True)  # nothing follows it
            self.time += self.length
            columns = [np.array([[step[i] for step in row] for row in rows]) for i in range(6)]
            obs, next_obs = ((numbered(columns[i]) % 251).astype(self.dtype) for i in (0, 3))
            action, reward = columns[1].astype(np.float32), np.where(kept, columns[2], np.nan).astype(np.float32)
            rollout = Rollout(obs, action, reward, next_obs, columns[4], columns[5], {"not": np.zeros(3)})
            self.memory = jax.jit(ring.store)(self.memory, rollout, kept, self.memory.owner)
        return self

    def _step(self, environment: int, t: int) -> Step:
        number, draw = (self.time + t) * len(self.past) + environment, self.rng.random(2) < self.ends / 2
        action, reward = self.rng.normal(size=A), self.rng.normal()
        after = number + (1000 if draw.any() else len(self.past))
        return Step(number, action, float(np.float32(reward)), after, bool(draw[0]), bool(draw[1]))

    def draw(self, count: int, n: int = 1, discount: float = 0.9, seed: int = 0, frames: int = 1) -> ring.Batch:
        batch = ring.sample(self.memory, jax.random.key(seed), (4, count // 4), n, jnp.float32(discount), frames)
        assert batch.obs.shape == (4, count // 4, 2 * frames) and batch.reward.shape == (4, count // 4)
        return jax.tree.map(lambda x: np.asarray(x).reshape(count, *x.shape[2:]), batch)

    def starts(self, n: int) -> list[tuple[list[Step], int]]:
        """Every environment's steps and each place in them from which n steps are known, and what is observed there."""
        return [(list(steps), i) for steps in self.past for i in range(self.gone(list(steps)), len(steps) - n + 1)]

    def gone(self, steps: list[Step]) -> int:
        """How many of the oldest steps have lost the observation that they begin with: each place holds one, the newest is
        that of what follows the newest step."""
        ages = [1]
        for step, following in zip(steps[-2::-1], steps[:0:-1], strict=True):
            left_out = following.obs > step.obs + len(self.past) and following.obs // len(self.past) % self.length
            ages.append(ages[-1] + 1 + bool(left_out or (step.next_obs != following.obs and not step.terminated)))
        return sum(age >= len(self.memory.obs) for age in ages[: len(steps)])

    def transition(self, steps: list[Step], i: int, n: int, discount: float) -> tuple[Any, ...]:
        """What an n-step transition is, by its definition: reward, last observation, weight of its value."""
        total, factor = 0.0, 1.0
        for step in steps[i : i + n]:
            total, factor = total + factor * step.reward, factor * discount
            if step.terminated:
                return total, step.next_obs, 0.0
            if step.truncated:
                break
        return total, step.next_obs, factor


def numbered(number: Any) -> np.ndarray:
    """An observation [..., 2] that tells its number."""
    return np.stack([number, np.asarray(number) // 7], -1)


def numbers(obs: np.ndarray) -> np.ndarray:
    return obs[..., 0].astype(int)


# ------------------------------------------------------------------------------------------------- storing


@pytest.mark.parametrize("lost", [0.0, 0.4])
@pytest.mark.parametrize(("slots", "length", "environments"), [(6, 2, 3), (6, 3, 1), (4, 4, 2), (5, 1, 2), (3, 6, 2)])
def test_the_ring_holds_the_last_steps(slots, length, environments, lost):
    """Across several turns; the count stops at the number of slots, the position goes on in circles. So they do where some
    are left out, and where more come at once than there is room for."""
    life = Life(slots, environments, length, lost=lost)
    known = np.zeros(environments, int)
    for _ in range(2 * slots // length + 1):
        memory = jax.tree.map(np.asarray, life.live(1).memory)
        steps, position, filled = memory.steps, memory.position, memory.filled
        np.testing.assert_array_equal(filled, [len(past) for past in life.past])
        assert lost or (position == life.time % slots).all()
        assert (filled >= known).all() and not np.isnan(steps.reward).any()
        known = filled
        for b, past in enumerate(life.past):
            for age, expected in enumerate(reversed(past), 1):
                slot = (position[b] - age) % slots
                obs = [memory.obs[(steps.number[slot, b] + k) % len(memory.obs), b] for k in (0, 1)]
                if age <= len(past) - life.gone(list(past)):
                    np.testing.assert_array_equal(obs[0], numbered(expected.obs) % 251)
                    assert expected.terminated or (obs[1] == numbered(expected.next_obs) % 251).all()
                np.testing.assert_array_equal(steps.action[slot, b], expected.action.astype(np.float32))
                assert steps.reward[slot, b] == np.float32(expected.reward)
                assert (steps.terminated[slot, b], steps.truncated[slot, b]) == expected[4:]


def test_observations_and_actions_keep_their_types():
    """Images take a byte per pixel; nothing else of them is remembered."""
    life = Life(4, 2, 2, dtype="uint8").live(3)
    steps, batch = life.memory.steps, life.draw(8)
    assert life.memory.obs.dtype == batch.obs.dtype == batch.next_obs.dtype == np.uint8
    assert steps.terminated.dtype == steps.truncated.dtype == bool
    assert set(numbers(batch.obs)) <= {step.obs for past in life.past for step in past}
    memory = ring.empty(Spec((84, 84, 4), "uint8", Discrete(3)), 10, 2)
    assert memory.steps.action.dtype == np.int32 and memory.steps.action.shape == (10, 2)
    assert memory.obs.nbytes == 11 * 2 * 84 * 84 * 4


# ------------------------------------------------------------------------------------------------- drawing


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("lost", [0.0, 0.4])
@pytest.mark.parametrize("rollouts", [2, 3, 5], ids=["half full", "full", "overwritten"])
def test_every_step_that_is_stored_is_drawn_as_often(rollouts, lost, n):
    """And no other, such as an empty slot; of the last n - 1 steps it is not known how they go on."""
    life = Life(9, 2, 3, lost=lost).live(rollouts)
    expected = sorted(steps[i].obs for steps, i in life.starts(n))
    assert len(expected) >= (2 if lost else 8)
    drawn, counts = np.unique(numbers(life.draw(20_000, n).obs), return_counts=True)
    np.testing.assert_array_equal(drawn, expected)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.slow
def test_draws_are_independent():
    """Place and environment, one transition and the next, one batch and the next."""
    life = Life(4, 3, 2, ends=0).live(2)
    first = numbers(life.draw(20_000).obs)
    pairs = np.unique(first[:-1] * 12 + first[1:], return_counts=True)[1]
    assert len(pairs) == 144 and stats.chisquare(pairs).pvalue > 1e-3
    np.testing.assert_array_equal(first, numbers(life.draw(20_000).obs))
    assert 0.05 < (first == numbers(life.draw(20_000, seed=1).obs)).mean() < 0.12


LIVES = [(8, 4, 1), (8, 4, 2), (8, 4, 5), (6, 2, 7), (3, 3, 4)]


@pytest.mark.parametrize(("slots", "length", "rollouts"), LIVES)
@pytest.mark.parametrize(("n", "lost"), [(1, 0.0), (2, 0.0), (3, 0.0), (3, 0.3)])
def test_transitions_of_n_steps(n, lost, slots, length, rollouts):
    """Each of them by its definition: ends cut it short, and so does a step that was left out; the newest steps never go on
    with the oldest."""
    life = Life(slots, 2, length, ends=0.4, lost=lost).live(rollouts)
    for discount in (0.9, 0.5):
        batch = life.draw(400, n, discount)
        known = {
            steps[i].obs: (steps[i].action, *life.transition(steps, i, n, discount)) for steps, i in life.starts(n)
        }
        assert set(numbers(batch.obs)) == set(known)
        for number, *got in zip(numbers(batch.obs), *batch[1:], strict=True):
            action, reward, next_obs, weight = known[number]
            np.testing.assert_array_equal(got[0], action.astype(np.float32))
            np.testing.assert_allclose(got[1], reward, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(got[3], weight, rtol=1e-6)
            if weight:
                np.testing.assert_array_equal(got[2], numbered(next_obs) % 251)


@pytest.mark.parametrize(("slots", "length", "rollouts"), LIVES)
@pytest.mark.parametrize(("n", "lost"), [(1, 0.0), (2, 0.3)])
def test_stacked_frames(n, lost, slots, length, rollouts):
    """Each step with the last three observations of its episode; before the first one, that one. What has been overwritten
    belongs to no transition."""
    frames = 3
    life = Life(slots, 2, length, ends=0.4, lost=lost).live(rollouts)
    known = {}
    for steps, i in life.starts(n):
        gone = life.gone(steps)
        if (gone or len(steps) == slots) and i < gone + frames - 1:
            continue
        last = next((k for k in range(i, i + n) if steps[k].terminated or steps[k].truncated), i + n - 1)
        after = None if steps[last].terminated else [*seen(steps, last, frames)[1:], steps[last].next_obs]
        known[steps[i].obs] = seen(steps, i, frames), after
    assert known or frames + n > slots + 1
    if not known:
        return
    batch = life.draw(400, n, frames=frames)
    assert set(numbers(batch.obs[:, -2:])) == set(known)
    for now, after in zip(batch.obs, batch.next_obs, strict=True):
        before, expected = known[int(now[-2])]
        np.testing.assert_array_equal(now, np.concatenate([numbered(number) for number in before]))
        if expected:
            np.testing.assert_array_equal(after, np.concatenate([numbered(number) % 251 for number in expected]))


def seen(steps: list[Step], i: int, frames: int) -> list[int]:
    """The numbers of the last observations of the episode that step i belongs to."""
    first = next((k for k in range(i, 0, -1) if steps[k - 1].terminated or steps[k - 1].truncated), 0)
    return [steps[max(i - k, first)].obs for k in range(frames - 1, -1, -1)]


def test_the_cases_above_hold_every_kind_of_end():
    """A termination and a truncation, at the first step and at a later one, and none at all."""
    met = set()
    for slots, length, rollouts in LIVES:
        for steps, i in Life(slots, 2, length, ends=0.4).live(rollouts).starts(3):
            ends = [(min(k, 1), s.terminated) for k, s in enumerate(steps[i : i + 3]) if s.terminated or s.truncated]
            met.add(ends[0] if ends else None)
    assert met == {None, (0, True), (0, False), (1, True), (1, False)}


@pytest.mark.slow
def test_both_ends_at_once_are_a_termination():
    life = Life(2, 1, 2, ends=0).live(1)
    both = jnp.ones((2, 1), bool)
    life.memory = life.memory._replace(steps=life.memory.steps._replace(terminated=both, truncated=both))
    np.testing.assert_array_equal(life.draw(40, 2).bootstrap, 0)


def test_a_discount_of_zero():
    life = Life(6, 1, 3, ends=0.5).live(2)
    batch = life.draw(40, 3, discount=0.0)
    first = {step.obs: step.reward for step in life.past[0]}
    np.testing.assert_array_equal(batch.reward, [np.float32(first[number]) for number in numbers(batch.obs)])
    np.testing.assert_array_equal(batch.bootstrap, 0)


def test_another_discount_holds_for_old_steps():
    """What is stored does not know of it."""
    life = Life(6, 2, 3, ends=0).live(2)
    low, high = life.draw(100, 2, 0.5), life.draw(100, 2, 1.0)
    assert same((low.obs, low.next_obs), (high.obs, high.next_obs))
    np.testing.assert_array_equal(low.bootstrap, 0.25)
    np.testing.assert_array_equal(high.bootstrap, 1)
    rewards = {step.obs: step.reward for past in life.past for step in past}
    second = np.array([rewards[number + 2] for number in numbers(low.obs)])  # two environments: the next but one
    np.testing.assert_allclose(high.reward - low.reward, second / 2, rtol=1e-4, atol=1e-6)
