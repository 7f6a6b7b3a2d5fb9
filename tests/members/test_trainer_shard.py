"""How the states of trainers travel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.runs import tiny

from shoal.environments.measurement import Measurement
from shoal.experiment.experiment import Fitness
from shoal.experiment.resolve import resolve
from shoal.members.trainer_shard import TrainerShard

SUPPORT = str(Path(__file__).parents[1] / "support")


def shard_of(monkeypatch, place: Path, name: str = "Sound", **options) -> TrainerShard:
    monkeypatch.syspath_prepend(SUPPORT)
    trainers = resolve(tiny(agent=f"trainers:{name}", env="", config={}, fitness=Fitness())).learner
    return TrainerShard(trainers, [np.arange(2)], 0, 8, Measurement(), place=lambda: place, **options)


def begin(shard: TrainerShard) -> None:
    shard.begin({name: np.full(2, x, np.float32) for name, x in shard._trainers.hyper._asdict().items()})


def test_a_state_arrives_as_it_was_sent(monkeypatch, tmp_path):
    shard = shard_of(monkeypatch, tmp_path)
    sent = {"count": np.array(3), "w": np.arange(6.0).reshape(2, 3).T}, {"replay": np.zeros((0, 2), np.uint8)}
    arrived = shard.unpack(np.pad(shard.pack(sent), (0, 9)))
    shard.close()
    for part, other in zip(sent, arrived, strict=True):
        assert part.keys() == other.keys()
        for name, x in part.items():
            assert other[name].shape == x.shape and other[name].dtype == x.dtype and np.array_equal(other[name], x)


def test_close_leaves_no_socket_open(monkeypatch, tmp_path):
    shard = shard_of(monkeypatch, tmp_path)
    begin(shard)
    shard.train(0, 1, 1)
    sockets = [process._peer for process in shard._processes]
    assert len(sockets) == shard.devices and all(peer.fileno() >= 0 for peer in sockets)
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
