"""One learner as both players: advantages and gradients of PPO on Kuhn poker, written out in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.agents.ppo import Acted, ppo
from shoal.core.types import Rollout
from shoal.environments.games.environment import knowledge, of_game
from shoal.environments.games.poker import Kuhn
from shoal.environments.games.tree import CHANCE, OVER, Tables

T, B = 12, 8
DISCOUNT, TRACE, CLIP, ENTROPY, VALUE = 0.9, 0.8, 0.2, 0.05, 0.7


class Player:
    """A linear policy and critic in float64, of parameters [(F + 1) * 3]."""

    def __init__(self, params: np.ndarray, tables: Tables):
        weights = params.reshape(-1, 3)
        scores = tables.information_state @ weights[:-1] + weights[-1]
        self.log_policy = scores[:, :2] - np.log(np.exp(scores[:, :2]).sum(-1, keepdims=True))
        self.value = scores[:, 2]


def played(tables: Tables, player: Player, rng: np.random.Generator) -> list[list[tuple[int, int, float]]]:
    """In each of B environments T steps: information set, action, payoff of player 0 after it; NaN within a game."""

    def after_chance(node: int) -> int:
        while tables.player[node] == CHANCE:
            node = tables.child[node, rng.choice(tables.chance.shape[1], p=tables.chance[node])]
        return node

    every = []
    for _ in range(B):
        node, steps = after_chance(0), []
        for _ in range(T + 1):  # the last one is only seen
            row = int(tables.information_set[node])
            action = int(rng.random() < np.exp(player.log_policy[row, 1]))
            node = after_chance(tables.child[node, action])
            over = tables.player[node] == OVER
            steps.append((row, action, float(tables.payoff[node]) if over else np.nan))
            node = after_chance(0) if over else node
        every.append(steps)
    return every


def advantages(tables: Tables, player: Player, steps: list[tuple[int, int, float]]) -> np.ndarray:
    """Of each step of an environment, by looking ahead along the moves of its own player."""
    mover = tables.mover

    def advantage(t: int) -> float:
        own, value = mover[steps[t][0]], player.value[steps[t][0]]
        sign = 1 - 2 * own
        for later in range(t, T):
            if not np.isnan(payoff := steps[later][2]):
                return sign * payoff - value
            row = steps[later + 1][0]
            if later + 1 == T:  # what is known there is the value of whoever moves
                return DISCOUNT * player.value[row] * (sign * (1 - 2 * mover[row])) - value
            if mover[row] == own:
                return DISCOUNT * player.value[row] - value + DISCOUNT * TRACE * advantage(later + 1)
        raise AssertionError

    return np.array([advantage(t) for t in range(T)])


@pytest.mark.parametrize("opponents", [0, B // 2])
def test_gradients_are_those_of_numpy(opponents: int) -> None:
    """In so many environments another policy plays one of the players."""
    environment = of_game(Kuhn())
    tables: Any = environment.game
    agent = ppo(environment.spec, layers=[], rollout_length=T, num_envs=B, num_minibatches=1, normalize_rewards=False)
    rng = np.random.default_rng(0)
    params = rng.normal(size=(tables.information_state.shape[1] + 1) * 3) * 0.5
    player = Player(params, tables)
    games = played(tables, player, rng)
    rows, action, payoff = (np.array(x).T for x in zip(*(zip(*steps, strict=True) for steps in games), strict=True))
    last, rows, action, payoff = rows[T], rows[:T], action[:T].astype(int), payoff[:T]
    rows = rows.astype(int)
    advantage = np.stack([advantages(tables, player, steps) for steps in games], 1)
    # Not quite the policy that acts now, so that some ratios begin beyond the clip range.
    log_prob = player.log_policy[rows, action] + 0.3 * rng.normal(size=(T, B))

    environments = np.arange(B)
    own = (environments >= opponents) | (tables.mover[rows] == environments % 2)

    def loss(params: np.ndarray) -> float:
        now = Player(params, tables)
        ratio = np.exp(now.log_policy[rows, action] - log_prob)[own]
        normal = ((advantage - advantage[own].mean()) / (advantage[own].std() + 1e-8))[own]
        policy = -np.minimum(ratio * normal, np.clip(ratio, 1 - CLIP, 1 + CLIP) * normal).mean()
        error = np.square(now.value[rows] - (player.value[rows] + advantage))[own].mean()
        entropy = -(np.exp(now.log_policy) * now.log_policy).sum(-1)[rows][own].mean()
        return policy + VALUE * error / 2 - ENTROPY * entropy

    nudges = np.eye(len(params)) * 1e-6
    expected = np.array([(loss(params + x) - loss(params - x)) / 2e-6 for x in nudges]).reshape(-1, 3)

    hyper = agent.hyper._replace(discount=DISCOUNT, gae_lambda=TRACE, clip_range=CLIP, entropy_coefficient=ENTROPY)
    hyper = hyper._replace(value_coefficient=VALUE, max_gradient_norm=1e9, epochs=1.0)
    hyper = jax.tree.map(jnp.float32, hyper)
    member = agent.init(jax.random.key(0), hyper)
    weights = params.reshape(-1, 3).astype(np.float32)
    parts = {"policy": weights[:, :2], "critic": weights[:, 2:]}

    def given(path: Any, leaf: Any) -> Any:
        part = parts[path[0].key]
        return jnp.asarray(part[-1] if leaf.ndim == 1 else part[:-1])

    learned = member.learned._replace(params=jax.tree_util.tree_map_with_path(given, member.learned.params))
    obs = jax.tree.map(lambda x: x[rows], knowledge(tables))
    over = ~np.isnan(payoff)
    bootstrap = np.zeros((T, B), np.float32)
    of_last = jax.tree.map(lambda x: x[last.astype(int)], knowledge(tables))
    assert agent.value is not None
    bootstrap[-1] = np.where(over[-1], 0, agent.value(learned, of_last, ()))
    acted = Acted(np.where(own, log_prob, np.nan).astype(np.float32), player.value[rows].astype(np.float32))
    reward, never = np.nan_to_num(payoff).astype(np.float32), np.zeros((T, B), bool)
    rollout = Rollout(obs, action.astype(np.int32), reward, (), over, never, acted, bootstrap)
    after, _ = jax.jit(agent.update)(member._replace(learned=learned), hyper, rollout, jax.random.key(1))
    moments = after.learned.optimizer[1][0].mu  # of Adam, a tenth of the first gradient
    found = [{p[-1].key: x for p, x in jax.tree_util.tree_leaves_with_path(moments[part])} for part in parts]
    gradients = np.concatenate([np.vstack([x["kernel"], x["bias"]]) for x in found], 1) * 10
    np.testing.assert_allclose(gradients, expected, rtol=2e-3, atol=2e-5)
    assert 0 < over.mean() < 1 and not over[-1].all()
