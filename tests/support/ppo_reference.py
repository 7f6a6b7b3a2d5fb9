"""PPO written out in NumPy: float64, gradients by finite differences, Adam, advantages and the LSTM by hand."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.reference import same_metrics

from shoal.agents.ppo import Acted, ppo
from shoal.core.spec import Box, Discrete, Spec
from shoal.core.types import Agent, Member, Rollout

SPACES = {"discrete": Discrete(3), "continuous": Box((-1.0, -1.0), (1.0, 1.0))}
T, B = 6, 4
HYPER = {"learning_rate": 0.1, "discount": 0.9, "gae_lambda": 0.8, "clip_range": 0.2, "entropy_coefficient": 0.05}
HYPER |= {"value_coefficient": 0.7, "max_gradient_norm": 0.6, "epochs": 1.0}


class Reference:
    """Linear policy and critic of two-dimensional observations; parameters are one flat vector.

    Where the agent is recurrent, of what its LSTM makes of them; the rollout then begins amid episodes, and minibatches are
    of whole environments. `reward` is what it learns from, [T, B].
    """

    def __init__(
        self, agent: Agent, actions: str, clip_value_loss: bool, normalize_advantages: bool, minibatches: int = 1
    ):
        self.actions, self.clip_value_loss, self.normalize = actions, clip_value_loss, normalize_advantages
        self.minibatches = minibatches
        self.tree = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper).learned.params)
        rng = np.random.default_rng(1)
        self.params = rng.normal(size=sum(x.size for x in jax.tree.leaves(self.tree))) * 0.5
        self.rollout = self._rollout(agent, rng)
        self.reward = self.rollout.reward
        self.clipped_values = 0

    def _rollout(self, agent: Agent, rng: np.random.Generator) -> Rollout:
        obs, self.final_obs = rng.normal(size=(2, T, B, 2)).astype(np.float32)
        discrete = self.actions == "discrete"
        action = rng.integers(3, size=(T, B), dtype=np.int32) if discrete else rng.normal(size=(T, B, 2))
        action = action if discrete else action.astype(np.float32)
        terminated, truncated = rng.random((2, T, B)) < 0.2
        reward = rng.normal(size=(T, B)).astype(np.float32) * 2
        carry = jax.tree.map(lambda x: rng.uniform(-1, 1, x.shape).astype(np.float32), agent.carry((B,)))
        self.rollout = Rollout(obs, action, reward, (), terminated, truncated, (), carry=carry)
        # Not quite the policy that acts now, so that some ratios begin beyond the clip range.
        params = self.unflatten(self.params)
        seen, after = self.seen(params)
        log_prob = self.policy(params, seen[0], action)[0] + 0.3 * rng.normal(size=(T, B))
        acted = Acted(log_prob.astype(np.float32), self.value(params, seen[-1]).astype(np.float32))
        last = np.arange(T)[:, None] == T - 1
        bootstrap_value = np.where(truncated | last, self.value(params, after[-1]), 0).astype(np.float32)
        return self.rollout._replace(extras=acted, bootstrap_value=bootstrap_value)

    def unflatten(self, params: np.ndarray) -> Any:
        shapes, structure = jax.tree.flatten(self.tree)
        parts = np.split(params, np.cumsum([x.size for x in shapes])[:-1])
        return jax.tree.unflatten(structure, [p.reshape(x.shape) for p, x in zip(parts, shapes, strict=True)])

    def member(self, agent: Agent) -> Member:
        """A member with these parameters."""
        return begin(agent, jax.tree.map(np.float32, self.unflatten(self.params)))

    def seen(self, params: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What policy and critic see, one for both or one each [T, B, ...]: of `obs`, and of observations after steps."""
        r = self.rollout
        told = [_lstm(*x, r, self.final_obs) for x in zip(params.get("recurrent", []), r.carry, strict=True)]
        return [x for x, _ in told] or [r.obs], [x for _, x in told] or [self.final_obs]

    def policy(self, params: Any, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities and entropies."""
        dense = params["policy"]["params"]["MLP_0"]["Dense_0"]
        x = obs.astype(np.float64) @ dense["kernel"] + dense["bias"]
        if self.actions == "discrete":
            p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
            return np.log(np.take_along_axis(p, action[..., None], -1))[..., 0], -(p * np.log(p)).sum(-1)
        std = np.exp(params["policy"]["params"]["log_std"])
        density = np.exp(-((action - x) ** 2) / (2 * std**2)) / (std * np.sqrt(2 * np.pi))
        entropy = 0.5 * np.log(2 * np.pi * np.e * std**2).sum()
        return np.log(density).sum(-1), np.full(obs.shape[:-1], entropy)

    def value(self, params: Any, obs: np.ndarray) -> np.ndarray:
        dense = params["critic"]["params"]["Dense_0"]
        return (obs.astype(np.float64) @ dense["kernel"] + dense["bias"])[..., 0]

    def advantages(self) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and old values [T, B], by a loop."""
        params, r = self.unflatten(self.params), self.rollout
        value, final = (self.value(params, x[-1]) for x in self.seen(params))
        goes_on = ~r.truncated[:-1]
        bootstrap_value = np.concatenate([np.where(goes_on, value[1:], final[:-1]), final[-1:]])
        advantage, following = np.zeros((T, B)), np.zeros(B)
        for t in reversed(range(T)):
            delta = self.reward[t] + HYPER["discount"] * np.where(r.terminated[t], 0, bootstrap_value[t]) - value[t]
            ends = r.terminated[t] | r.truncated[t]
            following = delta + np.where(ends, 0, HYPER["discount"] * HYPER["gae_lambda"] * following)
            advantage[t] = following
        return advantage, value

    def losses(
        self, params: np.ndarray, advantage: np.ndarray, old_value: np.ndarray, steps: np.ndarray
    ) -> dict[str, float]:
        """Of a minibatch of these steps; they are counted along the environments, then in time."""
        tree, r, clip = self.unflatten(params), self.rollout, HYPER["clip_range"]
        seen, _ = self.seen(tree)
        log_prob, entropy = self.policy(tree, seen[0], r.action)
        log_ratio = log_prob - r.extras.log_prob.astype(np.float64)
        all_steps = log_ratio, entropy, self.value(tree, seen[-1]), advantage, old_value
        log_ratio, entropy, value, a, old_value = (x.reshape(-1)[steps] for x in all_steps)
        ratio, target = np.exp(log_ratio), old_value + a
        a = (a - a.mean()) / a.std() if self.normalize else a
        surrogate = np.where(a > 0, np.minimum(ratio, 1 + clip) * a, np.maximum(ratio, 1 - clip) * a)
        error = (value - target) ** 2
        if self.clip_value_loss:
            moved = np.abs(value - old_value) > clip
            self.clipped_values += moved.sum()
            near = np.where(moved, old_value + clip * np.sign(value - old_value), value)
            error = np.maximum(error, (near - target) ** 2)
        return {
            "loss/policy": -surrogate.mean(),
            "loss/value": error.mean() / 2,
            "policy/entropy": entropy.mean(),
            "policy/approx_kl": (ratio - 1 - log_ratio).mean(),
            "policy/clip_fraction": (np.abs(ratio - 1) > clip).mean(),
        }

    def gradient(self, params: np.ndarray, *batch: np.ndarray) -> np.ndarray:
        def loss(p: np.ndarray) -> float:
            parts = self.losses(p, *batch)
            values, entropy = HYPER["value_coefficient"], HYPER["entropy_coefficient"]
            return parts["loss/policy"] + values * parts["loss/value"] - entropy * parts["policy/entropy"]

        steps = 1e-6 * np.eye(len(params))
        return np.array([loss(params + s) - loss(params - s) for s in steps]) / 2e-6

    def train(self, epochs: int, key: jax.Array) -> tuple[np.ndarray, list[dict[str, float]]]:
        """Adam (Kingma & Ba 2015, algorithm 1), the gradient's norm limited; every epoch in an order of its own.

        Returns the parameters, and what each minibatch of the last epoch tells.
        """
        advantage, old_value = self.advantages()
        explained = 1 - advantage.var() / (old_value + advantage).var()  # of the variance of returns, by the critic
        rows = np.arange(T * B).reshape(T, B).T if "recurrent" in self.tree else np.arange(T * B)
        params, m, v, t, told = self.params, 0.0, 0.0, 0, []
        for epoch in range(epochs):
            drawn, told = np.asarray(jax.random.bits(jax.random.fold_in(key, epoch), len(rows))), []
            order = np.argsort(drawn >> (len(rows) - 1).bit_length(), kind="stable")
            for part in np.split(order, self.minibatches):
                batch = advantage, old_value, rows[part].reshape(-1)
                told.append(self.losses(params, *batch) | {"value/explained_variance": max(explained, -1)})
                g, t = self.gradient(params, *batch), t + 1
                g = g * min(1, HYPER["max_gradient_norm"] / np.linalg.norm(g))
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                params = params - HYPER["learning_rate"] * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
        return params, told


def discounted(rollouts: list[Rollout]) -> np.ndarray:
    """What a discounted sum of rewards is at each step of successive rollouts: it goes on from one to the next, and begins
    anew where an episode does. A reward that is no number is left out, and ends its episode."""
    total, sums = np.zeros(B), []
    for r in rollouts:
        for t in range(T):
            total = HYPER["discount"] * total + r.reward[t]
            sums.append(total)
            total = np.where(r.terminated[t] | r.truncated[t] | np.isnan(total), 0, total)
    found = np.stack(sums)
    return found[~np.isnan(found)]


def _lstm(params: Any, carry: Any, rollout: Rollout, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hochreiter and Schmidhuber 1997, with forget gates; its state is zero where an episode begins.

    Returns its outputs [T, B, units] for the observations, and for those `after` the steps, with what is remembered then.
    """
    cell = params["params"]

    def step(x: np.ndarray, c: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gates = (x @ cell[f"i{k}"]["kernel"] + h @ cell[f"h{k}"]["kernel"] + cell[f"h{k}"]["bias"] for k in "ifgo")
        i, f, g, o = gates
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        return c, o * np.tanh(c)

    c, h = (x.astype(np.float64) for x in carry)
    seen, final = [], []
    for t in range(T):
        c, h = step(rollout.obs[t].astype(np.float64), c, h)
        seen.append(h)
        final.append(step(after[t].astype(np.float64), c, h)[1])
        ended = (rollout.terminated[t] | rollout.truncated[t])[:, None]
        c, h = np.where(ended, 0, c), np.where(ended, 0, h)
    return np.stack(seen), np.stack(final)


@functools.cache
def linear(actions: str, **settings: Any) -> Agent:
    """An agent whose update is compiled once for all tests, with raw rewards."""
    usual = {"layers": (), "num_envs": B, "rollout_length": T, "num_minibatches": 1, "normalize_rewards": False}
    settings = usual | settings
    agent = ppo(Spec((2,), "float32", SPACES[actions]), **settings)
    return agent._replace(update=jax.jit(agent.update))


def begin(agent: Agent, params: Any = None) -> Member:
    start = agent.init(jax.random.key(0), agent.hyper)
    return start if params is None else start._replace(learned=start.learned._replace(params=params))


def hyper(agent: Agent, **values: float) -> Any:
    return type(agent.hyper)(**{name: jnp.float32(x) for name, x in (HYPER | values).items()})


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.asarray(x).reshape(-1) for x in jax.tree.leaves(params)])


def assert_alike(agent: Agent, reference: Reference, start: Member | None = None) -> dict[str, Any]:
    """An agent and the reference learn and tell the same in one epoch and in three, from the reference's parameters.

    Returns the metrics of one epoch.
    """
    start, key, told = start or reference.member(agent), jax.random.key(3), []
    for epochs in (1, 3):
        end, metrics = agent.update(start, hyper(agent, epochs=epochs), reference.rollout, key)
        params, expected = reference.train(epochs, key)
        moved = params - reference.params
        np.testing.assert_allclose(flat(end.learned.params) - reference.params, moved, rtol=1e-3, atol=1e-4)
        same_metrics(metrics, expected)
        told.append(metrics)
    return told[0]
