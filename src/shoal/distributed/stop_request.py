"""The request to all workers of a workspace to stop, which their drivers and commands make and see too."""

from __future__ import annotations

import uuid
from pathlib import Path

from shoal.core.atomic import read_or_nothing, write_file

STOP = "stop"


class StopRequest:
    """A request to all workers of a workspace to stop, which is made after this was."""

    def __init__(self, path: Path):
        self._file = path / STOP
        self._before = read_or_nothing(self._file)

    @property
    def made(self) -> bool:
        return read_or_nothing(self._file) not in ("", self._before)


def stop_workers(path: Path) -> None:
    """Ask all workers who are at work in a workspace to end after their generation; who joins later is not meant."""
    write_file(path / STOP, uuid.uuid4().hex.encode())
