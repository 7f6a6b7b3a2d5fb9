"""A folder in which a process makes files before it gives them their names; closing it stops that process's writes."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import remove, write_file


class Workshop:
    """A hidden folder of one process, beside the files of a place that belongs to this process.

    Files enter the place by a rename out of this folder, and leave it by a rename into it. A process that takes over the
    place removes this folder; a paused process that continues later then finds nothing to rename, and no folder to
    rename to, so that it cannot change the place any more.
    """

    def __init__(self, place: Path, name: str):
        self.path = place / f".{name}.work"
        self._opened = False

    def open(self, check: Callable[[], None] = lambda: None) -> None:
        """Begin, once, and end what others have begun, or what they left when they were killed.

        check: raises where another process has the place now.
        """
        if self._opened:
            return
        self._opened = True
        self.path.mkdir()
        try:
            check()
        except OSError:
            self.close()
            raise
        for other in self.path.parent.glob(".*.work"):
            if other != self.path:
                self.remove(other)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the place: whole, or not at all."""
        write_file(path, data, via=self.path)

    def remove(self, path: Path) -> None:
        """Remove a file or folder of the place, if there is one; at once for all who look."""
        aside = self.path / f"{path.name}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            path.rename(aside)
            remove(aside)

    def put(self, folder: Path, path: Path) -> None:
        """Give a folder that was made here its name; one that has it steps aside, for it cannot be renamed over."""
        if not os.path.lexists(path):
            folder.rename(path)
            return
        old = self.path / f"{path.name}.{uuid.uuid4().hex}"
        path.rename(old)
        try:
            folder.rename(path)
        except OSError:
            old.rename(path)
            raise
        remove(old)

    def close(self) -> None:
        """There is nothing left to do."""
        shutil.rmtree(self.path, ignore_errors=True)
