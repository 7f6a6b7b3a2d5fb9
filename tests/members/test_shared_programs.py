"""What tests share of one another is what computes the same: a field that changes a program changes its key."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from support.programs import SharedProgram, share
from support.runs import CONFIG, SETTINGS, tiny

from shoal.agents.ppo import Config
from shoal.experiment.experiment import Fitness
from shoal.experiment.plan import make_plan

OTHERS = {
    "layers": [9],
    "activation": "relu",
    "precision": "bfloat16",
    "rollout": 8,
    "environments": 4,
    "minibatches": 1,
}
OTHERS |= {"recurrent": 3, "shared": True, "frame_stack": 2}
NO_PROGRAM = ("network", "actor", "critic")  # of one's own; of observations that are dictionaries


def keys(**changes: Any) -> dict[str, Any]:
    """Of the programs of a tiny run, by their names."""
    plan = make_plan(tiny(**changes))
    with pytest.MonkeyPatch.context() as patch:
        share(patch)
        shard = plan.kind.shard(plan.members(), plan.setup)
    holders = (shard, shard.rollouts)
    return {n: x.key for holder in holders for n, x in vars(holder).items() if isinstance(x, SharedProgram)}


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    return keys()


@pytest.mark.parametrize(
    "same", [{"seed": 5}, {"select": "tournament"}, {"hyper": {"discount": 0.5}}, {"generations": 9}]
)
def test_what_no_program_depends_on_is_shared(usual: dict[str, Any], same: dict[str, Any]) -> None:
    assert keys(**same) == usual and {"_train", "_test", "_init", "_inherit"} <= usual.keys()


@pytest.mark.parametrize("field", [f.name for f in fields(Config) if f.name not in NO_PROGRAM])
def test_every_field_of_the_structure_is_in_the_key(usual: dict[str, Any], field: str) -> None:
    before = CONFIG.get(field, getattr(Config(), field))
    other = not before if isinstance(before, bool) else OTHERS[field]
    assert keys(config=CONFIG | {field: other})["_train"] != usual["_train"]


@pytest.mark.parametrize(
    "changes", [{"env": "Acrobot-v1"}, {"population": 6}, {"env_options": {"max_steps_in_episode": 9}}]
)
def test_so_are_the_environment_and_how_members_are_measured(usual: dict[str, Any], changes: dict[str, Any]) -> None:
    if "population" in changes:  # three on each of two devices; the arguments' shapes tell them apart
        assert keys(**changes) == usual
        return
    assert keys(**changes)["_train"] != usual["_train"]
    sampled = replace(Fitness(**SETTINGS["fitness"]), actions="sampled")
    assert keys(fitness=sampled)["_test"] != usual["_test"]
