"""Agents on environments whose right answer is known. What a loss, a bootstrap or a flag gets wrong shows in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import probes
from support.shards import gradient_trained

import shoal
from shoal.agents.dqn import dqn
from shoal.agents.policy import policy
from shoal.agents.ppo import ppo
from shoal.core.user_code import import_from
from shoal.environments.device import DeviceEnvironment
from shoal.environments.evaluation import EvaluationConfig
from shoal.experiment.experiment import Experiment, Fitness
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.rl.independent import independent
from shoal.rl.networks import MLP

# Most tests only train, or only evaluate.
pytestmark = pytest.mark.usefixtures("compiled_when_called")
N, DISCOUNT = 2, 0.9
EXAMPLES = str(Path(__file__).parents[2] / "examples")


def trained(
    environment: DeviceEnvironment, iterations: int, fitness: str = "training", **hyper: float
) -> GradientTrainedShard:
    """Two members without hidden layers, which are quick to compile, after so many updates of 8 x 8 steps.

    Their critics learn raw rewards, so that their values can be told.
    """
    agent = ppo(environment.spec, layers=(), num_envs=8, rollout_length=8, num_minibatches=2, normalize_rewards=False)
    values = agent.hyper._asdict() | {"learning_rate": 0.01, "discount": DISCOUNT, "gae_lambda": 0.9} | hyper
    shard = gradient_trained(environment, independent(agent), np.arange(N), 0, EvaluationConfig(fitness, 32))
    shard.begin({name: np.full(N, value, np.float32) for name, value in values.items()})
    shard.train(0, iterations, iterations)
    return shard


def values(shard: GradientTrainedShard, *obs: float) -> np.ndarray:
    """What the critics say of observations: [N, len(obs)]."""
    x = np.array(obs, np.float32)[:, None]
    critic = MLP((), 1)
    params = shard.population.members.learned.params["critic"]
    return np.asarray(jax.vmap(critic.apply, (0, None))(params, x))[..., 0]


def near(got: np.ndarray, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(got, np.broadcast_to(expected, got.shape), atol=tolerance)


@pytest.mark.slow
def test_a_reward_to_come_is_discounted():
    near(values(trained(probes.delayed_reward(), 60), 0, 1), [DISCOUNT, 1], 0.05)


@pytest.mark.slow
def test_truncation_bootstraps():
    """Taken for a termination, the value would be that of 1 to 5 rewards: below 4.1."""
    shard = trained(probes.endless_reward(), 300, gae_lambda=0.95)
    near(values(shard, 0), 1 / (1 - DISCOUNT), 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("critic", "low", "high"), [((), 0.98, 1), (("state",), 0.6, 0.9)])
def test_a_critic_that_sees_more_tells_merit_from_luck(critic, low, high, monkeypatch):
    """The probability of the right action, after as many updates with the one critic and with the other."""
    monkeypatch.syspath_prepend(EXAMPLES)
    environment, members = import_from("asymmetric_actor_critic:luck", "env")(), 2
    agent = ppo(environment.spec, layers=(), num_envs=8, rollout_length=8, num_minibatches=2, critic=critic)
    shard = gradient_trained(environment, independent(agent), np.arange(members), 0, EvaluationConfig("training"))
    values = agent.hyper._asdict() | {"learning_rate": 0.01, "entropy_coefficient": 0.0}
    shard.begin({name: np.full(members, value, np.float32) for name, value in values.items()})
    shard.train(0, 60, 60)
    state = np.array([[-1], [1]], np.float32)
    obs = {"state": state, "privileged_state": np.concatenate([state, 0 * state], 1)}

    def right(learned: Any) -> jax.Array:
        action, _, acted = agent.act(learned, agent.hyper, obs, (), jax.random.key(0))
        chosen = jax.numpy.exp(acted.log_prob)
        return jax.numpy.where(action == np.array([0, 1], np.int32), chosen, 1 - chosen).mean()

    sure = np.asarray(jax.jit(jax.vmap(right))(shard.population.members.learned))
    assert low <= sure.min() and sure.max() <= high + 1e-6, sure


@pytest.mark.slow
@pytest.mark.parametrize(("actions", "least"), [("discrete", 0.99), ("multi_discrete", 0.99), ("continuous", 0.95)])
def test_actions_that_match_the_observation(actions, least):
    """A policy that does not look earns 0.5, 0.25 and 0."""
    shard = trained(probes.match(actions), 60, fitness="evaluation")
    shard.evaluate(0)
    assert (shard.stats().fitness >= least).all(), shard.stats().fitness


@pytest.mark.slow
@pytest.mark.parametrize(("recurrent", "best"), [(0, 0.5), (4, 1)])
def test_only_a_memory_recalls(recurrent, best):
    """Untrained members: about half of those that remember the cue happen to answer with its sign."""
    environment = probes.recall()
    agent = policy(environment.spec, layers=(), lstm_hidden_size=recurrent)
    shard = gradient_trained(environment, independent(agent), np.arange(16), 0, EvaluationConfig(episodes=64))
    shard.begin({})
    shard.evaluate(0)
    near(shard.stats().fitness.max(), best, 0.1)


WITH_PPO = {"layers": (), "num_envs": 16, "rollout_length": 8, "num_minibatches": 2}
WITH_DQN = {"layers": (16,), "batch_size": 32, "buffer_size": 2000, "learning_starts": 100, "rollout_length": 20}
MEMORIES = [
    ("ppo", {}, 0.5),
    ("ppo", {"lstm_hidden_size": 8}, 1),
    ("ppo", {"frame_stack": 4}, 1),
    ("dqn", {"frame_stack": 4}, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "memory", "expected"), MEMORIES, ids=str)
def test_learning_to_recall(name, memory, expected):
    """The cue is three steps old when it matters; whoever does not see it any more answers by chance."""
    make, config = {"ppo": (ppo, WITH_PPO), "dqn": (dqn, WITH_DQN)}[name]
    environment = probes.recall()
    agent = make(environment.spec, **config, **memory)
    shard = gradient_trained(environment, independent(agent), np.arange(N), 0, EvaluationConfig("training"))
    values = agent.hyper._asdict() | {"learning_rate": 0.01, "discount": DISCOUNT}
    values |= {"epsilon_decay_updates": 500} if name == "dqn" else {}
    shard.begin({name: np.full(N, value, np.float32) for name, value in values.items()})
    for generation in range(2):
        shard.train(generation, 40, 40)
        shard.evaluate(generation)
    near(shard.stats().fitness, expected, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("action", "rewards"), [(1, [0.25] * 3), (-1, [-0.25, 0.25, 0.25, 0.25, 0.25])])
def test_both_goals_of_the_fork_are_worth_as_much(action, rewards):
    environment, key = probes.fork(), jax.random.key(0)
    _, state = environment.reset(key)
    got, done = [], False
    while not done:
        obs, state, reward, done, truncated = environment.step(key, state, np.full(1, action, np.float32))
        got.append(float(reward))
    assert got == rewards and obs == action and not truncated


REPLAY = {"layers": [16], "batch_size": 32, "buffer_size": 2000, "learning_starts": 100, "rollout_length": 20}
FROM_MEMORY = {"population": 4, "interval": 500, "generations": 2}
SAMPLED = {"population": 8, "generations": 20, "fitness": Fitness(episodes=32)}
RATES = {"policy_learning_rate": 3e-3, "critic_learning_rate": 1e-2}
WAYS: dict[str, dict[str, Any]] = {
    "dqn": {"agent": "dqn", "config": REPLAY, "hyper": {"learning_rate": 1e-2}} | FROM_MEMORY,
    "td3": {"agent": "td3", "config": REPLAY, "hyper": RATES} | FROM_MEMORY,
    "sac": {"agent": "sac", "config": REPLAY, "hyper": RATES} | FROM_MEMORY,
    "dvd": {"method": "dvd", "config": REPLAY, "hyper": RATES} | FROM_MEMORY,
    "cem_rl": {"method": "cem_rl", "config": {k: v for k, v in REPLAY.items() if k != "rollout_length"}, "hyper": RATES}
    | SAMPLED,
    "es": SAMPLED | {"method": "es", "config": {"layers": [8]}, "population": 32, "generations": 40},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_learn(way, tmp_path):
    """Whoever does not look earns 0.5, or 0 where actions are continuous; all members learn, not one by luck."""
    actions = "discrete" if way == "dqn" else "continuous"
    settings = {"fitness": Fitness(episodes=32), "space": {}} | WAYS[way]
    experiment = Experiment(
        **{"env": "support.probes:match", "env_options": {"actions": actions}, "seed": 0},
        **{"run_dir": str(tmp_path / "run"), "final_episodes": 32},
        **settings,
    )
    fitness = shoal.train(experiment).summary["fitness"].values()
    assert min(fitness) > 0.9, fitness
