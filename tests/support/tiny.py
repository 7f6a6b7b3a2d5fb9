"""Small things that several tests share: agents of every kind, an environment with honest ends, comparisons."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.probes import match

from shoal.agents.registry import AGENTS
from shoal.core.errors import BadInput
from shoal.core.spec import ActionSpace, Spec
from shoal.core.types import Agent
from shoal.environments.device import DeviceEnvironment
from shoal.methods import METHODS

ACTIONS = ("discrete", "multi_discrete", "continuous")
EVERY = {name: place for method in METHODS.values() for name, place in method.agents.items()}  # `policy` too

# The structure of a small agent: those of these settings that its Config knows.
SMALL = {"layers": (8,), "num_envs": 2, "rollout_length": 8, "num_minibatches": 2}
SMALL |= {"normalize_observations": True, "normalize_rewards": False}  # its own use of the discount would hide another
# Per agent: further settings, and hyperparameters under which every one of them has something to do.
REPLAY = {"buffer_size": 64, "learning_starts": 4, "batch_size": 16}
SETTINGS: dict[str, dict[str, Any]] = {"td3": REPLAY, "sac": REPLAY, "dqn": REPLAY}
# An agent that remembers its episodes, with the settings that make it so; here rewards are normalised, as is usual.
REMEMBERING = {"recurrent_ppo": ("ppo", {"lstm_hidden_size": 4, "frame_stack": 2, "normalize_rewards": True})}
LIVE: dict[str, dict[str, float]] = {
    "ppo": {"learning_rate": 0.03, "max_gradient_norm": 0.05},
    "td3": {"target_noise": 0.5, "noise_clip": 0.3},
    "sac": {},
    "dqn": {
        "max_gradient_norm": 0.05,
        "tau": 0.5,
        "target_update_interval": 2,
        "final_epsilon": 0.5,
        "epsilon_decay_updates": 20,
    },
}


def space_of(actions: str) -> ActionSpace:
    return match(actions).spec.action


def make_agent(
    name: str, actions: str = "discrete", obs: tuple[int, ...] = (2,), dtype: str = "float32", **settings: Any
) -> Agent:
    """A small agent for such observations and actions. Raises BadInput where it does not have them."""
    return agent_for(Spec(obs, dtype, space_of(actions)), name, **settings)


def agent_for(spec: Spec, name: str, **settings: Any) -> Agent:
    """The same for what an environment says of itself."""
    name, more = REMEMBERING.get(name, (name, {}))
    module, _, factory = EVERY[name].factory.partition(":")
    small = {k: v for k, v in SMALL.items() if k in known(name)} | SETTINGS.get(name, {}) | more | settings
    return getattr(importlib.import_module(module), factory)(spec, **small)


def known(name: str) -> set[str]:
    """The settings of an agent."""
    return {field.name for field in fields(EVERY[name].config)}


def echo() -> Agent:
    """An agent whose actions and values are what it sees, and which remembers how many steps it has made."""

    def act_deterministic(learned: Any, obs: Any, carry: Any) -> tuple[Any, Any]:
        return obs, carry + 1

    def act(learned: Any, hyper: Any, obs: Any, carry: Any, key: Any) -> tuple[Any, Any, Any]:
        return obs, carry + 1, ()

    def carry(batch: tuple[int, ...]) -> Any:
        return jnp.zeros(batch, jnp.int32)

    return make_agent("ppo")._replace(
        act=act, act_deterministic=act_deterministic, carry=carry, value=lambda learned, obs, carry: obs
    )


def kinds(names: Collection[str] = AGENTS) -> list[tuple[str, str]]:
    """Every agent that learns by itself, or each of these, with every kind of actions that it has."""
    found = []
    for name in names:
        for actions in ACTIONS:
            try:
                make_agent(name, actions)
            except BadInput as error:
                assert "action" in str(error), error
            else:
                found.append((name, actions))
    assert {name for name, _ in found} == set(names), "an agent that accepts no action space at all"
    return found


def hyper_of(name: str, agent: Agent, members: int) -> Any:
    """Live hyperparameters, equal for all members: float32 [N] each."""
    hyper = agent.hyper._replace(**LIVE.get(REMEMBERING.get(name, (name,))[0], {}))
    return jax.tree.map(lambda x: np.full(members, x, np.float32), hyper)


def walk(actions: str = "discrete") -> DeviceEnvironment:
    """A point on a line: actions push it, noise too. It terminates beyond 1.5 and is truncated after 6 steps."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        x = jax.random.uniform(key, (), jnp.float32, -1, 1)
        return jnp.stack([x, jnp.float32(0)]), (x, jnp.int32(0))

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        x, time = state
        push = action.astype(jnp.float32).sum() - (0 if actions == "continuous" else 0.5)
        x, time = x + 0.5 * push + 0.1 * jax.random.normal(key), time + 1
        obs = jnp.stack([x, time.astype(jnp.float32) / 6])
        return obs, (x, time), -jnp.abs(x), jnp.abs(x) > 1.5, time >= 6

    return DeviceEnvironment(Spec((2,), "float32", space_of(actions)), reset, step)


def leaves(tree: Any) -> list[np.ndarray]:
    """The leaves on the host; keys as their numbers."""
    data = jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)
    return [np.asarray(x) for x in jax.tree.leaves(data)]


def same(a: Any, b: Any) -> bool:
    """Whether two trees are equal bit for bit (NaN equals NaN)."""
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(
        x.dtype == y.dtype and np.array_equal(x, y, x.dtype.kind == "f") for x, y in zip(a, b, strict=True)
    )


def member(tree: Any, row: Any) -> Any:
    """One member, or several, of leaves [N, ...]."""
    return jax.tree.map(lambda x: x[row], tree)


def close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that two trees are nearly equal."""
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
