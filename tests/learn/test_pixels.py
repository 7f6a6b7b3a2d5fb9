"""PPO on little images: nothing but pixels says where the ball falls."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.shards import gradient_trained

from shoal.agents.ppo import ppo
from shoal.core.spec import Discrete, Spec
from shoal.environments.device import DeviceEnvironment
from shoal.environments.evaluation import EvaluationConfig
from shoal.rl.images import Conv, max_pool
from shoal.rl.independent import independent
from shoal.rl.networks import scaled

SIDE, N = 6, 2


def catch() -> DeviceEnvironment:
    """A ball falls down a column of a 6 x 6 image; the paddle below it moves left, stays, or moves right. Caught: 1."""

    def image(state: Any) -> jax.Array:
        column, row, paddle = state
        rows, columns = jnp.arange(SIDE)[:, None], jnp.arange(SIDE)[None]
        ball = (rows == row) & (columns == column)
        return jnp.where(ball | ((rows == SIDE - 1) & (columns == paddle)), 255, 0).astype(jnp.uint8)[..., None]

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        state = (*jax.random.randint(key, (2,), 0, SIDE),)
        state = (state[0], jnp.int32(0), state[1])
        return image(state), state

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        column, row, paddle = state
        state = (column, row + 1, jnp.clip(paddle + action - 1, 0, SIDE - 1))
        down = row + 1 == SIDE - 1
        return image(state), state, (down & (state[2] == column)).astype(jnp.float32), down, jnp.bool(False)

    return DeviceEnvironment(Spec((SIDE, SIDE, 1), "uint8", Discrete(3)), reset, step)


class Small(nn.Module):
    """A convolution and a pool."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        x = nn.relu(max_pool(Conv(8, 3, padding=1)(scaled(obs))))
        return x.reshape(*x.shape[:-3], -1)


@pytest.mark.slow
def test_catching_what_is_seen():
    """All members catch nearly every ball; who stands still catches one of six."""
    environment = catch()
    agent = ppo(
        environment.spec, network=lambda spec: Small(), layers=(32,), num_envs=16, rollout_length=20, num_minibatches=4
    )
    shard = gradient_trained(environment, independent(agent), np.arange(N), 0, EvaluationConfig(episodes=64))
    values = agent.hyper._asdict() | {"learning_rate": 3e-3, "discount": 0.9}
    shard.begin({name: np.full(N, value, np.float32) for name, value in values.items()})
    shard.train(0, 60, 60)
    shard.evaluate(0)
    assert (shard.stats().fitness > 0.9).all(), shard.stats().fitness
