"""Early ends of a run: signals, files that cannot be written, and their exit codes."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

TYPE_CHECKING = False  # as in shoal/__init__.py

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Exit codes; of a signal with nothing to resume, BY_SIGNAL + its number.
DONE, FAILED, BAD_INPUT, INTERRUPTED = range(4)
BY_SIGNAL = 128
COMPILING = "compiling"  # the name of threads for which a command that ends does not wait
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class _Ending:
    """The end of the command, once that is decided; a later signal does not change it."""

    code: int | None = None


def ending(code: int) -> int:
    """Fix the exit code of the command, whatever signals come from now on, and return it."""
    _Ending.code = code
    return code


def code_after(number: int) -> int:
    """The exit code of a command that a signal ends at once."""
    return BY_SIGNAL + number if _Ending.code is None else _Ending.code


class Interrupted(Exception):
    """The run was stopped by a signal and can be resumed from `run_dir`.

    agreed: all processes of the run know. leading: this process reports it.
    """

    code = INTERRUPTED  # of the command

    def __init__(self, run_dir: Path, agreed: bool = False, leading: bool = True):
        super().__init__(run_dir)
        self.run_dir, self.agreed, self.leading = run_dir, agreed, leading

    def __str__(self) -> str:
        saved = any((self.run_dir / "checkpoints").glob("[0-9]*"))  # by now: one may have been under way
        how = "interrupted; continue" if saved else "interrupted before its first checkpoint; start over"
        return f"{how} with: {to_resume(self.run_dir)}"


def described(error: OSError) -> str:
    """Name a file and what went wrong with it."""
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


class Failed(Exception):
    """A file of the run could not be written, or its environment failed: `reason`. It can be resumed from `run_dir`."""

    def __init__(self, run_dir: Path, error: Exception):
        self.reason = described(error) if isinstance(error, OSError) else str(error)
        super().__init__(f"{self.reason}; once that is solved, continue with: {to_resume(run_dir)}")
        self.run_dir = run_dir


def to_resume(run_dir: Path) -> str:
    """Return the command that continues a run, quoted for a shell."""
    from shoal.core.escape import in_shell

    return f"shoal resume {in_shell(run_dir)}"


class _Attending:
    """Signals that the main thread handles at the next place where it can stop."""

    attend: Callable[[], None] | None = None


def attend() -> None:
    """Do what a signal has asked the main thread for. Raises what ends its work."""
    if _Attending.attend is not None and threading.current_thread() is threading.main_thread():
        _Attending.attend()


@contextmanager
def on_signal(handler: Callable[[int], None], attend: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `handler` with its number at Ctrl-C, SIGTERM and SIGUSR1, where this is the main thread.

    attend: what `attend` does meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(s, lambda number, _: handler(number)) for s in SIGNALS]
    outer, _Attending.attend = _Attending.attend, attend
    try:
        yield
    finally:
        _Attending.attend = outer
        for s, old in zip(SIGNALS, before, strict=True):
            signal.signal(s, old)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt, with the number of the first, after a signal: the program stops only
    where it calls it, or waits for what is compiled."""
    heard: list[int] = []

    def attend() -> None:
        if heard:
            raise KeyboardInterrupt(heard[0])

    with on_signal(heard.append, attend):
        yield attend
