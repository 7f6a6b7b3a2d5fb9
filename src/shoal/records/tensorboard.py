"""TensorBoard scalars: the population as a whole, and every member where members live on."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.atomic import write_file
from shoal.records.jsonl import read_lines
from shoal.records.recorder import Recorder, lineage_rows, metrics_row

if TYPE_CHECKING:
    from shoal.records.recorder import Generation, Start

COMMON = ("diversity/determinant", "diversity/log_determinant")  # metrics that all members have in common
PAIRS = "diversity/to "  # so begin those of pairs of members: a matrix is no curve
MEMBERS_SHOWN = 64  # more curves on a page cannot be read, and writing them takes as long as training
LATER = 0.1  # seconds after a generation that its curves are written, at most


class Rows(NamedTuple):
    """What the files of a run hold of one generation."""

    lineage: list[dict[str, Any]]  # one row per member
    metrics: dict[str, Any]

    @property
    def step(self) -> int:
        """Environment steps per member so far."""
        return max(row["steps"] for row in self.lineage)


class TensorBoard(Recorder):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member.

    It is written behind the run, so that a kill may lose the newest points: they are written when the run is resumed.
    """

    def start(self, event: Start) -> None:
        run_dir, self._method = event.run_dir, event.resolved.method
        self._folder = run_dir / "tensorboard"
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs
        earlier = read_rows(run_dir)
        written = cut_back(self._folder, max((rows.step for rows in earlier), default=0))
        self._pool.submit(self._complete, earlier, written)

    @cached_property
    def _writer(self) -> Any:
        """Opened by the thread that writes: importing it takes longer than a first generation should wait."""
        from tensorboard.summary import Writer

        return Writer(str(self._folder))

    def generation(self, event: Generation) -> None:
        self._pool.submit(self._write_event, event)

    def _write_event(self, event: Generation) -> None:
        # First the loop needs the interpreter, until the next interval is under way.
        time.sleep(min(LATER, event.timing["train"] / 5))
        rows = Rows(lineage_rows(event), metrics_row(event))
        self._write(rows.step, self._scalars(rows))

    def _complete(self, earlier: list[Rows], written: set[tuple[int, str]]) -> None:
        """Write what is missing of earlier generations; `written`: the steps and tags that are there."""
        for rows in earlier:
            step = rows.step
            missing = [(tag, x) for tag, x in self._scalars(rows) if (step, tag) not in written]
            if missing:
                self._write(step, missing)

    def _write(self, step: int, points: Iterable[tuple[str, float]]) -> None:
        for tag, value in points:
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # or a kill would take minutes of it along

    def _scalars(self, rows: Rows) -> Iterator[tuple[str, float]]:
        """The points of one generation: tags and values. NaN where there is no number."""
        yield "population/steps_per_second", rows.metrics["timing"]["steps_per_second"]
        yield "champion/fitness", _number(rows.metrics["champion"]["fitness"])
        yield from self._of_drawn(rows) if self._method.drawn else self._of_members(rows)

    def _of_members(self, rows: Rows) -> Iterator[tuple[str, float]]:
        """The population as a whole, and its members."""
        for kind in ("best", "median", "worst"):
            if rows.metrics["fitness"][kind] is not None:
                yield f"population/fitness/{kind}", rows.metrics["fitness"][kind]
        if self._method.copies:
            yield "population/copies", rows.metrics["copies"]
        for name in rows.lineage[0]["hyper"]:
            yield f"population/hyper/{name}", median(row["hyper"][name] for row in rows.lineage)
        metrics = rows.metrics["members"]
        for name in COMMON:
            if name in metrics:
                yield name, _number(metrics[name][0])
        own = [name for name in metrics if name not in COMMON and not name.startswith(PAIRS)]
        for i, row in enumerate(rows.lineage[:MEMBERS_SHOWN]):
            yield f"fitness/member{row['uid']}", _number(row["fitness"])
            for name in own:
                yield f"{name}/member{row['uid']}", _number(metrics[name][i])
            for name, value in row["hyper"].items() if self._method.tunes else ():
                yield f"hyper/{name}/member{row['uid']}", value

    def _of_drawn(self, rows: Rows) -> Iterator[tuple[str, float]]:
        """The mean and its members: one curve for each number."""
        (mean,) = rows.lineage
        yield "mean/fitness", _number(mean["fitness"])
        for name, values in rows.metrics["members"].items():
            yield name, _number(values[0])
        for name, value in mean["hyper"].items():
            yield f"hyper/{name}", value

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._pool.shutdown()
        if "_writer" in vars(self):
            self._writer.close()


def read_rows(run_dir: Path) -> list[Rows]:
    """The generations that the files of a run hold, in order."""
    lineage: dict[int, list[dict[str, Any]]] = {}
    for row in read_lines(run_dir / "lineage.jsonl"):
        if isinstance(row.get("steps"), int):
            lineage.setdefault(row["generation"], []).append(row)
    metrics = {row["generation"]: row for row in read_lines(run_dir / "metrics.jsonl")}
    return [Rows(rows, metrics[generation]) for generation, rows in lineage.items() if generation in metrics]


def _number(value: float | None) -> float:
    """JSON has no NaN."""
    return math.nan if value is None else value


def cut_back(folder: Path, last: int) -> set[tuple[int, str]]:
    """Take out of event files whatever lies beyond step `last`, and what is half-written.

    Returns step and tag of every point that stays.
    """
    left: set[tuple[int, str]] = set()
    for path in folder.glob("*tfevents*"):
        data, kept = path.read_bytes(), []
        for record, event in _records(data):
            if event.step <= last:
                kept.append(record)
                left.update((event.step, value.tag) for value in event.summary.value)
        if sum(map(len, kept)) < len(data):
            write_file(path, b"".join(kept), via=folder.parent)  # TensorBoard would read a half-written one here
    return left


def _records(data: bytes) -> Iterator[tuple[bytes, Any]]:
    """The records of an event file and their events, up to the first that is not whole."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    at = 0
    while len(data) >= at + 12:
        end = at + 12 + struct.unpack_from("<Q", data, at)[0] + 4  # length and its checksum, event, and its checksum
        if end > len(data):
            return
        try:
            yield data[at:end], Event.FromString(data[at + 12 : end - 4])
        except DecodeError:
            return
        at = end
