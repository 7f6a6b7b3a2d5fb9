"""The types that the parts of Shoal exchange.

Axes in every docstring: N members of a shard, M visible members, T time, B environments per member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Array = Any  # of JAX where it is on the device, of NumPy where it is not
PyTree = Any
Hyper = Any  # a NamedTuple of float32 numbers, one class per agent; in a population every leaf is [N]


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
    next_value: Array = ()  # its value for such an agent, where an episode is truncated or goes on after the rollout; else 0
    carry: PyTree = ()  # what the agent remembered before the first step


# --------------------------------------------------------------------------------------------- agents


class Member(NamedTuple):
    """The state of one member, by what a child copies of it."""

    learned: PyTree  # copied to a child: parameters, targets, optimiser state, temperature, statistics
    memory: PyTree  # replay memory, `()` when there is none: copied only when the experiment says so
    own: PyTree  # never copied: running sums that belong to this member's own environments


def _same(state: PyTree, *_: Any) -> PyTree:
    return state


class Agent(NamedTuple):
    """The algorithm of one member, as pure functions. None of them depends on the population.

    init:   (key, hyper) -> Member
    act:    (learned, hyper, obs [B, ...], carry, key) -> (action [B, ...], carry, extras)
    greedy: (learned, obs [B, ...], carry) -> (action [B, ...], carry); obs may lack what is not in `sees`
    update: (member, hyper, rollout, key) -> (member, metrics), metrics being a flat dict of float32 scalars
    carry:  (batch shape) -> what the agent remembers from step to step, as it is at the start of an episode; `()`: nothing
    hyper:  default values; space: the ranges that PBT tunes by default
    rollout, environments: T and B, the steps and the environments of one iteration
    limits: (lowest, highest) possible value of a hyperparameter, where there are such limits
    warm_up: environment steps of a member before its first update
    off_policy: it can learn from the steps of older weights, so that acting need not wait for learning
    value:  (learned, obs [B, ...], carry) -> float32 [B], of an agent that needs no more of the observations that follow
        its steps: rollouts keep these values where episodes are truncated and after their last step, and no such observation
    parts: what learners made for this agent need of it, such as its networks
    cut: (memory) -> memory whose newest steps end their episodes, as the next ones to be stored are of others
    weights: the fields of `learned` that are weights of networks, which some methods mix with fresh ones
    sees: the keys that `greedy` needs of observations that are dictionaries, in the order in which they are put together;
        () is all
    """

    init: Callable[..., Member]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    greedy: Callable[..., tuple[Array, PyTree]]
    update: Callable[..., tuple[Member, dict[str, Array]]]
    carry: Callable[[tuple[int, ...]], PyTree]
    hyper: Hyper
    space: dict[str, Range]
    rollout: int
    environments: int
    limits: dict[str, tuple[float, float]] = {}  # noqa: RUF012 (never changed)
    warm_up: int = 0
    off_policy: bool = False
    value: Callable[..., Array] | None = None
    parts: Any = None
    cut: Callable[[PyTree], PyTree] = _same
    weights: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()


class Tunable(Protocol):
    """What has hyperparameters: an agent, or the trainers of other people. Fields as those of `Agent`."""

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
    knobs: dict[str, Array] = {}  # noqa: RUF012  of the environments that they train in; no agent sees them


class Learner(NamedTuple):
    """An agent for a population whose members live on: the functions of `Agent`, with a leading axis N.

    init:   (key, uid [N], hyper [N]) -> Population
    act:    (population, obs [N, B, ...], carry, keys [N]) -> (action, carry, extras)
    greedy: (population, obs [N, B, ...], carry) -> (action, carry)
    update: (population, rollout [N, T, B, ...], keys [N]) -> (population, metrics [N])
    value:  (population, obs [N, B, ...], carry) -> [N, B], where the agent has a `value`
    together: members learn from one another, so that all must be on one device
    """

    init: Callable[..., Population]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    greedy: Callable[..., tuple[Array, PyTree]]
    update: Callable[..., tuple[Population, dict[str, Array]]]
    agent: Agent
    together: bool = False
    value: Callable[..., Array] | None = None


class SearchLearner(NamedTuple):
    """An agent for a population that is drawn anew in every generation, around one policy: the mean.

    Members learn from the episodes that measure them, and a generation leaves behind a new mean. A shard of N members
    measures rows 0 to N - 1, its members; row N, the mean; and rows above, which fill up and do not count.

    init, act, greedy, together: as those of `Learner`
    actors:    (population, rows [R], uid [R], key) -> what the policies at rows have learned, uid being their members';
        a whole number of pairs, where an even uid stands before the next one
    recombine: (population, uid [M], weights [M], key) -> (population, metrics, scalars): the step of the mean that an
        evolver's weights ask for; M members of all shards in order of uid, the key that has drawn them
    mean:      (population) -> what the mean has learned
    teach:     (population, learned) -> population, whose mean has just begun, and now has learned this
    chunk:     rows that a device measures at a time
    stored:    `draw` puts the members into the population; else `actors` derives them from the key when they are needed
    draw:      (population, uid [N], key) -> population: the members of a generation
    improve:   (population, key) -> (population, metrics [N]): one update of members before they are measured
    updates:   (hyper [N], steps so far, steps of the last generation) -> how many of them; plain numbers
    watches:   `watch` learns from steps; host environments call it only then, as each call takes time
    watch:     (shared, rows [R], step, alive [R, E]) -> shared, updated with one step of R policies in E episodes each, a
        Rollout of leaves [R, E, ...]; rows counted from the mean: members are below 0
    cap:       (hyper [N]) -> steps after which an episode is ended; plain numbers
    pairs:     members 2k and 2k + 1 are drawn together, so that both must be on one device
    """

    init: Callable[..., Population]
    act: Callable[..., tuple[Array, PyTree, PyTree]]
    greedy: Callable[..., tuple[Array, PyTree]]
    agent: Agent
    actors: Callable[..., PyTree]
    recombine: Callable[..., tuple[Population, dict[str, Array]]]
    mean: Callable[[Population], PyTree]
    teach: Callable[[Population, PyTree], Population]
    chunk: int
    stored: bool = False
    draw: Callable[..., Population] = _same
    improve: Callable[..., tuple[Population, dict[str, Array]]] = lambda population, key: (population, {})
    updates: Callable[..., int] = lambda hyper, steps, last: 0
    watches: bool = False
    watch: Callable[..., PyTree] = _same
    cap: Callable[[Hyper], int] = lambda hyper: 2**31 - 1
    pairs: bool = False
    together: bool = False


# ---------------------------------------------------------------------------------- hyperparameters


@dataclass(frozen=True)
class Range:
    """The range of a hyperparameter, and the scale in which it is sampled and perturbed.

    low, high: bounds, both included
    scale:     linear; log (values over decades, low > 0); one_minus_log (discounts and traces: 1 - x over decades)
    integer:   whole numbers only
    choices:   instead of bounds: the only values allowed
    ordered:   choices have an order, so that a perturbation changes to a neighbour
    start:     the first value of every member; by default each has a random one from the range
    """

    low: float | None = None
    high: float | None = None
    scale: Literal["linear", "log", "one_minus_log"] = "linear"
    integer: bool = False
    choices: tuple[float, ...] | None = None
    ordered: bool = False
    start: float | None = None


# ------------------------------------------------------------------------------------------ evolution


class Cards(NamedTuple):
    """The data of M members that selection uses. About a hundred bytes each; NumPy, so that any trainer can make them."""

    uid: np.ndarray  # int64 [M], the number of a member, which never changes
    generation: np.ndarray  # int64 [M]
    steps: np.ndarray  # int64 [M], environment steps trained
    fitness: np.ndarray  # float64 [M], always maximised; NaN: diverged, or not measured
    deviation: np.ndarray  # float64 [M], sample standard deviation of the episodes behind the fitness, NaN below two
    episodes: np.ndarray  # int64 [M], the number of these episodes
    hyper: dict[str, np.ndarray]  # float32 [M] each
    shape: np.ndarray  # int64 [M], equal for members whose weights have equal shapes

    def take(self, rows: np.ndarray) -> Cards:
        """The cards of some members."""
        fields = {name: x[rows] for name, x in self._asdict().items() if name != "hyper"}
        return Cards(**fields, hyper={name: values[rows] for name, values in self.hyper.items()})


@dataclass(frozen=True)
class Best:
    """The highest fitness so far; of equal ones the latest, which has trained longest."""

    learned: PyTree = None
    uid: int = -1
    generation: int = -1
    fitness: float = -np.inf
    hyper: dict[str, float] = field(default_factory=dict)

    def beaten_by(self, cards: Cards) -> int | None:
        """The row of the best of these members if it is at least as good, else None."""
        fitness = np.where(np.isfinite(cards.fitness), cards.fitness, -np.inf)
        row = int(np.argmax(fitness))
        return row if np.isfinite(fitness[row]) and fitness[row] >= self.fitness else None

    def about(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"uid": self.uid, "generation": self.generation, "fitness": self.fitness, "hyper": self.hyper}


class Selection(NamedTuple):
    """What a selector decides for N members.

    parents: int64 [N], a row of the cards for each member; its own row: it keeps its weights
    explore: bool [N], the members whose hyperparameters are perturbed
    """

    parents: np.ndarray
    explore: np.ndarray


class Decision(NamedTuple):
    """What an evolver decides for N members that live on: whom they copy."""

    parents: np.ndarray  # int64 [N], rows of the cards; its own row: a member keeps its weights
    hyper: dict[str, np.ndarray]  # float32 [N] each
    metrics: Mapping[str, float] = MappingProxyType({})  # to be recorded
    # By row, those of the N members that begin anew, and of which shares of inherited and of fresh weights. All else is
    # inherited; where the first share is 0, it is fresh too.
    renewed: Mapping[int, tuple[float, float]] = MappingProxyType({})


class Recombination(NamedTuple):
    """What an evolver decides where members are drawn around a mean: what each of all M weighs in the next mean."""

    weights: np.ndarray  # float32 [M], in the order of the cards
    hyper: dict[str, np.ndarray]  # float32 [N] each
    metrics: Mapping[str, float] = MappingProxyType({})  # to be recorded


Seed = tuple[int, ...]  # (seed, generation, purpose, ...): all random numbers of evolution derive from one


class Select(Protocol):
    """`cards` of the M visible members; `mine` int64 [N], the rows of the members to decide for."""

    def __call__(self, key: Seed, cards: Cards, mine: np.ndarray) -> Selection: ...


class Explore(Protocol):
    """`hyper` float32 [N] each, as inherited; `uid` int64 [N] keys each member's random numbers. Returns new values."""

    def __call__(
        self, key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray
    ) -> dict[str, np.ndarray]: ...


class Evolver(NamedTuple):
    """The decisions between generations. They depend on cards, never on agents.

    init:   (key, uid [N]) -> (state, hyper): the first hyperparameters, float32 [N] each; state: arrays to be saved
    decide: (key, state, cards [M], mine [N]) -> (state, Decision), or Recombination with a SearchLearner
    """

    init: Callable[..., tuple[PyTree, dict[str, np.ndarray]]]
    decide: Callable[..., tuple[PyTree, Decision | Recombination]]


# ----------------------------------------------------------------------------------------- processes


class Route(NamedTuple):
    """The state of the member at `row` of the cards goes from one process to another."""

    row: int
    source: int
    destination: int


class Exchange(Protocol):
    """Communication between the processes of a run; all of them make the same calls in the same order.

    rank, size: which process this is, of how many. neighbour: the same among those on this machine; sharer: among those
    of them that may run on the same cores.
    """

    rank: int
    size: int
    neighbour: tuple[int, int]
    sharer: tuple[int, int]

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """float64 [n, C] of every process, one below the other: [sum of n, C]."""

    def broadcast(self, text: str) -> str:
        """The `text` of process 0."""

    def move(self, routes: Sequence[Route], provide: Callable[[int], np.ndarray], size: int) -> dict[int, np.ndarray]:
        """Send and receive states. The same `routes` in all processes; `provide`: row -> a state to send, uint8 [size].

        Returns the received states, by row.
        """

    def fail(self, message: str, code: int) -> None:
        """End all processes with this message and exit code."""
