"""Terms of one's own in the loss of PPO's and SAC's policies. What is learned by them: test_ppo.py and test_sac.py."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from support import reference
from support.messages import Said
from support.ppo_reference import Reference, hyper, linear
from support.runs import CONFIG, build_run, ended, tiny

from shoal.agents.ppo import ppo
from shoal.agents.sac import sac
from shoal.core.errors import BadInput
from shoal.core.spec import Box, Spec

CONTINUOUS = Spec(reference.OBS, "float32", Box((-2.0, -1.0), (2.0, 3.0)))


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
    start = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper)
    with pytest.raises(BadInput) as refused:
        jax.eval_shape(agent.update, start, hyper(agent), rollout, jax.random.key(0))
    said(refused.value)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_when_called")  # nothing is evaluated
@pytest.mark.parametrize("first", [0, 1], ids=["with first", "without first"])
def test_members_with_and_without_it_are_one_population(tmp_path, monkeypatch: pytest.MonkeyPatch, first: int):
    """The metric of those that have none is left blank."""
    (tmp_path / "own_loss.py").write_text("def loss(batch, distribution):\n    return distribution.entropy()\n")
    monkeypatch.syspath_prepend(tmp_path)
    choices = {"choices": [["own_loss:loss", None][first], ["own_loss:loss", None][1 - first]]}
    config = CONFIG | {"layers": [], "auxiliary_loss": choices}
    run = build_run(tiny(population=2, method="independent", config=config))
    run.shard.begin(run.evolver.init((0,), run.shard.uid)[1])
    row = ended(0, np.zeros(2), run.shard.train(0, 1, 1)).rows.metrics["members"]
    assert sorted(x is None for x in row["loss/auxiliary"]) == [False, True] and None not in row["loss/value"]
