"""TensorBoard scalars: the population as a whole, and every member where members live on."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.atomic import write_file
from shoal.records.recorder import Recorder, lineage_rows, metrics_row
from shoal.records.scalars import Rows, read_rows, scalars

if TYPE_CHECKING:
    from shoal.records.recorder import Generation, Start

LATER = 0.1  # seconds after a generation that its curves are written, at most


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
        self._write(rows.step, self._points(rows))

    def _complete(self, earlier: list[Rows], written: set[tuple[int, str]]) -> None:
        """Write what is missing of earlier generations; `written`: the steps and tags that are there."""
        for rows in earlier:
            step = rows.step
            missing = [(tag, x) for tag, x in self._points(rows) if (step, tag) not in written]
            if missing:
                self._write(step, missing)

    def _write(self, step: int, points: Iterable[tuple[str, float]]) -> None:
        for tag, value in points:
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # or a kill would take minutes of it along

    def _points(self, rows: Rows) -> Iterator[tuple[str, float]]:
        """Tags and values of one generation."""
        for name, value, member in scalars(rows, self._method):
            yield name if member is None else f"{name}/member{member}", value

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._pool.shutdown()
        if "_writer" in vars(self):
            self._writer.close()


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
