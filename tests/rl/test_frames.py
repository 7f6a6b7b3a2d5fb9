"""Stacked frames against lists of observations: what is seen while acting, and what is seen again while learning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import echo, make_agent, same

from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.rl.frames import of_rollout, stack, stacked, stacking

T, B, K = 6, 3, 3


def expected(episode: list[np.ndarray]) -> np.ndarray:
    """The last K of an episode's observations, the first one again where there are fewer, along the last axis."""
    return np.concatenate([episode[max(len(episode) - k, 0)] for k in range(K, 0, -1)], -1)


def observations(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 250, (T, B, *shape)).astype(dtype)


ENDS = np.random.default_rng(5).random((T, B)) < 0.3


@pytest.mark.parametrize(("shape", "dtype"), [((2,), "float32"), ((4, 4, 2), "uint8")])
def test_what_is_seen_again_is_what_was_seen(shape, dtype):
    """Across two rollouts, the second of which begins amid episodes; an odd observation is not remembered."""
    agent = stacking(echo(), Spec(shape, dtype, Discrete(2)), K)
    carry: Any = agent.carry((B,))
    assert carry.frames.nbytes == (K - 1) * B * np.prod(shape) * np.dtype(dtype).itemsize
    episodes: list[list[np.ndarray]] = [[] for _ in range(B)]
    for rollout in range(2):
        obs, before = observations(rollout, *shape, dtype=dtype), carry
        ends = ENDS.copy()
        if dtype == "float32":
            obs[2, 1, 0], ends[2, 1] = np.nan, True
        told, wanted = [], []
        for t in range(T):
            for b in range(B):
                episodes[b].append(obs[t, b])
            wanted.append(np.stack([expected(episode) for episode in episodes]))
            value = agent.value((), obs[t], carry)
            assert same(agent.act_deterministic((), obs[t], carry)[0], value)
            action, carry, _ = agent.act((), (), obs[t], carry, None)
            told.append(action)
            np.testing.assert_array_equal(action, value)
            for b in np.flatnonzero(ends[t]):
                episodes[b].clear()
            fresh = agent.carry((B,))
            carry = jax.tree.map(
                lambda x, y, done=ENDS[t]: jnp.where(done.reshape(B, *[1] * (x.ndim - 1)), y, x), carry, fresh
            )
        np.testing.assert_array_equal(told, wanted)
        is_first = np.concatenate([np.zeros((1, B), bool), ends[:-1]])
        places, inner, frames = of_rollout(before, jnp.asarray(obs), jnp.asarray(is_first))
        np.testing.assert_array_equal(stack(frames[places], shape), wanted)
        assert inner is before.inner and len(frames) == (T + K - 1) * B
    assert (np.asarray(carry.inner) > 1).any()


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((), 0), ((5,), 0), ((7, 5), 1), ((1, 84, 84), 0), ((84, 84, 1), 2), ((10, 10, 4), 2), ((210, 160, 3), 2)],
)
def test_stacks_lie_along_the_channels(shape, axis):
    frames = np.random.default_rng(0).normal(size=(2, 2, K, *shape))
    whole = np.concatenate(list(np.moveaxis(frames, 2, 0)), 2 + axis) if shape else frames
    np.testing.assert_array_equal(stack(jnp.asarray(frames), shape), np.float32(whole))
    assert stacked(Spec(shape, "float32", Discrete(2)), K).obs_shape == whole.shape[2:]
    one = Spec(shape, "uint8", Discrete(2))
    assert stacked(one, 1) == one


def test_a_stack_keeps_its_channels_where_they_are(said):
    """Otherwise convolutions would run over another axis."""
    one = Spec((10, 8, 3), "uint8", Discrete(2))
    assert stacked(one, 3).obs_shape == (10, 8, 9)
    with pytest.raises(BadInput) as error:
        stacked(one, 4)
    said(error.value)


@pytest.mark.parametrize(("name", "settings"), [("ppo", {}), ("dqn", {"n_step": 2, "buffer_size": 16})])
def test_unfitting_stacks(name, settings, said):
    with pytest.raises(BadInput) as error:
        make_agent(name, frame_stack=0, **settings)
    said(error.value)
    if name == "dqn":
        make_agent(name, frame_stack=7, **settings)
        with pytest.raises(BadInput) as error:
            make_agent(name, frame_stack=8, **settings)
        said(error.value)
