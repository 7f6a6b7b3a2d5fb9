"""Episodes: statistics of those that members train in, and what all whole ones without learning have in common."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import jax_key
from shoal.core.population import Seed
from shoal.core.types import AnyLearner, Metrics, Population, PyTree, Rollout, RunProgress
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.acting import Policy
from shoal.members.devices import DeviceLayout
from shoal.members.protocol import Outcome

NOISE = "fitness/noise"  # see `noise`


class EpisodeSums(NamedTuple):
    """Episodes of N members, summed up: how many, mean return, sum of squared deviations, mean length; each [N]."""

    episodes: Any
    mean: Any
    squares: Any
    length: Any


class PlayedEpisodes(NamedTuple):
    """Whole episodes of N members: their value by each measure, and their length; [N, E] each."""

    values: tuple[Any, ...]
    lengths: Any


class Interval(NamedTuple):
    """One interval: `iterations` times a rollout and an update, `chunk` of them per call of a compiled program.

    pause: called with each call's result and the iterations done; it may wait, show progress, or raise
    progress: of the run before it, which schedules follow
    """

    iterations: int
    chunk: int
    pause: Callable[[Any, float], None]
    progress: RunProgress


class TrainedInterval(NamedTuple):
    """Result of an interval.

    metrics: [N], averaged over iterations
    returns: of the episodes that ended
    fitness: of the same episodes, what fitness may be made of, which differs where there is an objective
    """

    population: Population
    metrics: Metrics
    returns: EpisodeSums
    fitness: EpisodeSums


class Progress(NamedTuple):
    """The episodes under way, each [N, B]: return and length so far, and whether they count.

    An episode that began with weights which a copy has overwritten does not count: it measures the member's old weights.
    """

    total: Any
    length: Any
    counts: Any


def no_episodes(xp: Any, members: int) -> EpisodeSums:
    """No episodes; `xp` is NumPy or jax.numpy."""
    zeros = xp.zeros(members, np.float32)
    return EpisodeSums(zeros, zeros, zeros, zeros)


def begin(xp: Any, members: int, environments: int) -> Progress:
    """Every environment at the start of an episode."""
    zeros = xp.zeros((members, environments), np.float32)
    return Progress(zeros, zeros, xp.ones((members, environments), bool))


def advance(xp: Any, progress: Progress, reward: Any, done: Any) -> tuple[Progress, Any, Any, Any]:
    """One step of [N, B] environments.

    Returns progress; return and length so far [N, B]; and where an episode ended that counts, bool [N, B].
    """
    total, length = progress.total + reward, progress.length + np.float32(1)
    counted = done & progress.counts
    zero = np.float32(0)
    after = Progress(xp.where(done, zero, total), xp.where(done, zero, length), progress.counts | done)
    return after, total, length, counted


def disown(progress: Progress, copied: np.ndarray) -> np.ndarray:
    """New `counts` [N, B] after copies: episodes under way of members that were overwritten (`copied` [N]) do not count."""
    return np.asarray(progress.counts) & ~(copied[:, None] & (np.asarray(progress.length) > 0))


def forget(carry: PyTree, fresh: PyTree, copied: np.ndarray) -> PyTree:
    """Recurrent states [N, B, ...] after copies: `fresh` where not finite and the member was overwritten (`copied`)."""
    if not jax.tree.leaves(carry):
        return carry
    lost = ~np.asarray(tree.finite(carry, 2)) & copied[:, None]
    return jax.tree.map(np.asarray, tree.where(jnp.asarray(lost), fresh, carry))


def broken(rollout: Rollout) -> jax.Array:
    """The share [N] of steps in which reward or observation were not finite."""
    return jnp.isnan(rollout.reward).mean((1, 2), dtype=jnp.float32)


def merge(xp: Any, outcome: EpisodeSums, value: Any, length: Any, counted: Any) -> EpisodeSums:
    """Add the finished episodes [T, N, B] that `counted` marks (Chan et al. 1979: exact for any split of the episodes)."""
    mask = counted.astype(np.float32)
    n = mask.sum((0, 2))
    divisor = xp.maximum(n, np.float32(1))
    mean = xp.where(counted, value, np.float32(0)).sum((0, 2)) / divisor
    squares = xp.where(counted, xp.square(value - mean[None, :, None]), np.float32(0)).sum((0, 2))
    lengths = xp.where(counted, length, np.float32(0)).sum((0, 2)) / divisor
    total = xp.maximum(outcome.episodes + n, np.float32(1))
    delta = mean - outcome.mean
    return EpisodeSums(
        outcome.episodes + n,
        outcome.mean + delta * n / total,
        outcome.squares + squares + delta * delta * outcome.episodes * n / total,
        outcome.length + (lengths - outcome.length) * n / total,
    )


def no_metrics(xp: Any, names: Iterable[str], members: int) -> dict[str, Any]:
    """Sum and count of each metric, [N, 2]."""
    return {name: xp.zeros((members, 2), np.float32) for name in names}


def add_metrics(xp: Any, sums: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Add the metrics [N] of one iteration; NaN where there was nothing to measure."""
    seen = {name: ~xp.isnan(x) for name, x in metrics.items()}
    new = {name: (xp.where(seen[name], x, np.float32(0)), seen[name]) for name, x in metrics.items()}
    return {name: sums[name] + xp.stack([total, count.astype(np.float32)], -1) for name, (total, count) in new.items()}


def mean_metrics(sums: Metrics) -> Metrics:
    """Means [N] over the iterations in which there was something to measure; NaN where there were none."""
    totals = {name: np.asarray(x) for name, x in sums.items()}
    none = np.float32(np.nan)
    return {
        name: np.divide(x[:, 0], x[:, 1], out=np.full(len(x), none), where=x[:, 1] > 0) for name, x in totals.items()
    }


def summarise(value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sample standard deviation and number [N] of the returns [N, E], in float64.

    The standard deviation is NaN for fewer than two; both are NaN where a return of the member is not finite.
    """
    value = np.where(np.isfinite(value), np.asarray(value, np.float64), np.nan)
    count = np.full(len(value), value.shape[1])
    std = value.std(1, ddof=1) if value.shape[1] > 1 else np.full(len(value), np.nan)
    return value.mean(1), std, count


def noise(value: np.ndarray) -> Metrics:
    """The difference between the means of two halves of the returns [N, E], scaled so that its variance between members is,
    in expectation, the part of the variance of fitness that is luck of so few episodes.

    Members play the same episodes: where these are easier in one half, it shifts the metric of all members alike. NaN for
    fewer than two episodes, and where a return of the member is not finite.
    """
    value = np.where(np.isfinite(value), np.asarray(value, np.float64), np.nan)
    first, second = value[:, ::2], value[:, 1::2]
    if not second.size:
        return {NOISE: np.full(len(value), np.nan)}
    share = (first.shape[1] * second.shape[1]) ** 0.5 / value.shape[1]  # as fitness is a mean of both
    return {NOISE: share * (first.mean(1) - second.mean(1))}


def of_levels(train: np.ndarray, validation: np.ndarray) -> Metrics:
    """Metrics [N] of mean returns on levels that were trained on, and on others; the gap between them."""
    both = {"train": train, "validation": validation, "gap": train - validation}
    return {f"levels/{name}": np.asarray(x, np.float32) for name, x in both.items()}


def statistics(returns: np.ndarray) -> dict[str, Any]:
    """Mean, standard error and number of the finite returns [E]: an episode that was broken has none. None where these are
    too few for it."""
    finite = np.asarray(returns, np.float64)[np.isfinite(returns)]
    n = len(finite)
    with np.errstate(over="ignore", invalid="ignore"):  # trainers may return numbers whose squares are infinite
        mean_and_error = {
            "mean": finite.mean() if n else np.nan,
            "standard_error": finite.std(ddof=1) / n**0.5 if n > 1 else np.nan,
        }
    return {name: float(x) if np.isfinite(x) else None for name, x in mean_and_error.items()} | {"episodes": n}


def with_interval(found: dict[str, Any]) -> dict[str, Any]:
    """Return the `statistics` with the 95 % confidence interval [low, high] of the mean."""
    error = found["standard_error"]
    interval = None if error is None else [found["mean"] - 1.96 * error, found["mean"] + 1.96 * error]
    return found | {"interval": interval}


class WholeEpisodes(ABC):
    """Whole episodes of N members, without learning: what those on the device and on the host have in common."""

    def __init__(self, environment: Any, learner: AnyLearner, layout: DeviceLayout, evaluation: EvaluationConfig):
        self._environment, self._learner, self._layout = environment, learner, layout
        self._evaluation = evaluation

    @abstractmethod
    def evaluate(self, population: Population, keys: jax.Array, levels: str, pause: Callable) -> PlayedEpisodes:
        """Play whole episodes without learning; keys [N, E], one per episode.

        levels: their purpose, where there are levels
        """

    def play(
        self,
        acting: Callable[[Sequence[Policy]], Population],
        policies: Sequence[Policy],
        key: Seed,
        episodes: int,
        shape: tuple[int, int],
        levels: str,
        pause: Callable,
    ) -> Outcome:
        """Let K policies play new episodes, the same for each: see `Tester.test`.

        acting: gives members that act by some policies
        shape: how many members play at a time, and how many episodes each: where there are fewer policies than members,
            these share the episodes of a policy
        """
        members, at_a_time = shape
        parts = -(-episodes // at_a_time)
        turns = [(policy, part) for policy in policies for part in range(parts)]
        idle = -len(turns) % members  # one program has so many members: these play episodes that do not count
        turns += [(policies[-1], parts + i) for i in range(idle)]
        keys = jax.random.split(jax_key(key), (parts + idle) * at_a_time).reshape(-1, at_a_time)
        results = list[tuple[np.ndarray, ...]]()
        for first in range(0, len(turns), members):
            who, which = zip(*turns[first : first + members], strict=True)
            values, lengths = self.evaluate(acting(who), keys[np.array(which)], levels, pause)
            results.append((lengths, *values))
        every = (np.concatenate(x)[: len(turns) - idle] for x in zip(*results, strict=True))
        steps, *measured = (x.reshape(len(policies), -1)[:, :episodes] for x in every)
        returns, *tie_breaker = (x.astype(np.float64) for x in measured)
        return Outcome(returns, int(steps.sum(dtype=np.int64)), *tie_breaker)

    def sibling(self) -> Self:
        """Return episodes for other members, with the same programs and, on the host, their own simulators."""
        return copy.copy(self)

    def state(self) -> PyTree:
        """State for a checkpoint: nothing, as every evaluation begins new episodes, and simulators on the host cannot
        be saved."""
        return ()

    def restore(self, state: PyTree) -> None:  # noqa: B027
        """Continue from a `state`."""

    def close(self) -> None:  # noqa: B027
        """Close the simulators, where there are some."""
