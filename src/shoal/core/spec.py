"""Specs: the observations and actions of an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

ACTOR, CRITIC = "state", "privileged_state"  # keys of observations: for policies, and for critics
MASK = "action_mask"  # key of observations that says which choices are legal: not 0, of each choice of each action
# Key of observations that says whose turn it is, 0 or 1; player 0 gets the reward, which player 1 loses.
PLAYER = "player"


@dataclass(frozen=True)
class Discrete:
    """One choice out of `n`; an action is an int32 scalar. The environment counts from `start`, agents from 0."""

    n: int
    shape: tuple[int, ...] = ()
    start: int = 0
    dtype: ClassVar[str] = "int32"
    native: ClassVar[str] = "int32"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several independent choices; an action is an int32 vector [len(nvec)]. `start`: as for one, of each or of all."""

    nvec: tuple[int, ...]
    start: int | tuple[int, ...] = 0
    dtype: ClassVar[str] = "int32"
    native: ClassVar[str] = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)


@dataclass(frozen=True)
class Box:
    """A float32 vector within bounds, as gymnasium's Box; each bound is a tuple [A], and an infinite one is an open end.

    native: the dtype that the environment itself takes; with one of integers, it gets integers
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    native: str = "float32"
    dtype: ClassVar[str] = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)


ActionSpace = Discrete | MultiDiscrete | Box


@dataclass(frozen=True)
class Leaf:
    """Shape and dtype of an array that is an observation, or one of a dictionary of them."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


@dataclass(frozen=True)
class Spec:
    """The shapes and types of an environment: all that an agent gets to know of it.

    obs_shape, obs_dtype: of an observation, such as (3,) and "float32"; where that is a dictionary of arrays, dictionaries
        with the same keys, or one dtype for all
    actor, critic: keys of such a dictionary: what policies and critics see where nobody says otherwise; () is all
    """

    obs_shape: Any
    obs_dtype: Any
    action: ActionSpace
    actor: tuple[str, ...] = ()
    critic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.obs_shape, Mapping):
            dtype = self.obs_dtype
            dtypes = dict.fromkeys(self.obs_shape, dtype) if isinstance(dtype, str) else dict(dtype)
            if dtypes.keys() != self.obs_shape.keys():
                raise ValueError(f"obs_shape has the keys {list(self.obs_shape)}, and obs_dtype {list(dtypes)}")
            object.__setattr__(self, "obs_shape", dict(self.obs_shape))
            object.__setattr__(self, "obs_dtype", dtypes)

    @property
    def obs(self) -> Leaf | dict[str, Leaf]:
        """An observation as a tree: one leaf, or a dictionary of them."""
        if not isinstance(self.obs_shape, dict):
            return Leaf(self.obs_shape, self.obs_dtype)
        return {key: Leaf(shape, self.obs_dtype[key]) for key, shape in self.obs_shape.items()}

    @property
    def masked(self) -> bool:
        """True where observations say which choices are legal."""
        return isinstance(self.obs_shape, dict) and MASK in self.obs_shape and not isinstance(self.action, Box)

    @property
    def turns(self) -> bool:
        """True where two players take turns, and observations say whose it is."""
        return self.masked and PLAYER in self.obs_shape


def each(function: Callable[..., Any], *observations: Any) -> Any:
    """Apply a function to each array by key where observations are dictionaries, else to the one array.

    The same of what belongs to them, such as shapes or spaces, which need not be leaves.
    """
    first = observations[0]
    if isinstance(first, Mapping):
        return {key: function(*(x[key] for x in observations)) for key in first}
    return function(*observations)


def actor_and_critic_keys(obs_shape: Any) -> dict[str, tuple[str, ...]]:
    """Find `actor` and `critic` of a `Spec` by the keys of its observations: robots of MuJoCo Playground, and others like
    them, have `state` for policies and `privileged_state` for critics. Nothing where there are no such keys.
    """
    both = isinstance(obs_shape, Mapping) and {ACTOR, CRITIC} <= obs_shape.keys()
    return {"actor": (ACTOR,), "critic": (CRITIC,)} if both else {}


def none_legal(obs: Any) -> Any:
    """Mark the observations [..., *] with an action mask, of NumPy or JAX, in which no choice is legal: bool [...]."""
    return ~obs[MASK].astype(bool).any(-1)


def describe(obs: Leaf | dict[str, Leaf]) -> str:
    """Describe shape and dtype of an observation, key by key where it is a dictionary."""
    return ", ".join(f"{key} {x}" for key, x in obs.items()) if isinstance(obs, dict) else str(obs)


def describe_actions(space: ActionSpace) -> str:
    """Describe the kind of actions, their number, and the bounds of continuous ones: one pair where all have the same."""
    if isinstance(space, Discrete):
        return f"discrete, {space.n} choices"
    if isinstance(space, MultiDiscrete):
        return f"multi-discrete, {' x '.join(map(str, space.nvec))} choices"
    bounds = list(dict.fromkeys(zip(space.low, space.high, strict=True)))
    within = f"[{bounds[0][0]:g}, {bounds[0][1]:g}]" if len(bounds) == 1 else "bounds of their own"
    return f"continuous, {space.shape} within {within}"
