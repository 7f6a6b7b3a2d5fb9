"""PPO against a reference in NumPy: float64, gradients by finite differences, Adam and advantages written out."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.agents.ppo import Acted, ppo
from shoal.core.errors import BadInput
from shoal.core.types import Agent, Continuous, Discrete, Member, Rollout, Spec
from shoal.rl.networks import Features

SPACES = {"discrete": Discrete(3), "continuous": Continuous((-1.0, -1.0), (1.0, 1.0))}
T, B = 6, 4
HYPER = {"learning_rate": 0.1, "discount": 0.9, "gae_lambda": 0.8, "clip_range": 0.2, "entropy_coefficient": 0.05}
HYPER |= {"value_coefficient": 0.7, "max_gradient_norm": 0.6, "epochs": 1.0}


class Reference:
    """Linear policy and critic on two-dimensional observations; parameters are one flat vector."""

    def __init__(self, agent: Agent, actions: str, clip_values: bool, normalise_advantages: bool):
        self.actions, self.clip_values, self.normalise = actions, clip_values, normalise_advantages
        self.tree = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper).learned.params)
        rng = np.random.default_rng(1)
        self.params = rng.normal(size=sum(x.size for x in jax.tree.leaves(self.tree))) * 0.5
        self.rollout = self._rollout(rng)
        self.clipped_values = 0

    def _rollout(self, rng: np.random.Generator) -> Rollout:
        obs, self.final_obs = rng.normal(size=(2, T, B, 2)).astype(np.float32)
        discrete = self.actions == "discrete"
        action = rng.integers(3, size=(T, B), dtype=np.int32) if discrete else rng.normal(size=(T, B, 2))
        action = action if discrete else action.astype(np.float32)
        terminated, truncated = rng.random((2, T, B)) < 0.2
        reward = rng.normal(size=(T, B)).astype(np.float32) * 2
        # Not quite the policy that acts now, so that some ratios begin beyond the clip range.
        params = self.unflatten(self.params)
        log_prob = self.policy(params, obs, action)[0] + 0.3 * rng.normal(size=(T, B))
        acted = Acted(log_prob.astype(np.float32), self.value(params, obs).astype(np.float32))
        last = np.arange(T)[:, None] == T - 1
        next_value = np.where(truncated | last, self.value(params, self.final_obs), 0).astype(np.float32)
        return Rollout(obs, action, reward, (), terminated, truncated, acted, next_value)

    def unflatten(self, params: np.ndarray) -> Any:
        shapes, structure = jax.tree.flatten(self.tree)
        parts = np.split(params, np.cumsum([x.size for x in shapes])[:-1])
        return jax.tree.unflatten(structure, [p.reshape(x.shape) for p, x in zip(parts, shapes, strict=True)])

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
        value, final = self.value(params, r.obs), self.value(params, self.final_obs)
        goes_on = ~r.truncated[:-1]
        next_value = np.concatenate([np.where(goes_on, value[1:], final[:-1]), final[-1:]])
        advantage, following = np.zeros((T, B)), np.zeros(B)
        for t in reversed(range(T)):
            delta = r.reward[t] + HYPER["discount"] * np.where(r.terminated[t], 0, next_value[t]) - value[t]
            ends = r.terminated[t] | r.truncated[t]
            following = delta + np.where(ends, 0, HYPER["discount"] * HYPER["gae_lambda"] * following)
            advantage[t] = following
        return advantage, value

    def losses(self, params: np.ndarray, advantage: np.ndarray, old_value: np.ndarray) -> dict[str, float]:
        tree, r, clip = self.unflatten(params), self.rollout, HYPER["clip_range"]
        log_prob, entropy = self.policy(tree, r.obs, r.action)
        log_ratio = log_prob - r.extras.log_prob.astype(np.float64)
        ratio = np.exp(log_ratio)
        a = (advantage - advantage.mean()) / advantage.std() if self.normalise else advantage
        surrogate = np.where(a > 0, np.minimum(ratio, 1 + clip) * a, np.maximum(ratio, 1 - clip) * a)
        value, target = self.value(tree, r.obs), old_value + advantage
        error = (value - target) ** 2
        if self.clip_values:
            moved = np.abs(value - old_value) > clip
            self.clipped_values += moved.sum()
            near = np.where(moved, old_value + clip * np.sign(value - old_value), value)
            error = np.maximum(error, (near - target) ** 2)
        return {
            "loss/policy": -surrogate.mean(),
            "loss/value": error.mean() / 2,
            "policy/entropy": entropy.mean(),
            "policy/kl": (ratio - 1 - log_ratio).mean(),
            "policy/clipped": (np.abs(ratio - 1) > clip).mean(),
        }

    def gradient(self, params: np.ndarray, advantage: np.ndarray, old_value: np.ndarray) -> np.ndarray:
        def loss(p: np.ndarray) -> float:
            parts = self.losses(p, advantage, old_value)
            values, entropy = HYPER["value_coefficient"], HYPER["entropy_coefficient"]
            return parts["loss/policy"] + values * parts["loss/value"] - entropy * parts["policy/entropy"]

        steps = 1e-6 * np.eye(len(params))
        return np.array([loss(params + s) - loss(params - s) for s in steps]) / 2e-6

    def train(self, epochs: int) -> np.ndarray:
        """Adam (Kingma & Ba 2015, algorithm 1) on the whole rollout, the gradient's norm limited."""
        advantage, old_value = self.advantages()
        params, m, v = self.params, 0.0, 0.0
        for t in range(1, epochs + 1):
            g = self.gradient(params, advantage, old_value)
            g = g * min(1, HYPER["max_gradient_norm"] / np.linalg.norm(g))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            params = params - HYPER["learning_rate"] * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
        return params


@functools.cache
def linear(actions: str, **settings: Any) -> Agent:
    """An agent whose update is compiled once for all tests."""
    settings = {"layers": (), "environments": B, "rollout": T, "minibatches": 1} | settings
    agent = ppo(Spec((2,), "float32", SPACES[actions]), **settings)
    return agent._replace(update=jax.jit(agent.update))


def begin(agent: Agent, params: Any = None) -> Member:
    start = agent.init(jax.random.key(0), agent.hyper)
    return start if params is None else start._replace(learned=start.learned._replace(params=params))


def hyper(agent: Agent, **values: float) -> Any:
    return type(agent.hyper)(**{name: jnp.float32(x) for name, x in (HYPER | values).items()})


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.asarray(x).reshape(-1) for x in jax.tree.leaves(params)])


CASES = [("discrete", True, True), ("discrete", False, False), ("continuous", True, False)]


@pytest.mark.parametrize(("actions", "clip_values", "normalise_advantages"), CASES)
def test_against_the_reference(actions, clip_values, normalise_advantages):
    """Parameters after one epoch and after three, by one program; and the losses of the first."""
    agent = linear(actions, clip_values=clip_values, normalise_advantages=normalise_advantages)
    reference = Reference(agent, actions, clip_values, normalise_advantages)
    start = begin(agent, jax.tree.map(np.float32, reference.unflatten(reference.params)))
    for epochs in (1, 3):
        end, metrics = agent.update(start, hyper(agent, epochs=epochs), reference.rollout, jax.random.key(3))
        moved = reference.train(epochs) - reference.params
        np.testing.assert_allclose(flat(end.learned.params) - reference.params, moved, rtol=1e-3, atol=1e-4)
        if epochs == 1:
            for name, expected in reference.losses(reference.params, *reference.advantages()).items():
                np.testing.assert_allclose(metrics[name], expected, rtol=1e-4, err_msg=name)
            assert 0.1 < metrics["policy/clipped"] < 0.9
    assert agent.update._cache_size() == 1
    assert not clip_values or reference.clipped_values > 0


def test_zero_epochs_learn_nothing():
    agent = linear("discrete", clip_values=True, normalise_advantages=True)
    reference = Reference(agent, "discrete", True, True)
    start = begin(agent)
    end = agent.update(start, hyper(agent, epochs=0), reference.rollout, jax.random.key(0))[0]
    np.testing.assert_array_equal(flat(end.learned.params), flat(start.learned.params))


def test_minibatches_take_every_step_once():
    """With a learning rate of zero, their mean loss is that of the whole rollout."""
    agent = linear("discrete", minibatches=4)
    reference = Reference(agent, "discrete", True, True)
    start = begin(agent, jax.tree.map(np.float32, reference.unflatten(reference.params)))
    for seed in range(3):
        no_rate = hyper(agent, learning_rate=0, epochs=2)
        metrics = agent.update(start, no_rate, reference.rollout, jax.random.key(seed))[1]
        expected = reference.losses(reference.params, *reference.advantages())
        for name in ("loss/value", "policy/entropy", "policy/kl"):
            np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(("actions", "clip_values", "normalise_advantages"), CASES[1:])
def test_entropy_coefficient_raises_entropy(actions, clip_values, normalise_advantages):
    """Nothing to gain (no reward, a discount of zero, a critic of zero), so only the entropy moves the policy."""
    agent = linear(actions, clip_values=clip_values, normalise_advantages=normalise_advantages)
    reference = Reference(agent, actions, True, False)
    params = jax.tree.map(np.float32, reference.unflatten(reference.params))
    params["critic"] = jax.tree.map(np.zeros_like, params["critic"])
    none = np.zeros((T, B), np.float32)
    acted = reference.rollout.extras._replace(value=none)
    rollout = reference.rollout._replace(reward=none, extras=acted, next_value=none)
    entropies = []
    for coefficient in (0.0, 1.0):
        member = begin(agent, params)
        values = hyper(agent, entropy_coefficient=coefficient, discount=0, learning_rate=0.01)
        for i in range(5):
            member, metrics = agent.update(member, values, rollout, jax.random.key(i))
        entropies.append(float(metrics["policy/entropy"]))
        if not coefficient:
            np.testing.assert_array_equal(flat(member.learned.params), flat(params))
    assert entropies[1] > entropies[0] + 0.01


def test_a_new_learning_rate_is_the_next_one_used():
    """Two copies, optimiser state and all, with rates 1 and 2: their next step differs by the factor 2."""
    agent = linear("discrete", clip_values=True, normalise_advantages=True)
    reference = Reference(agent, "discrete", True, True)
    parent = agent.update(begin(agent), hyper(agent, learning_rate=0.5), reference.rollout, jax.random.key(0))[0]
    one, two = (
        agent.update(parent, hyper(agent, learning_rate=rate), reference.rollout, jax.random.key(1))[0]
        for rate in (0.01, 0.02)
    )
    before, one, two = (flat(x.learned.params) for x in (parent, one, two))
    assert np.abs(one - before).max() > 1e-3
    np.testing.assert_allclose(two - before, 2 * (one - before), rtol=1e-3, atol=1e-6)


def test_observation_statistics_move_after_the_update():
    """The ratio of an unchanged policy is one although its observations are normalised; then statistics take them in."""
    agent = linear("discrete", normalise_observations=True)
    rollout = Reference(agent, "discrete", True, True).rollout
    act = jax.jit(agent.act)
    start = begin(agent)
    for i in range(2):
        obs = (rollout.obs * 3 + 10 + i).astype(np.float32)
        acted = [act(start.learned, agent.hyper, x, (), jax.random.key(t)) for t, x in enumerate(obs)]
        action, extras = jax.tree.map(lambda *x: np.stack(x), *[(action, extras) for action, _, extras in acted])
        now = rollout._replace(obs=obs, action=action, extras=extras)
        start, metrics = agent.update(start, hyper(agent), now, jax.random.key(0))
        np.testing.assert_allclose(metrics["policy/kl"], 0, atol=1e-6)
        assert metrics["policy/clipped"] == 0
    seen = np.concatenate([(rollout.obs * 3 + 10 + i).reshape(-1, 2) for i in range(2)])
    np.testing.assert_allclose(start.learned.observations.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(start.learned.observations.variance, seen.var(0), rtol=1e-4)


def test_reward_normalisation_makes_the_scale_irrelevant():
    agent = linear("discrete", normalise_rewards=True)
    rollout = Reference(agent, "discrete", True, True).rollout
    ends = []
    for scale in (np.float32(0.05), np.float32(20)):
        member = begin(agent)
        for i in range(3):
            scaled = rollout._replace(reward=rollout.reward * scale)
            member, _ = agent.update(member, hyper(agent, epochs=2), scaled, jax.random.key(i))
        ends.append(flat(member.learned.params))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3, atol=1e-4)


NETWORKS = ["nature_cnn", lambda spec: nn.Sequential([Features(spec.obs_shape), nn.Dense(5)])]


@pytest.mark.slow
@pytest.mark.parametrize(("network", "shared"), [(NETWORKS[0], True), (NETWORKS[1], True), (NETWORKS[1], False)])
def test_images(network, shared):
    """Bytes from the environment to one network of policy and critic, or to one each; every layer learns."""
    spec = Spec(shape := (36, 40, 1), "uint8", SPACES["discrete"])
    agent = ppo(spec, network=network, shared=shared, layers=(), environments=B, rollout=T, minibatches=2)
    member = jax.jit(agent.init)(jax.random.key(0), agent.hyper)
    obs = np.random.default_rng(0).integers(256, size=(T, B, *shape), dtype=np.uint8)
    action, _, extras = jax.vmap(agent.act, (None, None, 0, None, None))(
        member.learned, agent.hyper, obs, (), jax.random.key(0)
    )
    rollout = Reference(linear("discrete"), "discrete", True, True).rollout
    rollout = rollout._replace(obs=obs, action=action, extras=extras)
    end, metrics = jax.jit(agent.update)(member, hyper(agent), rollout, jax.random.key(1))
    assert np.isfinite(metrics["loss/value"])
    assert len(end.learned.params["networks"]) == 2 - shared
    for before, after in zip(jax.tree.leaves(member.learned.params), jax.tree.leaves(end.learned.params), strict=True):
        assert (before != after).any()


@pytest.mark.slow
def test_a_shared_network_learns_from_both_losses():
    """Its gradient is the sum of the gradients that a policy's own and a critic's own would get, from equal weights."""
    spec = Spec((2,), "float32", SPACES["discrete"])
    rollout = Reference(linear("discrete"), "discrete", True, True).rollout
    steps, weights = {}, {"params": {"layers_0": {"kernel": np.float32([[0.5, -1, 0.3], [1, 0.2, -0.4]])}}}
    weights["params"]["layers_0"]["bias"] = np.float32([0.1, 0, -0.2])
    for shared in (True, False):
        settings = {"layers": (), "environments": B, "rollout": T, "minibatches": 1, "shared": shared}
        agent = ppo(spec, network=lambda spec: nn.Sequential([nn.Dense(3)]), **settings)
        start = agent.init(jax.random.key(0), agent.hyper)
        start.learned.params["networks"][:] = [weights] * (2 - shared)
        values = hyper(agent, learning_rate=1e-3, max_gradient_norm=1e9)
        moments = jax.jit(agent.update)(start, values, rollout, jax.random.key(0))[0].learned.optimiser[1][0].mu
        steps[shared] = [flat(x) for x in moments["networks"]]  # Adam's first moment: a tenth of the gradient
    np.testing.assert_allclose(steps[True][0], np.sum(steps[False], 0), rtol=1e-4, atol=1e-6)
    assert (np.abs(steps[False]) > 1e-4).any(1).all()


def test_unfitting_minibatches():
    with pytest.raises(BadInput, match=r"minibatches = 5: does not divide the 24 steps"):
        linear("discrete", minibatches=5)


def test_minibatches_of_one_step():
    """Its advantage is its own mean: normalised it is 0, and nothing would be learned."""
    with pytest.raises(BadInput, match=r"minibatches = 24: a minibatch of one step .* nothing is learned"):
        linear("discrete", minibatches=24)
    ppo(
        Spec((2,), "float32", SPACES["discrete"]), environments=B, rollout=T, minibatches=24, normalise_advantages=False
    )


def test_the_deviation_of_actions_has_bounds_and_comes_back_from_them():
    """Pushed up by nothing but the entropy, far beyond where actions mean something, and down as soon as that pays."""
    agent = linear("continuous", normalise_advantages=False)
    rollout = Reference(agent, "continuous", True, False).rollout._replace(reward=np.zeros((T, B), np.float32))
    act = jax.jit(agent.act)
    member, obs, key = begin(agent), np.zeros((T, B, 2), np.float32), jax.random.key(0)
    member = begin(agent, jax.tree.map(np.zeros_like, member.learned.params))
    for coefficient, low, high in ((1.0, 1.99, 2.01), (-1.0, -10.01, 1.0)):
        values = hyper(agent, entropy_coefficient=coefficient, discount=0, value_coefficient=0)
        for _ in range(60):
            action, _, extras = act(member.learned, agent.hyper, obs, (), key)
            now = rollout._replace(obs=obs, action=np.asarray(action), extras=extras)
            member, metrics = agent.update(member, values, now, key)
        log_std = float(metrics["policy/entropy"]) / 2 - 0.5 * np.log(2 * np.pi * np.e)
        assert low < log_std < high
