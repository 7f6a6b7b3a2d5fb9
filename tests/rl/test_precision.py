"""Layers that compute in bfloat16: what stays in float32, and how far both are apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import make_agent

from shoal.core.types import Rollout
from shoal.rl import images
from shoal.rl.networks import MLP

HALF = {"precision": "bfloat16"}
X = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
IMAGE: dict[str, Any] = {"obs": (36, 36, 1), "dtype": "uint8", "network": "nature_cnn"}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "continuous", {}),
    "lstm": ("recurrent_ppo", "discrete", {}),
    "td3": ("td3", "continuous", {}),
    "sac": ("sac", "continuous", {}),
}
SLOW: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nature_cnn": ("dqn", "discrete", IMAGE),
    "impala": ("ppo", "discrete", IMAGE | {"network": "impala"}),
}


def half(x: Any) -> np.ndarray:
    """The nearest numbers of bfloat16."""
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


def test_layers_against_the_same_by_hand():
    """Hidden layers round what goes in, their weights and what comes out; the last one does not."""
    mlp = MLP((50, 40), 3, "relu", precision="bfloat16")
    params = mlp.init(jax.random.key(0), X)
    assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    kernels = [np.asarray(params["params"][f"Dense_{i}"]["kernel"], np.float64) for i in range(3)]
    y = np.asarray(X, np.float64)
    for kernel in kernels[:2]:
        y = half(np.maximum(half(half(y) @ half(kernel)), 0))
    told = mlp.apply(params, X)
    assert told.dtype == np.float32
    np.testing.assert_allclose(told, y @ kernels[2], atol=0.01)  # sums of another order may round otherwise
    exact = MLP((50, 40), 3, "relu").apply(params, X)
    assert 1e-3 < np.abs(told - exact).max() < 0.05, "as exact as float32, or not even as bfloat16"


def test_values_are_not_rounded():
    """Between 256 and 512 bfloat16 has even numbers only."""
    mlp = MLP((4,), 1, precision="bfloat16")
    params = mlp.init(jax.random.key(0), X)
    last = params["params"]["Dense_1"]
    last["kernel"], last["bias"] = last["kernel"] * 0, last["bias"] + 301.3
    np.testing.assert_allclose(mlp.apply(params, X), np.full((7, 1), 301.3), rtol=1e-6)


@pytest.mark.slow
def test_gradients_are_near_those_of_float32():
    def gradient(precision: Any) -> Any:
        mlp = MLP((50, 40), 1, "tanh", precision=precision)
        params = mlp.init(jax.random.key(0), X)
        return jax.grad(lambda p: jnp.square(mlp.apply(p, X)).mean())(params)

    for exact, rounded in zip(*map(jax.tree.leaves, (gradient("float32"), gradient("bfloat16"))), strict=True):
        assert rounded.dtype == np.float32
        np.testing.assert_allclose(rounded, exact, atol=0.05 * np.abs(exact).max())


@pytest.mark.slow
def test_gradients_of_many_images_add_up(monkeypatch):
    """In bfloat16 a sum of ones would end at 256."""
    monkeypatch.setattr(images, "CACHE", 1)  # bytes: one image at a time
    conv, x = images.Conv(1, 3, dtype="bfloat16"), jnp.ones((600, 3, 3, 1))
    params = conv.init(jax.random.key(0), x)
    gradient = jax.grad(lambda p: conv.apply(p, x).sum(dtype=jnp.float32))(params)["params"]["kernel"]
    np.testing.assert_allclose(gradient, np.full((9, 1), 600), rtol=0.01)


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_all_but_the_layers_is_float32(case):
    """What a member has learned and remembers, and what it does and says; nothing is rounded unless it is asked for."""
    name, actions, settings = (CASES | SLOW)[case]
    for chosen in ({}, HALF):
        agent = make_agent(name, actions, **settings | chosen)
        hyper = jax.tree.map(np.float32, agent.hyper)
        member = jax.eval_shape(agent.init, jax.random.key(0), hyper)
        shape = agent.environments, *settings.get("obs", (2,))
        obs, carry = np.zeros(shape, settings.get("dtype", "float32")), agent.carry(shape[:1])
        arguments = member.learned, hyper, obs, carry, jax.random.key(0)
        acted = action, _, extras = jax.eval_shape(agent.act, *arguments)
        floating = {x.dtype for x in jax.tree.leaves((member, acted)) if x.dtype.kind not in "iub"}
        assert floating == {np.dtype(np.float32)}
        assert ("bf16" in jax.jit(agent.act).lower(*arguments).as_text()) == bool(chosen)

        steps = jax.tree.map(lambda x, t=agent.rollout: jnp.zeros((t, *x.shape), x.dtype), (obs, action, extras))
        none = jnp.zeros((agent.rollout, agent.environments))
        after = {"next_obs": (), "next_value": none} if agent.value else {"next_obs": steps[0], "next_value": ()}
        ends = {"terminated": none > 0, "truncated": none > 0}
        rollout = Rollout(steps[0], steps[1], none, extras=steps[2], carry=carry, **after, **ends)
        learned, metrics = jax.eval_shape(agent.update, member, hyper, rollout, jax.random.key(0))
        assert jax.tree.map(lambda x: x.dtype, learned) == jax.tree.map(lambda x: x.dtype, member)
        assert {x.dtype for x in metrics.values()} == {np.dtype(np.float32)}
