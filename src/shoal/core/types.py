"""The vocabulary of training: steps, rollouts, members, agents, populations, learners.

Axes in every docstring: N members of a shard, T time, B environments per member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.space import Range, declared

Array = Any  # of JAX where it is on the device, of NumPy where it is not
PyTree = Any
Hyper = Any  # a NamedTuple of float32 numbers, one class per agent; in a population every leaf is [N]
Metrics = dict[str, Array]  # by name: a number each, of a population [N] each


# --------------------------------------------------------------------------------------- environments


class TimeStep(NamedTuple):
    """One step of an environment. `obs` is the observation to act on next: that of a new episode where one has ended."""

    obs: PyTree
    reward: Array  # NaN where reward or observation were not finite in float32; the episode is then truncated
    terminated: Array
    truncated: Array
    final_obs: PyTree  # the observation before the automatic reset; equal to `obs` inside an episode


class Rollout(NamedTuple):
    """T steps in B environments of one member; every leaf is [T, B, ...], those of `carry` [B, ...]."""

    obs: PyTree
    action: Array
    reward: Array
    next_obs: PyTree  # before the automatic reset; () for an agent with a `value`
    terminated: Array
    truncated: Array
    extras: PyTree  # what `act` returned for `update`, such as log-probabilities
    bootstrap_value: Array = ()  # its value for such an agent where an episode is truncated or outlasts the rollout; else 0
    carry: PyTree = ()  # the recurrent state before the first step


class RunProgress(NamedTuple):
    """Progress of a run before an interval. All three are float32 and have the same unit."""

    done: Array
    per_iteration: Array  # added by each iteration of the interval
    total: Array


START = RunProgress(np.float32(0), np.float32(0), np.float32(1))  # a run that is at its start and stays there


# --------------------------------------------------------------------------------------------- agents


class Member(NamedTuple):
    """The state of one member, by what a child copies of it."""

    learned: PyTree  # copied to a child: parameters, targets, optimiser state, temperature, statistics
    replay_buffer: PyTree  # `()` when there is none: copied only when the experiment says so
    own: PyTree  # never copied: state that belongs to this member's own environments, such as running sums


def _same(state: PyTree, *_: Any) -> PyTree:
    return state


class Agent(NamedTuple):
    """The algorithm of one member, as pure functions. None of them depends on the population.

    init:   (key, hyper) -> Member
    act:    (learned, hyper, obs [B, ...], carry, key) -> (action [B, ...], carry, extras)
    act_deterministic: (learned, obs [B, ...], carry) -> (action [B, ...], carry); obs may lack keys that are not in
        `observation_keys`
    update: (member, hyper, rollout, key) -> (member, metrics), metrics being a flat dict of float32 scalars
    carry:  (batch shape) -> the recurrent state at the start of an episode; `()`: none
    hyper:  default values, of a class that may say what is known of each: `shoal.core.space`
    rollout_length, num_envs: T and B, the steps and the environments of one iteration
    limit_overrides: (lowest, highest) value of a hyperparameter, instead of those of its declaration
    learning_starts: environment steps of a member before its first update
    off_policy: it can learn from the steps of older weights, so that acting need not wait for learning
    value:  (learned, obs [B, ...], carry) -> float32 [B], of an agent that needs no more of the observations that follow
        its steps: rollouts keep these values where episodes are truncated and after their last step, and no such
        observation; where two players take turns, the value of player 0
    networks: the networks of the agent, for learners that train them themselves, such as those of CEM-RL and DvD
    end_episodes: (member) -> the member with its unfinished episodes ended. Called where a run resumes with new episodes:
        the newest steps of a replay buffer become the last ones of theirs, and sums over an episode begin at zero
    observation_keys: keys of dictionary observations that `act_deterministic` needs, in the order in which they are
        concatenated; () for all
    probabilities: (learned, obs [B, ...]) -> float32 [B, choices], those of its actions, of an agent that can play games
    """

    init: Callable[..., Member]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    act_deterministic: Callable[..., tuple[Array, PyTree]]
    update: Callable[..., tuple[Member, Metrics]]
    carry: Callable[[tuple[int, ...]], PyTree]
    hyper: Hyper
    rollout_length: int
    num_envs: int
    limit_overrides: dict[str, tuple[float, float]] = {}  # noqa: RUF012 (never changed)
    learning_starts: int = 0
    off_policy: bool = False
    value: Callable[..., Array] | None = None
    networks: Any = None
    end_episodes: Callable[[PyTree], PyTree] = _same
    observation_keys: tuple[str, ...] = ()
    probabilities: Callable[..., Array] | None = None

    @property
    def space(self) -> dict[str, Range]:
        """The ranges that PBT tunes by default."""
        return {name: number.tuned for name, number in declared(type(self.hyper)).items() if number.tuned is not None}

    @property
    def limits(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest possible value of each hyperparameter that says so."""
        return {name: (x.least, x.most) for name, x in declared(type(self.hyper)).items()} | self.limit_overrides


class Tunable(Protocol):
    """Something with hyperparameters: an agent, or external trainers. As in `Agent`."""

    @property
    def hyper(self) -> Hyper: ...

    @property
    def space(self) -> dict[str, Range]: ...

    @property
    def limits(self) -> dict[str, tuple[float, float]]: ...


class Population(NamedTuple):
    """N members; every leaf but those of `shared` has the leading axis N."""

    members: Member
    shared: PyTree
    hyper: Hyper
    env_parameters: dict[str, Array] = {}  # noqa: RUF012  of the environments that they train in; no agent sees them


class Learner(NamedTuple):
    """An agent for a population of gradient-trained members: the functions of `Agent`, with a leading axis N.

    init:   (key, uid [N], hyper [N]) -> Population
    act:    (population, obs [N, B, ...], carry, keys [N]) -> (action, carry, extras)
    act_deterministic: (population, obs [N, B, ...], carry) -> (action, carry)
    update: (population, rollout [N, T, B, ...], keys [N]) -> (population, metrics [N])
    value:  (population, obs [N, B, ...], carry) -> [N, B], where the agent has a `value`
    together: members learn from one another, so that all must be on one device
    """

    init: Callable[..., Population]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    act_deterministic: Callable[..., tuple[Array, PyTree]]
    update: Callable[..., tuple[Population, Metrics]]
    agent: Agent
    together: bool = False
    value: Callable[..., Array] | None = None


class SearchLearner(NamedTuple):
    """An agent for a population that is sampled anew in every generation, around one policy: the mean.

    Members learn from the episodes that measure them, and a generation leaves behind a new mean. A shard of N members
    measures rows 0 to N - 1, its members; row N, the mean; and rows above, which fill up and do not count.

    init, act, act_deterministic, together: as those of `Learner`
    actors:    (population, rows [R], uid [R], key) -> what the policies at rows have learned, uid being their members';
        a whole number of pairs, where an even uid stands before the next one
    tell:      (population, uid [M], weights [M], key) -> (population, metrics, each a scalar): the step of the mean that
        an evolver's weights ask for; M members of all shards in order of uid, the key that has sampled them
    mean:      (population) -> what the mean has learned
    with_mean: (population, learned) -> population, whose mean has just begun, and now has learned this
    chunk:     rows that a device measures at a time
    stored:    `draw` puts the members into the population; else `actors` derives them from the key when they are needed
    draw:      (population, uid [N], key) -> population: the members of a generation
    improve:   (population, key) -> (population, metrics [N]): one update of members before they are measured
    updates:   (hyper [N], steps so far, steps of the last generation) -> how many of them; plain numbers
    watches:   `watch` learns from steps; host environments call it only then, as each call takes time
    watch:     (shared, rows [R], step, alive [R, E]) -> shared, updated with one step of R policies in E episodes each, a
        Rollout of leaves [R, E, ...]; rows counted from the mean: members are below 0
    cap:       (hyper [N]) -> steps after which an episode is ended; plain numbers
    pairs:     members 2k and 2k + 1 are sampled together, so that both must be on one device
    """

    init: Callable[..., Population]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    act_deterministic: Callable[..., tuple[Array, PyTree]]
    agent: Agent
    actors: Callable[..., PyTree]
    tell: Callable[..., tuple[Population, Metrics]]
    mean: Callable[[Population], PyTree]
    with_mean: Callable[[Population, PyTree], Population]
    chunk: int
    stored: bool = False
    draw: Callable[..., Population] = _same
    improve: Callable[..., tuple[Population, Metrics]] = lambda population, key: (population, {})
    updates: Callable[..., int] = lambda hyper, steps, last: 0
    watches: bool = False
    watch: Callable[..., PyTree] = _same
    cap: Callable[[Hyper], int] = lambda hyper: 2**31 - 1
    pairs: bool = False
    together: bool = False


AnyLearner = Learner | SearchLearner
