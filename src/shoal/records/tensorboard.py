"""TensorBoard scalars: the population as a whole, and every member where members live on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shoal.core.atomic import remove
from shoal.core.interrupts import described
from shoal.core.user_code import one_line
from shoal.records.generation import Rows, read_rows
from shoal.records.recorder import Recorder
from shoal.records.scalars import scalars

if TYPE_CHECKING:
    from shoal.records.generation import Generation
    from shoal.records.recorder import Start

LATER = 0.1  # seconds after a generation that its curves are written, at most


class TensorBoard(Recorder):
    """Writes RUN/tensorboard. The horizontal axis is environment steps per member.

    It is written behind the run, step after step, so that a kill may lose the newest points: all are written again when the
    run is resumed. Where it cannot be written any more that is told once, and the run goes on.
    """

    def start(self, event: Start) -> None:
        self._run_dir, self._plan, self._note = event.run_dir, event.plan, event.note
        self._folder = event.run_dir / "tensorboard"
        self._error: Exception | None = None
        self._told = False
        self._pool = ThreadPoolExecutor(1, "tensorboard")  # hundreds of scalars, written while the next interval runs
        self._later(self._rewrite, event.generation)

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
        self._write(event.rows)

    def _rewrite(self, generation: int) -> None:
        """Write the curves of all generations before this one again; what was there of them goes once that is done."""
        before = list(self._folder.glob("*tfevents*"))
        for rows in read_rows(self._run_dir, generation):
            self._write(rows)
        for path in before:
            remove(path)

    def _write(self, rows: Rows) -> None:
        for name, value, member in scalars(rows, self._plan):
            self._writer.add_scalar(name if member is None else f"{name}/member{member}", value, rows.step)
        self._writer.flush()  # or a kill would take minutes of it along

    def _close(self) -> None:
        if "_writer" in vars(self):
            self._writer.close()

    def finish(self, result: dict[str, Any] | None) -> None:
        if hasattr(self, "_pool"):
            self._later(self._close)
            self._pool.shutdown()
            self._tell()
