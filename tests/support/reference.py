"""Learning from memory written out in NumPy: float64, gradients by finite differences, what the agents' tests share.

What a reference takes from the code under test is the structure of its parameters, and which steps and which noise its
keys drew. All that follows from them it computes from the steps as they were handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.spec import Box, Discrete
from shoal.core.types import Agent, Member, Rollout
from shoal.rl import replay_buffer as ring

T, B, BATCH = 4, 2, 12
SETTINGS = {"layers": (4,), "activation": "tanh", "num_envs": B, "rollout_length": T, "batch_size": BATCH}
SETTINGS |= {"buffer_size": 2 * T * B, "learning_starts": 0}
OBS = (2,)


def same_metrics(metrics: dict[str, Any], told: list[dict[str, Any]]) -> None:
    """Assert that what a round of updates tells is the mean of what the reference told of each."""
    assert set(metrics) == set(told[0])
    for name in told[0]:
        np.testing.assert_allclose(metrics[name], np.mean([t[name] for t in told]), rtol=1e-3, err_msg=name)


def plain(tree: Any) -> Any:
    """A tree in float64, on the host."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else None), tree)


def mlp(params: Any, x: np.ndarray) -> np.ndarray:
    """Dense layers with tanh between them."""
    layers = [params["params"][f"Dense_{i}"] for i in range(len(params["params"]))]
    for layer in layers[:-1]:
        x = np.tanh(x @ layer["kernel"] + layer["bias"])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"]


def gradient(loss: Callable, tree: Any) -> Any:
    """The gradient of a number, by central differences."""
    leaves, structure = jax.tree.flatten(tree)
    result = []
    for i, leaf in enumerate(leaves):
        slope = np.zeros(np.shape(leaf))
        for place in np.ndindex(np.shape(leaf)):
            ends = []
            for step in (1e-5, -1e-5):
                moved = np.array(leaf)
                moved[place] += step
                ends.append(loss(jax.tree.unflatten(structure, [*leaves[:i], moved, *leaves[i + 1 :]])))
            slope[place] = (ends[0] - ends[1]) / 2e-5
        result.append(slope)
    return jax.tree.unflatten(structure, result)


class Adam:
    """Kingma & Ba 2015, algorithm 1; its rate may be another one at every step."""

    def __init__(self) -> None:
        self.t, self.m, self.v = 0, 0.0, 0.0

    def step(self, rate: float, slope: Any, params: Any) -> Any:
        flat = np.concatenate([np.reshape(x, -1) for x in jax.tree.leaves(slope)])
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * flat
        self.v = 0.999 * self.v + 0.001 * flat**2
        move = -rate * self.m / (1 - 0.9**self.t) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
        leaves, structure = jax.tree.flatten(params)
        parts = np.split(move, np.cumsum([np.size(x) for x in leaves])[:-1])
        return jax.tree.unflatten(structure, [x + p.reshape(np.shape(x)) for x, p in zip(leaves, parts, strict=True)])


def polyak_update(target: Any, online: Any, tau: float) -> Any:
    return jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, online)


def close(got: Any, expected: Any, name: str = "", rtol: float = 1e-3, atol: float = 2e-5) -> None:
    """Assert that two trees of one structure are nearly equal."""
    assert jax.tree.structure(got) == jax.tree.structure(expected), name
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=name)


def shaken(tree: Any, seed: int, scale: float = 0.7) -> Any:
    """Parameters of this structure that are all different, so that none can stand for another."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(scale * rng.normal(size=x.shape), jnp.float32), tree)


def rollout(space: Box | Discrete, seed: int, ends: float = 0.3) -> Rollout:
    """Made-up steps."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, T, B, *OBS)).astype(np.float32)
    if isinstance(space, Discrete):
        action = rng.integers(space.n, size=(T, B), dtype=np.int32)
    else:
        action = rng.uniform(-1, 1, (T, B, *space.shape)).astype(np.float32)
    terminated, truncated = rng.random((2, T, B)) < ends / 2
    reward = (2 * rng.normal(size=(T, B))).astype(np.float32)
    return Rollout(obs, action, reward, next_obs, terminated, truncated, ())


class Past:
    """The last two rollouts, which is what the memory of these tests holds."""

    def __init__(self) -> None:
        self.rollouts: list[Rollout] = []

    def batches(
        self, member: Member, hyper: Any, key: jax.Array, count: int, n: int = 1
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """The batches of one `update`, of which `member` came: obs, action, reward, next_obs, bootstrap."""
        past = jax.tree.map(lambda *x: np.concatenate(x), *self.rollouts[-2:])
        drawn = ring.sample(member.replay_buffer, jax.random.split(key)[0], (T * B, BATCH), n, hyper.discount).obs
        for obs in np.asarray(drawn)[:count]:
            found = [np.argwhere((past.obs == x).all(-1))[0] for x in obs]
            steps = [_transition(past, *place, n, hyper) for place in found]
            yield tuple(np.stack(x) for x in zip(*steps, strict=True))


def _transition(past: Rollout, t: int, b: int, n: int, hyper: Any) -> tuple[np.ndarray, ...]:
    reward, weight, end = 0.0, 1.0, t
    for end in range(t, t + n):
        reward += weight * float(past.reward[end, b])
        weight *= float(hyper.discount)
        if past.terminated[end, b]:
            weight = 0.0
        if past.terminated[end, b] or past.truncated[end, b]:
            break
    parts = past.obs[t, b], past.action[t, b], reward, past.next_obs[end, b], weight
    return tuple(x if np.asarray(x).dtype.kind == "i" else np.asarray(x, np.float64) for x in parts)


def key_of(key: jax.Array, i: int) -> jax.Array:
    """The key of the i-th improvement within an update."""
    return jax.random.fold_in(jax.random.split(key)[1], i)


def hyper_of(agent: Agent, **values: float) -> Any:
    """Hyperparameters under which a round makes exactly one update, unless told otherwise."""
    values = {"update_ratio": 1 / (T * B)} | values
    return type(agent.hyper)(**{k: np.float32(x) for k, x in (agent.hyper._asdict() | values).items()})
