"""JSON, one object per line: appended during the run, cut back when it resumes."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from shoal.core.atomic import parse_json


class Lines:
    """A file of rows; rows of generations before `before` are kept.

    It is written as a new file, and remains open. A process that takes over the run does the same: what the replaced
    process still appends goes to a file without a name. via: the folder where the new file is made.
    """

    def __init__(self, path: Path, before: int, via: Path):
        rows = [row for row in read_lines(path) if isinstance(row.get("generation"), int)]
        temporary = via / f"{path.name}.{uuid.uuid4().hex}"
        self._file = open(temporary, "ab", buffering=0)  # noqa: SIM115
        try:
            self.write([row for row in rows if row["generation"] < before])
            self.sync()
            temporary.replace(path)
        except BaseException:
            self.close()
            temporary.unlink(missing_ok=True)
            raise

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows in one go."""
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        while data:
            data = data[self._file.write(data) :]

    def sync(self) -> None:
        """Make sure that what was written survives a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; a missing file is empty, and a half-written line is skipped."""
    objects = []
    for line in read_text(path).split("\n"):
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            objects.append(entry)
    return objects


def read_text(path: Path) -> str:
    """What a text file holds; a missing one is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""
