"""How a run stops before its end: signals, and files that cannot be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote


class Interrupted(Exception):
    """The run was stopped by a signal and can be resumed from `run_dir`.

    agreed: all processes of the run know. leading: this is the one to say so.
    """

    def __init__(self, run_dir: Path, agreed: bool = False, leading: bool = True):
        super().__init__(f"interrupted; go on with: shoal resume {quote(str(run_dir))}")
        self.run_dir, self.agreed, self.leading = run_dir, agreed, leading


class Failed(Exception):
    """A file of the run could not be written, for want of space perhaps; the run can be resumed from `run_dir`."""

    def __init__(self, run_dir: Path, error: OSError):
        what = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        super().__init__(f"{what}; when that is mended, go on with: shoal resume {quote(str(run_dir))}")
        self.run_dir = run_dir


@contextmanager
def on_signal(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at Ctrl-C, SIGTERM and SIGUSR1, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
    before = [signal.signal(s, lambda *_: handler()) for s in signals]
    try:
        yield
    finally:
        for s, old in zip(signals, before, strict=True):
            signal.signal(s, old)
