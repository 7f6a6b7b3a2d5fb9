"""A folder that one process has to itself for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import open_descriptor
from shoal.core.errors import BadField, BadInput

NAME = ".lock"


class Lock:
    """The right to write in a folder. The system takes it back when the process ends, in whatever way."""

    def __init__(self, folder: Path, note: Callable[[str], None], exist_ok: bool = True):
        """Make the folder where it is not there, and lock it. Raises BadInput where another run has it, and OSError.

        note: hears of a file system that has no locks, where nothing keeps others out.
        exist_ok: otherwise a folder that is there already raises FileExistsError.
        """
        self._folder, self._file = folder, -1
        self._made: list[Path] = []  # by this process, the outermost last
        try:
            self._make(exist_ok)
            while not self._take(note):
                os.close(self._file)
                self._file = -1
        except (OSError, BadInput):
            self._leave()
            raise
        with suppress(OSError):  # a full disk: others are kept out, and only cannot read by whom
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def release(self) -> None:
        """Let others have the folder; if it was made for this and holds nothing, it is removed."""
        with suppress(OSError):  # the folder is gone, or cannot be written any more
            (self._folder / NAME).unlink()
        self._leave()

    def _make(self, exist_ok: bool) -> None:
        """Make the folder and those around it, and remember which are not of another process."""
        for path in (*reversed(self._folder.parents), self._folder):
            try:
                path.mkdir()
            except OSError:  # where it is there, that is not always FileExistsError: / is busy, or may not be written
                if not path.exists() or (path == self._folder and not (exist_ok and path.is_dir())):
                    raise
            else:
                self._made.insert(0, path)

    def _take(self, note: Callable[[str], None]) -> bool:
        """Lock the file; True where it is still the one that others would open, and not one that its holder removed."""
        path = self._folder / NAME
        self._file = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 200, 0).decode(errors="replace") or "another process"
            raise BadField("run_dir", f"{self._folder} is in use: {holder} is at work on it") from error
        except OSError as error:
            note(f"{self._folder}: no lock can be had here ({error.strerror}); let no second process train in it")
        try:
            return os.path.samestat(os.fstat(self._file), path.lstat())
        except FileNotFoundError:
            return False

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        for folder in self._made:
            with suppress(OSError):  # it holds something
                folder.rmdir()
