"""Runs of a study of one structure are compiled once, and come to the same as each would by itself, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import yaml
from support.runs import SETTINGS, same_run

from shoal.experiment.experiment import Experiment
from shoal.members.devices import Program
from shoal.records.screen import Output
from shoal.run.train import train
from shoal.study.scheduler import run_study

pytestmark = pytest.mark.compiles
BARE = {"population": 2, "config": SETTINGS["config"] | {"layers": []}}
CASES: dict[str, tuple[dict[str, Any], dict[str, dict]]] = {
    "living": (BARE, {"pbt": {}, "control": {"method": "independent", "interval": 96, "hyper": {"discount": 0.9}}}),
    "two_shards": ({"shards": 2}, {"pbt": {}, "control": {"method": "independent"}}),
    "host": ({"env": "gym:CartPole-v1"}, {"pbt": {}, "control": {"method": "independent"}}),
    "halving": (
        {"method": "successive_halving", "generations": 6},
        {"pbt": {}, "longer": {"interval": 96}},
    ),
    "drawn": ({"method": "es", "config": {"layers": [8]}}, {"es": {}, "again": {"generations": 3}}),
}


def noted(programs: list[str], compile_: Callable) -> Callable:
    """Programs are compiled as before, and noted: their names, with a checksum of what they do."""

    def compiled(program: Program, traced: Any) -> None:
        does = traced.as_text()
        programs.append(f"{does.split()[1]} {crc32(does.encode()):08x}")
        compile_(program, traced)

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_runs_are_compiled_once_and_equal_those_of_train(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, arms = CASES[case]
    base = SETTINGS | base
    file, out = tmp_path / "study.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump({"base": base, "arms": arms, "seeds": 2, "unequal_steps": True}, sort_keys=False))
    compiled: list[str] = []
    monkeypatch.setattr(Program, "_compile", noted(compiled, Program._compile))  # no public name: counted where it is
    run_study(file, out, Output(), quiet=True)
    assert compiled and sorted(compiled) == sorted(set(compiled))
    seconds = {
        (arm, seed): json.loads((out / f"runs/{arm}/{seed}/result.json").read_text())["compile_seconds"]
        for seed in range(2)
        for arm in arms
    }
    first, *others = seconds.values()
    # The programs of members are most of all; what moves members between shards is compiled when it is first needed.
    assert sum(others) < first / 2
    last = list(arms)[-1]
    train(Experiment(**base | arms[last], seed=1, run_dir=str(tmp_path / "alone")))
    same_run(out / f"runs/{last}/1", tmp_path / "alone")
