"""Members that trainers train in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from support.runs import tiny

from shoal.environments.evaluation import EvaluationConfig
from shoal.experiment.experiment import Fitness
from shoal.experiment.plan import make_plan
from shoal.members.external import ExternalShard
from shoal.members.protocol import Setup

SUPPORT = str(Path(__file__).parents[1] / "support")


def shard_of(monkeypatch, place: Path, name: str = "Sound", **options) -> ExternalShard:
    monkeypatch.syspath_prepend(SUPPORT)
    kind = make_plan(tiny(agent=f"trainers:{name}", env="", config={}, fitness=Fitness())).kind
    shard = kind.shard([np.arange(2)], Setup(0, EvaluationConfig(), 8, logs=lambda: place, **options))
    shard.begin({name: np.full(2, x, np.float32) for name, x in kind.tunable.hyper._asdict().items()})
    return shard


def sockets() -> set[str]:
    """Those that this process has open."""
    files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return {file for file in files if "socket:" in file}


def test_close_leaves_no_socket_open(monkeypatch, tmp_path):
    before = sockets()
    shard = shard_of(monkeypatch, tmp_path)
    shard.train(0, 1, 1)
    assert sockets() > before
    shard.close()
    assert sockets() == before


def test_why_members_diverge_is_said_once_of_each(monkeypatch, tmp_path):
    notes: list[str] = []
    shard = shard_of(monkeypatch, tmp_path, "Exploding", note=notes.append)
    for generation in range(2):
        shard.train(generation, 1, 1)
    shard.close()
    assert [note.partition(" (")[0] for note in notes] == [
        f"member {uid} has diverged: ValueError: a loss of nan" for uid in range(2)
    ]
