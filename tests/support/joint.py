"""TD3 of several actors with shared critics in NumPy, and what the tests of such populations have in common."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from support import reference
from support.reference import Adam, close, gradient, mlp, plain, polyak_update, shaken

from shoal.core.spec import Box, Spec
from shoal.core.types import Learner, Population, Rollout
from shoal.rl import replay_buffer as ring
from shoal.rl.diversity import JITTER

N, T, B, BATCH = 3, 4, 2, 6
SPACE = Box((-1.0, -1.0), (1.0, 1.0))
SPEC = Spec(reference.OBS, "float32", SPACE)
SETTINGS = reference.SETTINGS | {"batch_size": BATCH, "buffer_size": 2 * N * T * B}
UID = np.arange(N, dtype=np.uint32)
HYPER = {"policy_learning_rate": 0.02, "critic_learning_rate": 0.05, "discount": 0.9, "tau": 0.3}
HYPER |= {"target_noise": 0.5, "noise_clip": 0.3, "policy_delay": 2.0}
# Values other than usual, where half of that would do nothing.
OTHER = {"discount": 0.5, "tau": 0.9, "policy_delay": 3.0, "update_ratio": 0.25, "diversity": 0.9}


def rows(tree: Any) -> list[Any]:
    """The members of a tree, one by one, in float64."""
    whole = plain(tree)
    return [jax.tree.map(lambda x, i=i: x[i], whole) for i in range(len(jax.tree.leaves(whole)[0]))]


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *trees)


def act(policy: Any, obs: np.ndarray) -> np.ndarray:
    return np.tanh(mlp(policy, obs))


def value(critics: Any, i: int, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return mlp(jax.tree.map(lambda x: x[i], critics), np.concatenate([obs, action], -1))[:, 0]


def volume(policies: list[Any], states: np.ndarray) -> float:
    """The logarithm of the determinant of how alike the policies behave in these states (DvD, equation 5)."""
    behaviour = [act(policy, states).reshape(-1) for policy in policies]
    k = [[(1 - JITTER) * np.exp(-np.mean((a - b) ** 2) / 2) for a in behaviour] for b in behaviour]
    return float(np.linalg.slogdet(np.array(k) + JITTER * np.eye(N))[1])


class Reference:
    """TD3 of several actors against one pair of critics, actor by actor. Each climbs the volume too, with its own weight."""

    def __init__(self, actors: Any, critic: Any, diversity: Any):
        self.policies, self.targets = rows(actors.policy), rows(actors.target_policy)
        self.critics, self.target_critics = plain(critic.critics), plain(critic.target_critics)
        self.adams, self.critic_adam, self.updates = [Adam() for _ in self.policies], Adam(), int(critic.updates)
        self.diversity = np.broadcast_to(diversity, N)

    def improve(self, h: Any, batch: Any, noise: np.ndarray, states: np.ndarray) -> list[dict[str, float]]:
        """h: of leaves [N]; batch: of leaves [N, batch, ...]; noise: standard normal."""
        h, batch, target = plain(h), plain(batch), []
        for i in range(N):
            smooth = np.clip(h.target_noise[i] * noise[i], -h.noise_clip[i], h.noise_clip[i])
            action = np.clip(act(self.targets[i], batch.next_obs[i]) + smooth, -1, 1)
            lower = np.minimum(*[value(self.target_critics, c, batch.next_obs[i], action) for c in (0, 1)])
            target.append(batch.reward[i] + batch.bootstrap[i] * lower)

        def errors(critics: Any, i: int) -> float:
            pairs = [value(critics, c, batch.obs[i], batch.action[i]) - target[i] for c in (0, 1)]
            return sum((x**2).mean() for x in pairs)

        def loss(critics: Any) -> float:
            return float(np.mean([errors(critics, i) for i in range(N)]))

        values = [[value(self.critics, c, batch.obs[i], batch.action[i]).mean() for c in (0, 1)] for i in range(N)]
        told = [
            {"loss/critic": loss(self.critics), "value/mean": np.mean(values[i]), "value/target": target[i].mean()}
            for i in range(N)
        ]
        slope = gradient(loss, self.critics)
        self.critics = self.critic_adam.step(h.critic_learning_rate[0], slope, self.critics)
        self.updates += 1
        if self.updates % int(h.policy_delay[0]) == 0:
            policies = list(self.policies)
            for i in range(N):

                def climbed(policy: Any, i: int = i) -> float:
                    q = value(self.critics, 0, batch.obs[i], act(policy, batch.obs[i])).mean()
                    everybody = [*policies[:i], policy, *policies[i + 1 :]]
                    return -(1 - self.diversity[i]) * q - self.diversity[i] * volume(everybody, states)

                slope = gradient(climbed, policies[i])
                self.policies[i] = self.adams[i].step(h.policy_learning_rate[i], slope, policies[i])
                self.targets[i] = polyak_update(self.targets[i], self.policies[i], h.tau[i])
            self.target_critics = polyak_update(self.target_critics, self.critics, h.tau[0])
        return told

    def check(self, actors: Any, critic: Any) -> None:
        close(plain(actors.policy), stack(self.policies), "policies")
        close(plain(actors.target_policy), stack(self.targets), "target policies")
        close(plain(critic.critics), self.critics, "critics")
        close(plain(critic.target_critics), self.target_critics, "target critics")
        assert int(critic.updates) == self.updates


def spread(population: Population) -> Population:
    """Parameters that are all different."""
    learned, critic = population.members.learned, population.shared.critic
    learned = learned._replace(policy=shaken(learned.policy, 0), target_policy=shaken(learned.target_policy, 1))
    critic = critic._replace(critics=shaken(critic.critics, 2), target_critics=shaken(critic.target_critics, 3))
    members = population.members._replace(learned=learned)
    return population._replace(members=members, shared=population.shared._replace(critic=critic))


def hyper_of(made: Learner, **values: Any) -> Any:
    usual = {k: v for k, v in HYPER.items() if k in made.agent.hyper._fields}
    numbers = made.agent.hyper._asdict() | usual | values
    return type(made.agent.hyper)(**{k: np.broadcast_to(np.float32(x), N).copy() for k, x in numbers.items()})


def begin(made: Learner, **values: Any) -> Population:
    return spread(made.init(jax.random.key(0), UID, hyper_of(made, **values)))


def batch_of(seed: int) -> ring.Batch:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, N, BATCH, *reference.OBS)).astype(np.float32)
    action = rng.uniform(-1, 1, (N, BATCH, 2)).astype(np.float32)
    reward = rng.normal(size=(N, BATCH)).astype(np.float32)
    bootstrap = (0.9 * (rng.random((N, BATCH)) < 0.8)).astype(np.float32)
    return ring.Batch(obs, action, reward, next_obs, bootstrap)


def normal(keys: jax.Array) -> np.ndarray:
    return np.stack([np.asarray(jax.random.normal(key, (BATCH, 2)), np.float64) for key in keys])


def rollout(seed: int) -> Rollout:
    """Of N members, [N, T, B, ...]."""
    return jax.tree.map(lambda *x: np.stack(x), *[reference.rollout(SPACE, 10 * seed + i) for i in range(N)])
