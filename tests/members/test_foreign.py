"""Members that trainers train in processes of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.runs import tiny

from shoal.environments.measurement import Measurement
from shoal.experiment.experiment import Fitness
from shoal.experiment.plan import make_plan
from shoal.members.foreign import ForeignShard
from shoal.members.shard import Setup

SUPPORT = str(Path(__file__).parents[1] / "support")


def shard_of(monkeypatch, place: Path, name: str = "Sound", **options) -> ForeignShard:
    monkeypatch.syspath_prepend(SUPPORT)
    kind = make_plan(tiny(agent=f"trainers:{name}", env="", config={}, fitness=Fitness())).kind
    return kind.shard([np.arange(2)], Setup(0, Measurement(), 8, logs=lambda: place, **options))


def begin(shard: ForeignShard) -> None:
    shard.begin({name: np.full(2, x, np.float32) for name, x in shard._trainers.hyper._asdict().items()})


def test_close_leaves_no_socket_open(monkeypatch, tmp_path):
    shard = shard_of(monkeypatch, tmp_path)
    begin(shard)
    shard.train(0, 1, 1)
    sockets = [process._peer for process in shard._processes]
    assert sockets and all(peer.fileno() >= 0 for peer in sockets)
    shard.close()
    assert all(peer.fileno() == -1 for peer in sockets)


def test_why_members_diverge_is_said_once_of_each(monkeypatch, tmp_path):
    notes: list[str] = []
    shard = shard_of(monkeypatch, tmp_path, "Exploding", note=notes.append)
    begin(shard)
    for generation in range(2):
        shard.train(generation, 1, 1)
    shard.close()
    assert [note.partition(" (")[0] for note in notes] == [
        f"member {uid} has diverged: ValueError: a loss of nan" for uid in range(2)
    ]
