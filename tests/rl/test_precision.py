"""Layers that compute in bfloat16: what stays in float32, and how far both are apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from support.tiny import EVERY, REMEMBERING, make_agent

from shoal.core.types import Member, Rollout
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
    "policy": ("policy", "discrete", {}),
}
SLOW: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nature_cnn": ("dqn", "discrete", IMAGE),
    "minatar": ("policy", "discrete", {"obs": (4, 5, 2), "network": "minatar"}),
    "impala": ("ppo", "discrete", IMAGE | {"network": "impala"}),
}
assert {name for name, _, _ in (CASES | SLOW).values()} == {*EVERY, *REMEMBERING}


def half(x: Any) -> np.ndarray:
    """The nearest numbers of bfloat16."""
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


def test_layers_against_the_same_by_hand():
    """Hidden layers round what goes in, their weights and what comes out; the last one does not."""
    mlp = MLP((50, 40), 3, "relu", precision="bfloat16")
    params = jax.jit(mlp.init)(jax.random.key(0), X)
    assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    kernels = [np.asarray(params["params"][f"Dense_{i}"]["kernel"], np.float64) for i in range(3)]
    y = np.asarray(X, np.float64)
    for kernel in kernels[:2]:
        y = half(np.maximum(half(half(y) @ half(kernel)), 0))
    told = jax.jit(mlp.apply)(params, X)
    assert told.dtype == np.float32
    np.testing.assert_allclose(told, y @ kernels[2], atol=0.01)  # sums of another order may round otherwise
    exact = jax.jit(MLP((50, 40), 3, "relu").apply)(params, X)
    assert 1e-3 < np.abs(told - exact).max() < 0.05, "as exact as float32, or not even as bfloat16"


def test_values_are_not_rounded():
    """Between 256 and 512 bfloat16 has even numbers only."""
    mlp = MLP((4,), 1, precision="bfloat16")
    params = jax.jit(mlp.init)(jax.random.key(0), X)
    last = params["params"]["Dense_1"]
    last["kernel"], last["bias"] = last["kernel"] * 0, last["bias"] + 301.3
    np.testing.assert_allclose(jax.jit(mlp.apply)(params, X), np.full((7, 1), 301.3), rtol=1e-6)


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


def lived(name: str, actions: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """What becomes of a member that acts and learns, by shapes alone, and the operations that this takes."""
    agent = make_agent(name, actions, **settings)
    hyper = jax.tree.map(np.float32, agent.hyper)
    obs = jnp.zeros((agent.num_envs, *settings.get("obs", (2,))), settings.get("dtype", "float32"))
    carry, none = agent.carry(obs.shape[:1]), jnp.zeros((agent.rollout_length, agent.num_envs))

    def live(member: Member, key: jax.Array) -> Any:
        acted = action, _, extras = agent.act(member.learned, hyper, obs, carry, key)
        greedy = agent.act_deterministic(member.learned, obs, carry)[0]
        steps = jax.tree.map(lambda x: jnp.broadcast_to(x, (agent.rollout_length, *x.shape)), (obs, action, extras))
        after = (
            {"next_obs": (), "bootstrap_value": none} if agent.value else {"next_obs": steps[0], "bootstrap_value": ()}
        )
        ends = {"terminated": none > 0, "truncated": none > 0}
        rollout = Rollout(steps[0], steps[1], none, extras=steps[2], carry=carry, **after, **ends)
        return acted, greedy, *agent.update(member, hyper, rollout, key)

    member = jax.eval_shape(agent.init, jax.random.key(0), hyper)
    operations, told = jax.make_jaxpr(live, return_shape=True)(member, jax.random.key(0))
    return (member, *told), operations.jaxpr


def products(operations: Any) -> Counter[str]:
    """How many products and convolutions there are of numbers of each type."""
    found: Counter[str] = Counter()
    for operation in operations.eqns:
        if operation.primitive.name in ("dot_general", "conv_general_dilated"):
            found[operation.invars[0].aval.dtype.name] += 1
        for inner in jaxprs_in_params(operation.params):
            found += products(inner)
    return found


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_the_layers_and_nothing_else_are_rounded(case):
    """Where that is asked for. Products of last layers, and of an LSTM, are not: with more layers there are no more of them.
    What a member has learned and remembers, and what it does and says, is float32."""
    name, actions, settings = (CASES | SLOW)[case]
    deep, shallow = settings | {"layers": (8, 8)}, {k: v for k, v in settings.items() if k != "network"}
    exact, half, least = (lived(name, actions, chosen) for chosen in (deep, deep | HALF, shallow | HALF))
    for told, _ in (exact, half):
        floating = {x.dtype for x in jax.tree.leaves(told) if jnp.issubdtype(x.dtype, jnp.floating)}
        assert floating == {np.dtype(np.float32)}
        member, _, _, learned, metrics = told
        assert jax.tree.map(lambda x: x.dtype, learned) == jax.tree.map(lambda x: x.dtype, member)
        assert {x.dtype for x in metrics.values()} <= {np.dtype(np.float32)}
    assert "bf16" not in str(exact[1]), "it is rounded although nobody asks for it"
    all_of_them, half, least = (products(operations) for _, operations in (exact, half, least))
    assert half["float32"] == least["float32"] > 0, "there is a layer that is not rounded"
    assert half["bfloat16"] > least["bfloat16"] > 0 and half.total() == all_of_them.total()
