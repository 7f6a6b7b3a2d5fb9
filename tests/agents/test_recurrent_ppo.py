"""PPO with an LSTM against a reference in NumPy: what it remembers while it acts is what it learns with."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from support.cases import others_slow
from support.ppo_reference import SPACES, Reference, T, assert_alike, flat, hyper, linear
from support.tiny import same

from shoal.agents.ppo import ppo
from shoal.core.errors import BadInput
from shoal.core.spec import Spec
from shoal.core.types import Agent, Member, Rollout

UNITS = 2
CASES = [("discrete", True, True), ("continuous", False, True), ("discrete", False, False)]


def recurrent(actions: str = "discrete", **settings: Any) -> Agent:
    return linear(
        actions, lstm_hidden_size=UNITS, **{"share_features_extractor": True, "normalize_advantages": True} | settings
    )


@pytest.mark.parametrize(("actions", "shared", "normalize_advantages"), others_slow(CASES, CASES[0]))
def test_against_the_reference(actions, shared, normalize_advantages):
    """Gradients go back through every step since an episode's beginning."""
    agent = recurrent(actions, share_features_extractor=shared, normalize_advantages=normalize_advantages)
    reference = Reference(agent, actions, False, normalize_advantages)
    assert len(reference.member(agent).learned.params["recurrent"]) == 2 - shared
    assert_alike(agent, reference)


@pytest.mark.slow
def test_parts_are_whole_environments():
    agent = recurrent(num_minibatches=2)
    assert_alike(agent, Reference(agent, "discrete", False, True, minibatches=2))


def lived(agent: Agent, member: Member, reference: Reference, obs: np.ndarray) -> Rollout:
    """The rollout of a member that sees these observations, and forgets at the ends of the reference's rollout."""
    rollout, act = reference.rollout, jax.jit(agent.act)
    carry, told = rollout.carry, []
    for t in range(T):
        action, carry, extras = act(member.learned, agent.hyper, obs[t], carry, jax.random.key(t))
        told.append((action, extras))
        done = (rollout.terminated[t] | rollout.truncated[t])[:, None]
        carry = jax.tree.map(lambda x, done=done: np.where(done, np.float32(0), x), carry)
    action, extras = jax.tree.map(lambda *x: np.stack(x), *told)
    return rollout._replace(obs=obs, action=action, extras=extras)


@pytest.mark.parametrize("odd", others_slow([0.0, np.nan, 1e30], np.nan))
def test_it_learns_with_what_it_acted_with(odd):
    """Before the first step of the optimiser all ratios are one, amid an episode and after an end. So they are where an
    observation could not be learned from: with it, all that came before is forgotten."""
    agent = recurrent()
    reference = Reference(agent, "discrete", True, True)
    member = reference.member(agent)
    seen, _ = reference.seen(reference.unflatten(reference.params))
    usual = lived(agent, member, reference, reference.rollout.obs)
    expected = reference.policy(reference.unflatten(reference.params), seen[0], usual.action)[0]
    np.testing.assert_allclose(usual.extras.log_prob, expected, rtol=1e-4)
    obs, ended = reference.rollout.obs.copy(), reference.rollout.terminated | reference.rollout.truncated
    obs[2, (b := np.argmin(ended[2]))] += np.float32(odd)
    rollout = lived(agent, member, reference, obs)
    assert same(rollout.extras.log_prob[3, b], usual.extras.log_prob[3, b]) == (odd == 0)
    end, metrics = agent.update(member, hyper(agent), rollout, jax.random.key(0))
    np.testing.assert_allclose(metrics["policy/approx_kl"], 0, atol=1e-6)
    assert metrics["policy/clip_fraction"] == 0 and np.isfinite(flat(end.learned.params)).all()


def test_unfitting_settings(said):
    spec = Spec((2,), "float32", SPACES["discrete"])
    with pytest.raises(BadInput) as error:
        ppo(spec, lstm_hidden_size=UNITS, num_envs=4, rollout_length=6, num_minibatches=3)
    said(error.value)
    with pytest.raises(BadInput) as error:
        ppo(spec, lstm_hidden_size=-1)
    said(error.value)
