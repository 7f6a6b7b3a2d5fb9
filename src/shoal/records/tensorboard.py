"""TensorBoard scalars of the population and its members."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.atomic import open_descriptor, remove
from shoal.core.interrupts import described
from shoal.core.user_code import one_line
from shoal.records.callback import Callback
from shoal.records.generation import Rows, read_rows
from shoal.records.scalars import scalars

if TYPE_CHECKING:
    from shoal.records.callback import Start
    from shoal.records.generation import Generation

LATER = 0.1  # seconds from a generation until its curves are written, together with later ones


class TensorBoard(Callback):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member; of a mean, of all members.

    A thread writes behind the run, so a kill may lose the newest points: a resumed run writes all of them again. If writing
    fails, the user gets one note and the run goes on.

    Why not the writer of tensorboardX with its `purge_step`: a run with a full disk waits for ever, and 400 numbers take
    27 ms in place of 2 (tried with 2.6.5). A folder for each resume shows one run as several, which overlap.
    """

    def on_training_start(self, event: Start) -> None:
        self._run_dir, self._plan, self._note = event.run_dir, event.plan, event.note
        self._folder = event.run_dir / "tensorboard"
        self._error: Exception | None = None
        self._noted = False
        self._waiting: deque[Generation] = deque()
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs
        self._later(self._rewrite, event.generation)

    @cached_property
    def _file(self) -> Path:
        """A new event file that starts with the version of its format."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{uuid.uuid4().hex}"
        path.touch(exist_ok=False)
        self._append(path, Event(wall_time=time.time(), file_version="brain.Event:2"))
        return path

    def _append(self, path: Path, event: Any) -> None:
        """Append an event to an existing file. TensorBoard's writer does so in a thread that prints tracebacks of errors."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        with os.fdopen(open_descriptor(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            RecordWriter(file).write(event.SerializeToString())

    def on_generation_end(self, event: Generation) -> None:
        self._note_error()
        if self._error is None:
            self._waiting.append(event)
            if len(self._waiting) == 1:
                self._later(self._write_waiting)

    def _later(self, work: Callable[..., None], *arguments: Any) -> None:
        """Submit work to the thread. After an error it does nothing: gaps in curves are filled by a resume only."""

        def attempt() -> None:
            if self._error is None:
                try:
                    work(*arguments)
                except Exception as error:
                    self._error = error

        self._pool.submit(attempt)

    def _note_error(self) -> None:
        """Note an error of the thread, once."""
        error = self._error
        if error is not None and not self._noted:
            self._noted = True
            why = described(error) if isinstance(error, OSError) else one_line(error)
            self._note(f"TensorBoard curves are no longer written: {why}")

    def _write_waiting(self) -> None:
        self._ending.wait(LATER)  # until then the main thread needs the interpreter
        waiting = iter(lambda: self._waiting.popleft() if self._waiting else None, None)
        self._write(event.rows for event in waiting)

    def _rewrite(self, generation: int) -> None:
        """Write the curves of all generations before this one to a new file, then remove the old ones."""
        before = list(self._folder.glob("*tfevents*"))
        self._write(read_rows(self._run_dir, generation))
        for path in before:
            remove(path)

    def _write(self, generations: Iterable[Rows]) -> None:
        """Write one event per generation: `add_scalar` writes one per number and takes ten times as long."""
        from tensorboard.compat.proto.event_pb2 import Event  # slow, so in this thread
        from tensorboard.compat.proto.summary_pb2 import Summary

        for rows in generations:
            values = [
                Summary.Value(tag=name if member is None else f"{name}/member{member}", simple_value=value)
                for name, value, member in scalars(rows, self._plan)
            ]
            event = Event(wall_time=time.time(), step=rows.step, summary=Summary(value=values))
            self._append(self._file, event)

    def on_training_end(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._ending.set()
            self._pool.shutdown()
            self._note_error()
