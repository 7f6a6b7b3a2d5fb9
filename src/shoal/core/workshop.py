"""Where files are made before they get their names; whoever closes it has ended all that its process still had in hand."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import remove, write_file


class Workshop:
    """A folder of one process, beside the files of a place that it has to itself.

    Files come to the place by a rename out of here, and leave it by a rename to here. So whoever takes over the place
    closes this folder and is alone from then on: a process that was stopped in the middle of anything, and goes on
    later, finds nothing to rename and nowhere to rename to.
    """

    def __init__(self, place: Path, name: str):
        self.path = place / f".{name}.work"
        self._opened = False

    def open(self, check: Callable[[], None] = lambda: None) -> None:
        """Begin, once, and end what others have begun, or what they left when they were killed.

        check: raises where somebody else has the place by now, who is to be left alone.
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
        if not path.exists():
            folder.rename(path)
            return
        old = self.path / f"{path.name}.{uuid.uuid4().hex}"
        path.rename(old)
        try:
            folder.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old)

    def close(self) -> None:
        """There is nothing left to do."""
        shutil.rmtree(self.path, ignore_errors=True)
