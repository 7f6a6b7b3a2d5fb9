"""TensorBoard scalars: the population as a whole, and every member where members live on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.atomic import write_file
from shoal.experiment import registry
from shoal.records.jsonl import read_lines
from shoal.records.recorder import Recorder

if TYPE_CHECKING:
    from shoal.experiment.resolve import Parts
    from shoal.records.recorder import Generation

COMMON = ("diversity/determinant", "diversity/log_determinant")  # metrics that all members have in common
PAIRS = "diversity/to "  # so begin those of pairs of members: a matrix is no curve
MEMBERS_SHOWN = 64  # more curves on a page cannot be read, and writing them takes as long as training


class TensorBoard(Recorder):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member."""

    def start(self, parts: Parts, run_dir: Path, generation: int) -> None:
        self._method = registry.method(parts.experiment.method)
        told = read_lines(run_dir / "lineage.jsonl")  # of the generations before this start
        cut_back(run_dir / "tensorboard", max((row["steps"] for row in told if "steps" in row), default=0))
        self._folder = run_dir / "tensorboard"
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs

    @cached_property
    def _writer(self) -> Any:
        """Opened by the thread that writes: importing it takes longer than a first generation should wait."""
        from tensorboard.summary import Writer

        return Writer(str(self._folder))

    def generation(self, event: Generation) -> None:
        self._pool.submit(self._write, event._replace(best=replace(event.best)))

    def _write(self, event: Generation) -> None:
        step = int(event.cards.steps.max())
        add = self._writer.add_scalar
        add("population/steps_per_second", event.timing["steps_per_second"], step)
        add("champion/fitness", event.best.fitness, step)
        if self._method.drawn:
            self._write_drawn(event, step)
        else:
            self._write_members(event, step)
        self._writer.flush()  # or a kill would take minutes of it along

    def _write_members(self, event: Generation, step: int) -> None:
        """The population as a whole, and its members."""
        add = self._writer.add_scalar
        fitness = event.cards.fitness[np.isfinite(event.cards.fitness)]
        if len(fitness):
            for name, kind in (("best", np.max), ("median", np.median), ("worst", np.min)):
                add(f"population/fitness/{name}", float(kind(fitness)), step)
        if self._method.copies:
            add("population/copies", int(event.copied.sum()), step)
        for name, values in event.cards.hyper.items():
            add(f"population/hyper/{name}", float(np.median(values)), step)
        for name in (name for name in COMMON if name in event.metrics):
            add(name, float(event.metrics[name][0]), step)
        own = {name: x for name, x in event.metrics.items() if name not in COMMON and not name.startswith(PAIRS)}
        if self._method.tunes:
            own |= {f"hyper/{name}": values for name, values in event.cards.hyper.items()}
        for i, uid in enumerate(event.cards.uid[:MEMBERS_SHOWN]):
            add(f"fitness/member{uid}", float(event.cards.fitness[i]), step)
            for name, values in own.items():
                add(f"{name}/member{uid}", float(values[i]), step)

    def _write_drawn(self, event: Generation, step: int) -> None:
        """The mean and its members: one curve for each number."""
        self._writer.add_scalar("mean/fitness", float(event.cards.fitness[0]), step)
        hyper = {f"hyper/{name}": values for name, values in event.cards.hyper.items()}
        for name, values in (event.metrics | hyper).items():
            self._writer.add_scalar(name, float(values[0]), step)

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._pool.shutdown()
        if "_writer" in vars(self):
            self._writer.close()


def cut_back(folder: Path, last: int) -> None:
    """Take out of event files whatever lies beyond step `last`, and what is half-written."""
    for path in folder.glob("*tfevents*"):
        data = path.read_bytes()
        kept = b"".join(record for record, step in _records(data) if step <= last)
        if kept != data:
            write_file(path, kept, via=folder.parent)  # TensorBoard would read a half-written one here


def _records(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The records of an event file and their steps, up to the first that is not whole."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    at = 0
    while len(data) >= at + 12:
        end = at + 12 + struct.unpack_from("<Q", data, at)[0] + 4  # length and its checksum, event, and its checksum
        if end > len(data):
            return
        try:
            yield data[at:end], Event.FromString(data[at + 12 : end - 4]).step
        except DecodeError:
            return
        at = end
