"""TensorBoard scalars: the population as a whole, and every member where members live on."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shoal.core.atomic import open_file, write_file
from shoal.core.interrupts import described
from shoal.core.user_code import one_line
from shoal.records.recorder import Recorder, lineage_rows, metrics_row
from shoal.records.scalars import Rows, read_rows, scalars

if TYPE_CHECKING:
    from shoal.records.recorder import Generation, Start

LATER = 0.1  # seconds after a generation that its curves are written, at most


class TensorBoard(Recorder):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member.

    It is written behind the run, step after step, so that a kill may lose the newest points: they are written when the run
    is resumed. Where it cannot be written any more that is told once, and the run goes on.
    """

    def start(self, event: Start) -> None:
        self._run_dir, self._method, self._note = event.run_dir, event.resolved.method, event.note
        self._folder = event.run_dir / "tensorboard"
        self._error: Exception | None = None
        self._told = False
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs
        self._later(self._complete, event.generation)

    @cached_property
    def _writer(self) -> Any:
        """Opened by the thread that writes: importing it takes longer than a first generation should wait."""
        from tensorboard.summary import Writer

        return Writer(str(self._folder))

    def generation(self, event: Generation) -> None:
        self._tell()
        self._later(self._write_event, event)

    def _later(self, work: Callable[..., None], *arguments: Any) -> None:
        """Have the thread do some work; none after an error, for a gap in the curves would never be filled."""

        def attempt() -> None:
            if self._error is None:
                try:
                    work(*arguments)
                except Exception as error:
                    self._error = error

        self._pool.submit(attempt)

    def _tell(self) -> None:
        """Tell what the thread has met, once."""
        error = self._error
        if error is not None and not self._told:
            self._told = True
            why = described(error) if isinstance(error, OSError) else one_line(error)
            self._note(f"no more curves are written: {why}")

    def _write_event(self, event: Generation) -> None:
        # First the loop needs the interpreter, until the next interval is under way.
        time.sleep(min(LATER, event.timing["train"] / 5))
        rows = Rows(lineage_rows(event), metrics_row(event))
        self._write(rows.step, self._points(rows))

    def _complete(self, generation: int) -> None:
        """Cut the curves back to what was known before a generation, and write what is missing of that."""
        last = max((rows.step for rows in read_rows(self._run_dir, generation)), default=0)
        newest, tags = cut_back(self._folder, last)
        for rows in read_rows(self._run_dir, generation):
            step = rows.step
            if step > newest:
                self._write(step, self._points(rows))
            elif step == newest:
                self._write(step, [(tag, x) for tag, x in self._points(rows) if tag not in tags])

    def _write(self, step: int, points: Iterable[tuple[str, float]]) -> None:
        for tag, value in points:
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # or a kill would take minutes of it along

    def _points(self, rows: Rows) -> Iterator[tuple[str, float]]:
        """Tags and values of one generation."""
        for name, value, member in scalars(rows, self._method):
            yield name if member is None else f"{name}/member{member}", value

    def _close(self) -> None:
        if "_writer" in vars(self):
            self._writer.close()

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._later(self._close)
            self._pool.shutdown()
            self._tell()


def cut_back(folder: Path, last: int) -> tuple[int, set[str]]:
    """Cut off event files where they go beyond step `last`, or are half-written.

    Returns the newest step that is left, -1 where there is none, and its tags. Those of earlier steps are all there: a step
    is written when the one before it is.
    """
    newest = -1
    tags: set[str] = set()
    for path in folder.glob("*tfevents*"):
        kept = 0
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            for end, event in _events(file, size):
                if event.step > last:
                    break
                kept = end
                if event.step > newest:
                    newest, tags = event.step, set()
                if event.step == newest:
                    tags.update(value.tag for value in event.summary.value)
            file.seek(0)
            if kept < size:
                write_file(path, file.read(kept), via=folder.parent)  # TensorBoard would read a half-written one here
    return newest, tags


def _events(file: BinaryIO, size: int) -> Iterator[tuple[int, Any]]:
    """The events of a file of so many bytes, each with the place where it ends, up to the first that is not whole."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    at = 0
    while size >= at + 12:
        end = (
            at + 12 + struct.unpack_from("<Q", file.read(12))[0] + 4
        )  # length and its checksum, event, and its checksum
        if end > size:
            return
        try:
            event = Event.FromString(file.read(end - at - 12)[:-4])
        except DecodeError:
            return
        yield end, event
        at = end
