"""PPO against a reference in NumPy."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from support.ppo_reference import HYPER, SPACES, B, Reference, T, assert_alike, begin, discounted, flat, hyper, linear

from shoal.agents.ppo import ppo
from shoal.core.errors import BadInput
from shoal.core.spec import Spec
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import to_dict
from shoal.rl.networks import Features

CASES = [("discrete", True, True), ("discrete", False, False), ("continuous", True, False)]


@pytest.mark.parametrize(("actions", "clip_value_loss", "normalize_advantages"), CASES)
def test_against_the_reference(actions, clip_value_loss, normalize_advantages):
    """Parameters and losses, by one program for any number of epochs."""
    agent = linear(actions, clip_value_loss=clip_value_loss, normalize_advantages=normalize_advantages)
    reference = Reference(agent, actions, clip_value_loss, normalize_advantages)
    metrics = assert_alike(agent, reference)
    assert 0.1 < metrics["policy/clip_fraction"] < 0.9
    assert -1 < metrics["value/explained_variance"] < 1
    assert agent.update._cache_size() == 1  # of jax.jit, which counts its traces nowhere else
    assert not clip_value_loss or reference.clipped_values > 0


def test_zero_epochs_learn_nothing():
    agent = linear("discrete", clip_value_loss=True, normalize_advantages=True)
    reference = Reference(agent, "discrete", True, True)
    start = begin(agent)
    end = agent.update(start, hyper(agent, epochs=0), reference.rollout, jax.random.key(0))[0]
    np.testing.assert_array_equal(flat(end.learned.params), flat(start.learned.params))


def test_epochs_are_rounded():
    """As explorers may leave them between two whole numbers."""
    agent = linear("discrete", clip_value_loss=True, normalize_advantages=True)
    rollout, start = Reference(agent, "discrete", True, True).rollout, begin(agent)
    two, more, less = (
        flat(agent.update(start, hyper(agent, epochs=x), rollout, jax.random.key(0))[0].learned.params)
        for x in (2, 1.6, 2.4)
    )
    np.testing.assert_array_equal(more, two)
    np.testing.assert_array_equal(less, two)


def test_minibatches():
    """Each with its own mean and deviation of advantages, and in another order in every epoch."""
    agent = linear("discrete", num_minibatches=4)
    assert_alike(agent, Reference(agent, "discrete", False, True, minibatches=4))


def certain(batch: Any, distribution: Any) -> Any:
    """Half of the entropy, of every step, as a coefficient of PPO would take it into account."""
    return -0.5 * distribution.entropy()


def test_it_learns_by_an_auxiliary_loss_as_by_the_entropy_that_it_is():
    updated = []
    for settings, coefficient in (({}, 0.5), ({"auxiliary_loss": certain}, 0.0)):
        agent = linear("discrete", num_minibatches=4, **settings)
        rollout = Reference(agent, "discrete", False, True, minibatches=4).rollout
        values = hyper(agent, entropy_coefficient=coefficient)
        member, metrics = agent.update(begin(agent), values, rollout, jax.random.key(0))
        updated.append(flat(member.learned.params))
    np.testing.assert_allclose(*updated, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(metrics["loss/auxiliary"], -0.5 * metrics["policy/entropy"], rtol=1e-6)


@pytest.mark.parametrize(("actions", "clip_value_loss", "normalize_advantages"), CASES[1:])
def test_entropy_coefficient_raises_entropy(actions, clip_value_loss, normalize_advantages):
    """Nothing to gain (no reward, a discount of zero, a critic of zero), so only the entropy moves the policy."""
    agent = linear(actions, clip_value_loss=clip_value_loss, normalize_advantages=normalize_advantages)
    reference = Reference(agent, actions, True, False)
    params = jax.tree.map(np.float32, reference.unflatten(reference.params))
    params["critic"] = jax.tree.map(np.zeros_like, params["critic"])
    none = np.zeros((T, B), np.float32)
    acted = reference.rollout.extras._replace(value=none)
    rollout = reference.rollout._replace(reward=none, extras=acted, bootstrap_value=none)
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
    agent = linear("discrete", clip_value_loss=True, normalize_advantages=True)
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
    agent = linear("discrete", normalize_observations=True)
    rollout = Reference(agent, "discrete", True, True).rollout
    act = jax.jit(agent.act)
    start = begin(agent)
    for i in range(2):
        obs = (rollout.obs * 3 + 10 + i).astype(np.float32)
        acted = [act(start.learned, agent.hyper, x, (), jax.random.key(t)) for t, x in enumerate(obs)]
        action, extras = jax.tree.map(lambda *x: np.stack(x), *[(action, extras) for action, _, extras in acted])
        now = rollout._replace(obs=obs, action=action, extras=extras)
        start, metrics = agent.update(start, hyper(agent), now, jax.random.key(0))
        np.testing.assert_allclose(metrics["policy/approx_kl"], 0, atol=1e-6)
        assert metrics["policy/clip_fraction"] == 0
    seen = np.concatenate([(rollout.obs * 3 + 10 + i).reshape(-1, 2) for i in range(2)])
    np.testing.assert_allclose(start.learned.observations.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(start.learned.observations.variance, seen.var(0), rtol=1e-4)


def test_rewards_are_divided_by_the_deviation_of_the_return():
    """Of the discounted sum of rewards, at all steps so far; an odd reward is in none. Then they are clipped."""
    agent = linear("discrete", normalize_rewards=True)
    reference, rng, past = Reference(agent, "discrete", False, True), np.random.default_rng(0), []
    r = reference.rollout
    ended = r.terminated | r.truncated
    for _ in range(2):
        # That sum is about 20 at every step: it hardly varies, so that an episode's first reward is many deviations.
        is_first = np.concatenate([ended[-1:] | (not past), ended[:-1]])
        reward = np.where(is_first, 20, 20 * (1 - HYPER["discount"])) + rng.normal(size=(T, B))
        past.append(r._replace(reward=reward.astype(np.float32)))
    past[0].reward[2, 1] = np.nan
    member, _ = agent.update(begin(agent), hyper(agent), past[0], jax.random.key(0))
    sums = discounted(past[:1])
    np.testing.assert_allclose(member.learned.returns, [sums.mean(), sums.var(), sums.size], rtol=1e-4)
    unclipped = past[1].reward / discounted(past).std()
    reference.rollout, reference.reward = past[1], np.clip(unclipped, -10, 10)
    assert 0 < (reference.reward != unclipped).mean() < 0.5
    start = reference.member(agent)
    start = start._replace(learned=start.learned._replace(returns=member.learned.returns), own=member.own)
    assert_alike(agent, reference, start)


NETWORKS = ["nature_cnn", lambda spec: nn.Sequential([Features(spec.obs_shape), nn.Dense(5)])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "shared", "memory"),
    [(NETWORKS[0], True, {}), (NETWORKS[1], True, {}), (NETWORKS[1], False, {"lstm_hidden_size": 3, "frame_stack": 2})],
)
def test_images(network, shared, memory):
    """Bytes from the environment to one network of policy and critic, or to one each; every layer learns."""
    spec = Spec(shape := (36, 40, 1), "uint8", SPACES["discrete"])
    agent = ppo(
        spec,
        network=network,
        share_features_extractor=shared,
        layers=(),
        num_envs=B,
        rollout_length=T,
        num_minibatches=2,
        **memory,
    )
    member = jax.jit(agent.init)(jax.random.key(0), agent.hyper)
    obs = np.random.default_rng(0).integers(256, size=(T, B, *shape), dtype=np.uint8)
    carry = agent.carry((B,))
    action, _, extras = jax.vmap(agent.act, (None, None, 0, None, None))(
        member.learned, agent.hyper, obs, carry, jax.random.key(0)
    )
    rollout = Reference(linear("discrete"), "discrete", True, True).rollout
    rollout = rollout._replace(obs=obs, action=action, extras=extras, carry=carry)
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
        settings = {
            "layers": (),
            "num_envs": B,
            "rollout_length": T,
            "num_minibatches": 1,
            "share_features_extractor": shared,
        }
        agent = ppo(spec, network=lambda spec: nn.Sequential([nn.Dense(3)]), **settings)
        start = agent.init(jax.random.key(0), agent.hyper)
        start.learned.params["networks"][:] = [weights] * (2 - shared)
        values = hyper(agent, learning_rate=1e-3, max_gradient_norm=1e9)
        moments = jax.jit(agent.update)(start, values, rollout, jax.random.key(0))[0].learned.optimizer[1][0].mu
        steps[shared] = [flat(x) for x in moments["networks"]]  # Adam's first moment: a tenth of the gradient
    np.testing.assert_allclose(steps[True][0], np.sum(steps[False], 0), rtol=1e-4, atol=1e-6)
    assert (np.abs(steps[False]) > 1e-4).any(1).all()


def wide(spec: Spec, width: int) -> nn.Module:
    return nn.Sequential([nn.Dense(width)])


def test_a_network_of_ones_own_gets_its_arguments():
    """From Python the function, and from a file where it is; the experiment that a run keeps names it, too."""
    for name in (wide, f"{__name__}:wide"):
        agent = ppo(Spec((2,), "float32", SPACES["discrete"]), network={"name": name, "width": 5})
        params = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper).learned.params
        assert [x.shape for x in jax.tree.leaves(params["networks"])] == [(5,), (2, 5)]
    kept = to_dict(Experiment(config={"network": {"name": wide, "width": 5}}))
    assert kept["config"]["network"] == {"name": f"{__name__}:wide", "width": 5}


def test_unfitting_minibatches(said):
    with pytest.raises(BadInput) as error:
        linear("discrete", num_minibatches=5)
    said(error.value)


def test_minibatches_of_one_step(said):
    """Its advantage is its own mean: normalised it is 0, and nothing would be learned."""
    with pytest.raises(BadInput) as error:
        linear("discrete", num_minibatches=24)
    said(error.value)
    ppo(
        Spec((2,), "float32", SPACES["discrete"]),
        num_envs=B,
        rollout_length=T,
        num_minibatches=24,
        normalize_advantages=False,
    )


def test_the_deviation_of_actions_has_bounds_and_comes_back_from_them():
    """Pushed up by nothing but the entropy, far beyond where actions mean something, and down as soon as that pays."""
    agent = linear("continuous", normalize_advantages=False)
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


@pytest.mark.parametrize("log_std", [0.0, -2.0])
def test_actions_deviate_at_first_as_told(log_std):
    """By the mean of squares around the policy's mean, before any update."""
    agent = ppo(
        Spec((2,), "float32", SPACES["continuous"]), layers=(), num_envs=B, rollout_length=T, log_std_init=log_std
    )
    learned, obs = begin(agent).learned, np.zeros((4096, 2), np.float32)
    action, _, extras = agent.act(learned, agent.hyper, obs, (), jax.random.key(0))
    around = np.asarray(action) - agent.act_deterministic(learned, obs, ())[0]
    np.testing.assert_allclose(np.log(around.std()), log_std, atol=0.05)
    density = -0.5 * np.square(around / np.exp(log_std)) - log_std - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(extras.log_prob, density.sum(-1), rtol=1e-4, atol=1e-4)
