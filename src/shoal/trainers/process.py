"""The host's side of a trainer's process: start it, call it, notice when it ends or is silent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.atomic import open_descriptor
from shoal.core.errors import BadField, BadInput, unknown
from shoal.trainers import descendants, wire

SERVER = Path(__file__).with_name("server.py")
LINES = 5  # of a log that are shown
NOTHING: Mapping[str, np.ndarray] = {}
PATIENCE = 10.0  # seconds that a process gets to close its trainers
THREADS = [f"{library}_NUM_THREADS" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")] + ["VECLIB_MAXIMUM_THREADS"]


class TrainerFailed(BadInput):
    """A call has no answer; the message says why.

    It is BadInput, as the trainer is the user's: any command ends with that message.
    """


class Died(TrainerFailed):
    """The process has ended, or was silent for too long and was ended. The next call starts another one.

    how: it ended. log: its last lines
    """

    def __init__(self, how: str, log: Sequence[str]):
        super().__init__(f"{how}; its log ends with: {' / '.join(log)}" if log else how)
        self.how, self.log = how, log


class Raised(TrainerFailed):
    """The trainer's own code raised an error, whose traceback is in the log. The process lives on, without that member."""


@dataclass(frozen=True)
class Recipe:
    """The settings that trainers are made from.

    trainer: `sb3:PPO` or `package.module:Class`
    env, env_options, config: what its constructor gets
    path: folders where its modules are looked for first
    """

    trainer: str
    env: str
    env_options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    path: Sequence[str] = ()


def limited(threads: int, gpus: Sequence[int | str] | None = None) -> dict[str, str]:
    """Environment variables for a process that may use so many threads, and these GPUs; None: all of them."""
    visible = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)}
    return {name: str(threads) for name in THREADS} | visible


class TrainerProcess:
    """A process with an interpreter of its own, in which trainers are called.

    It starts with the first call, and with the first call after it has ended. One call at a time; `kill` from any thread.
    """

    def __init__(
        self,
        python: str,
        recipe: Recipe,
        log: Path | None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        described: dict[str, Any] | None = None,
    ):
        """python: the interpreter. log: the file to which it appends what it prints; None: one without a name, which is
        gone with this process however that ends. env: variables set in addition to those of this process.
        timeout: seconds without an answer after which a process counts as hung; None: never.
        described: the `description` of another process like this one; however it ends while it starts is then Died."""
        self.recipe = recipe
        self._python, self._timeout = python, timeout
        self._log = _opened(log)
        weakref.finalize(self, self._log.close)
        self._env = {"PYTHONUNBUFFERED": "1", **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._described = described

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    @property
    def description(self) -> dict[str, Any]:
        """Description of its trainers: hyper, space, limits and spec of a `Trainer`; can they act, and export?

        Raises as `call` does.
        """
        if self._described is None:
            self._start()
        assert self._described is not None
        return self._described

    def call(self, name: str, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> wire.Frame:
        """Return the answer of the process to a call of `Server`.

        Raises BadInput for what the experiment cannot have, else Died or Raised.
        """
        if self.pid is None:
            self._start()
        return self._ask(name, content, arrays)

    def log_to(self, path: Path) -> None:
        """Go on with the log in another file; so does the process, or if it has died meanwhile, the next one."""
        early, self._log = self._log, _opened(path)
        weakref.finalize(self, self._log.close)
        with early:
            self._log.write(os.pread(early.fileno(), os.fstat(early.fileno()).st_size, 0))
        self._log_start = self._log.tell()
        if self.pid is not None:
            with suppress(Died):
                self._ask("log", {"path": str(path)})

    def kill(self) -> None:
        """End the process and all that it has started, at once; a call that waits for it raises Died."""
        if self._process is not None:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._ended.join()

    def end(self) -> None:
        """Give everything back, without a word to the trainers."""
        self.kill()
        if self._peer is not None:
            self._peer.close()

    def close(self) -> dict[str, Any]:
        """Close its trainers, then end the process. Returns what they left behind: {threads: [names], processes: bool}."""
        try:
            if self._peer is None or self.pid is None:
                return {"threads": [], "processes": False}
            self._peer.settimeout(PATIENCE)
            return self._ask("close", {})[0]
        finally:
            self.end()

    def _start(self) -> None:
        """Start the process and have it build a trainer. Raises BadField where it never could, else Died."""
        if self._peer is not None:
            self._peer.close()
        self._peer, theirs = socket.socketpair()
        weakref.finalize(self, self._peer.close)  # at which the process ends
        with theirs:
            self._log_start = self._log.seek(0, os.SEEK_END)
            command, mark = [self._python, str(SERVER), str(theirs.fileno())], uuid.uuid4().hex
            try:
                # A session of its own: Ctrl-C in the terminal does not reach it, and all that it starts can be ended.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | self._env | {descendants.MARK: mark},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                raise BadField("python", f"cannot be started: {error.strerror}", value=self._python) from error
        self._ended = threading.Thread(target=self._clear_up, args=(process, self._peer, mark), daemon=True)
        self._ended.start()
        self._process = process  # from here on another thread may kill it
        self._peer.settimeout(self._timeout)
        try:
            self._receive()
        except Died as error:
            if self._described is not None or process.returncode < 0:
                raise
            text = f"does not start as an interpreter with NumPy: {[error.how, *error.log][-1]}"
            raise BadField("python", text, value=self._python) from error
        self._described, _ = self._ask("describe", asdict(self.recipe))

    @staticmethod
    def _clear_up(process: subprocess.Popen[bytes], peer: socket.socket, mark: str) -> None:
        """Once a process has ended, end what it has started, and the wait for its answer: others may hold its socket."""
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        descendants.end(mark)
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    def _ask(self, name: str, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray] = NOTHING) -> wire.Frame:
        assert self._peer is not None
        try:
            wire.send(self._peer, {"call": name, **content}, arrays)
        except TypeError as error:
            raise BadInput(f"the state of a member cannot be sent to its trainer: {error}") from error
        except OSError as error:
            raise self._died(error) from error
        answer, arrays = self._receive()
        match answer.get("error"):
            case "input" if answer["known"]:
                raise unknown(answer["field"], answer["name"], answer["known"])
            case "input":
                value = self._python if answer["field"] == "python" else None
                raise BadField(answer["field"], answer["text"], value=value)
            case "failed":
                raise Raised(f"{self.recipe.trainer} failed: {answer['text']}")
        return answer, arrays

    def _receive(self) -> wire.Frame:
        assert self._peer is not None
        try:
            return wire.receive(self._peer)
        except (EOFError, OSError, ValueError) as error:
            raise self._died(error) from error
        except BaseException:  # the answer to come would be taken for that of the next call
            self.kill()
            raise

    def _died(self, error: Exception) -> Died:
        """End the process; say how it ended, with the last lines of its log."""
        assert self._process is not None
        self.kill()
        code = self._process.returncode
        if isinstance(error, TimeoutError):
            how = f"gave no answer for {self._timeout:g} s"
        elif isinstance(error, ValueError):
            how = f"wrote something to its connection with Shoal that is not an answer ({error})"
        elif code < 0:
            named = {x.value: x.name for x in signal.Signals}  # not all of them are
            how = f"was killed by {named.get(-code, f'signal {-code}')}"
        else:
            how = f"ended with exit code {code}"
        self._log.seek(self._log_start)
        lines = self._log.read().decode(errors="replace").split("\n")
        log = [line for line in lines if line.strip()][-LINES:]
        return Died(f"the process of {self.recipe.trainer} {how}", log)


def _opened(log: Path | None) -> FileIO:
    """A file to append to and to read from, unbuffered as another process writes into it too."""
    if log is None:
        return tempfile.TemporaryFile(buffering=0)
    log.parent.mkdir(parents=True, exist_ok=True)
    return open(open_descriptor(log, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+", buffering=0)
