"""Terms of one's own in the loss of PPO's and SAC's policies."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import reference
from support.messages import Said
from support.ppo_reference import Reference, begin, flat, hyper, linear
from support.reference import B, T
from support.runs import tiny

from shoal.agents.ppo import ppo
from shoal.agents.sac import sac
from shoal.core.errors import BadInput
from shoal.core.spec import Continuous, Spec
from shoal.run.loop import train

CONTINUOUS = Spec(reference.OBS, "float32", Continuous((-2.0, -1.0), (2.0, 3.0)))


def certain(batch: Any, distribution: Any) -> Any:
    """Half of the entropy, of every step, as a coefficient of PPO would take it into account."""
    return -0.5 * distribution.entropy()


def test_ppo_learns_by_it_as_by_the_entropy_that_it_is():
    updated = []
    for settings, coefficient in (({}, 0.5), ({"auxiliary_loss": certain}, 0.0)):
        agent = linear("discrete", minibatches=4, **settings)
        rollout = Reference(agent, "discrete", False, True, minibatches=4).rollout
        values = hyper(agent, entropy_coefficient=coefficient)
        member, metrics = agent.update(begin(agent), values, rollout, jax.random.key(0))
        updated.append(flat(member.learned.params))
    np.testing.assert_allclose(*updated, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(metrics["loss/auxiliary"], -0.5 * metrics["policy/entropy"], rtol=1e-6)


def still(batch: Any, distribution: Any) -> jax.Array:
    """Actions are to be small wherever the agent has been."""
    assert batch.obs.shape[0] == distribution.mean.shape[0]
    return 1e4 * jnp.square(distribution.mean).sum(-1)


def test_sac_learns_by_it():
    """The means of the policy come nearer to zero by it. The critics do not see it in the first update."""
    sizes, critics = [], []
    for settings in ({}, {"auxiliary_loss": still}):
        agent = sac(CONTINUOUS, **reference.SETTINGS | settings)
        update, rollout = jax.jit(agent.update), reference.rollout(CONTINUOUS.action, 0)
        member = agent.init(jax.random.key(0), agent.hyper)
        last = member.learned.policy["params"]["Dense_1"]
        last["bias"] = last["bias"].at[:2].set(0.5)
        for updates in (1, 40):
            values = reference.hyper_of(agent, policy_learning_rate=0.02, update_ratio=updates / (T * B))
            member, metrics = update(member, values, rollout, jax.random.key(1))
            critics.append(flat(member.learned.critics))
        sizes.append(np.abs(agent.greedy(member.learned, rollout.obs, ())[0]).mean())
    np.testing.assert_array_equal(critics[0], critics[2])
    assert metrics["loss/auxiliary"] > 0 and sizes[1] < 0.8 * sizes[0]


@pytest.mark.parametrize("given", [3, "auxiliary_loss", "math:pi"])
@pytest.mark.parametrize("agent", [ppo, sac])
def test_what_cannot_be_one(agent: Any, given: Any, said: Said) -> None:
    with pytest.raises(BadInput) as refused:
        agent(CONTINUOUS, auxiliary_loss=given)
    said(refused.value)


def fails(batch: Any, distribution: Any) -> Any:
    return batch.nothing


@pytest.mark.parametrize(
    "auxiliary_loss", [fails, lambda batch, distribution: 0.0, lambda batch: 0.0], ids=["fails", "mean", "one"]
)
def test_what_is_wrong_with_one_is_said(auxiliary_loss: Any, said: Said) -> None:
    agent = linear("discrete", auxiliary_loss=auxiliary_loss)
    rollout = Reference(agent, "discrete", False, True).rollout
    with pytest.raises(BadInput) as refused:
        jax.eval_shape(agent.update, begin(agent), hyper(agent), rollout, jax.random.key(0))
    said(refused.value)


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["with first", "without first"])
def test_members_with_and_without_it_are_one_population(tmp_path, monkeypatch: pytest.MonkeyPatch, first: int):
    """The metric of those that have none is left blank."""
    (tmp_path / "own_loss.py").write_text("def loss(batch, distribution):\n    return distribution.entropy()\n")
    monkeypatch.syspath_prepend(tmp_path)
    choices = {"choices": [["own_loss:loss", None][first], ["own_loss:loss", None][1 - first]]}
    settings = tiny(tmp_path / "run", population=2, generations=1, method="independent")
    train(replace(settings, config=settings.config | {"auxiliary_loss": choices}))
    (row,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    found = row["members"]["loss/auxiliary"]
    assert sorted(x is None for x in found) == [False, True] and None not in row["members"]["loss/value"]
