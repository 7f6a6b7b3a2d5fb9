"""What runs share of one another is what computes the same: what changes a program changes the structure."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from support.runs import CONFIG, SETTINGS, build_run, of_method, tiny

from shoal.agents.registry import PpoConfig
from shoal.core.space import Range
from shoal.experiment.experiment import Checkpoint, Experiment, Fitness
from shoal.members import trace_cache as sharing

OTHERS = {
    "layers": [9],
    "activation": "relu",
    "log_std_init": -1.0,
    "precision": "bfloat16",
    "rollout_length": 8,
    "num_envs": 4,
    "num_minibatches": 1,
}
OTHERS |= {
    "lstm_hidden_size": 3,
    "share_features_extractor": True,
    "frame_stack": 2,
    "auxiliary_loss": lambda batch, distribution: batch.value,
}
NO_PROGRAM = ("network", "actor", "critic")  # of one's own; of observations that are dictionaries
SAME: list[dict[str, Any]] = [
    {"seed": 5},
    {"generations": 9, "interval": 128},
    {"budget": 10_000},
    {"time_limit": 600.0},
    {"stop": {"patience": 9}},
    {"hyper": {"discount": 0.5, "learning_rate_end_factor": 0.0}},
    {"space": {"learning_rate": Range(1e-4, 1e-2, "log")}},
    {"checkpoint": Checkpoint(every=2)},
    {"select": "tournament"},
    {"method": "independent"},
    {"method": "pb2"},
    {"burn_in": 64},
    {"final_episodes": 9},
    {"run_dir": "elsewhere"},
    {"wandb": {"mode": "offline"}},
]
FITNESS = Fitness(**SETTINGS["fitness"])
OTHER: list[dict[str, Any]] = [
    {"env": "Acrobot-v1"},
    {"env_options": {"max_steps_in_episode": 9}},
    {"population": 6},
    {"shards": 2},
    {"replay": "copy"},
    {"fitness": replace(FITNESS, deterministic=False)},
    {"fitness": replace(FITNESS, episodes=3)},
    {"fitness": replace(FITNESS, source="training")},
    {"levels": {"train": 5}},
    {"agent": "dqn", "config": {"learning_starts": 32}},
    {"hyper": {"env.gravity": 9.0}},
]


BESIDE = {"exchange", "processes", "python", "init_from"}  # other processes, and files


def structures(*runs: dict[str, Any]) -> int:
    """Of how many structures tiny runs with these changes are."""
    kept: sharing.Kept = []
    with sharing.trace_cache(kept):
        for changes in runs:
            build_run(tiny(**changes))
    return len(kept)


@pytest.mark.parametrize("same", SAME, ids=str)
def test_what_no_program_depends_on_is_shared(same: dict[str, Any]) -> None:
    assert structures({}, same) == 1


@pytest.mark.parametrize("other", OTHER, ids=str)
def test_what_a_program_may_depend_on_is_not(other: dict[str, Any]) -> None:
    assert structures({}, other, other) == 2


def test_every_field_of_an_experiment_is_in_a_table() -> None:
    named = {name for changes in SAME + OTHER for name in of_method(changes)}
    assert named | BESIDE == {f.name for f in fields(Experiment)}


@pytest.mark.parametrize("field", [f.name for f in fields(PpoConfig) if f.name not in NO_PROGRAM])
def test_every_field_of_the_agent_tells_structures_apart(field: str) -> None:
    before = CONFIG.get(field, getattr(PpoConfig(), field))
    other = not before if isinstance(before, bool) else OTHERS[field]
    assert structures({}, {"config": CONFIG | {field: other}}) == 2


def test_methods_with_a_learner_of_their_own_share_with_themselves_alone() -> None:
    es: dict[str, Any] = {"config": {}}
    runs = [{"method": {"name": "es"} | options} | es for options in ({}, {"optimizer": "sgd"})]
    assert structures(*runs, *({"seed": 1} | run for run in runs)) == 2


def test_equal_numbers_of_different_types_are_no_equal_options() -> None:
    runs = [{"env_options": {"max_steps_in_episode": n}} for n in (1, True, 1.0)]
    assert structures(*runs) == 3


def test_only_so_many_structures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST", 2)
    runs = [{"population": n} for n in (2, 4, 6, 8)]
    assert structures(*runs) == 2


def test_nothing_is_shared_beside_and_within_it_is_what_was_there() -> None:
    outer: sharing.Kept = []
    build_run(tiny())
    with sharing.trace_cache(outer):
        build_run(tiny())
        with sharing.trace_cache():
            build_run(tiny(seed=1))
    build_run(tiny(population=6))
    assert len(outer) == 1
