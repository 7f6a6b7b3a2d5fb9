"""JSON Lines: appended during the run, truncated when it resumes."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.core.atomic import LARGEST, check_size, open_file, parse_json, read_file

MISSING = (FileNotFoundError, NotADirectoryError)
AT_ONCE = 1000  # rows in memory while a file is rewritten: a long run has millions


class Lines:
    """A file of rows that keeps the rows of generations before `before`.

    It is rewritten as a new file and stays open. A process that takes over the run does the same: rows that the replaced
    process still appends go to an unlinked file. via: the folder of the temporary file.
    """

    def __init__(self, path: Path, before: int, via: Path):
        rows = (row for row in each_line(path) if isinstance(row.get("generation"), int))
        kept = (row for row in rows if row["generation"] < before)
        temporary = via / f"{path.name}.{uuid.uuid4().hex}"
        self._file = open(temporary, "ab", buffering=0)  # noqa: SIM115
        try:
            while some := list(islice(kept, AT_ONCE)):
                self.write(some)
            self.sync()
            temporary.replace(path)
        except BaseException:
            self.close()
            temporary.unlink(missing_ok=True)
            raise

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows in one write."""
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        while data:
            data = data[self._file.write(data) :]

    def sync(self) -> None:
        """Flush to the disk, to survive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A list of the objects of a JSONL file."""
    return list(each_line(path))


def last_line(path: Path) -> dict[str, Any]:
    """The last object of a JSONL file, read from its end; empty if there is none."""
    with suppress(*MISSING), open_file(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LARGEST - 2))
        data = file.read()
        end = len(data)
        while end > 0:
            begin = data.rfind(b"\n", 0, end) + 1
            check_size(path, end - begin, LARGEST, "a line of ")
            if (entry := _entry(data[begin:end])) is not None:
                return entry
            end = begin - 1
    return {}


def each_line(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file; a missing file is empty, and an incomplete line is skipped."""
    with suppress(*MISSING), open_file(path) as file:
        while line := file.readline(LARGEST + 1):
            check_size(path, len(line), LARGEST, "a line of ")
            if (entry := _entry(line)) is not None:
                yield entry


def _entry(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None if it is damaged."""
    try:
        entry = parse_json(line.decode(errors="replace"))
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def read_text(path: Path) -> str:
    """The content of a text file; a missing one is empty."""
    with suppress(*MISSING):
        return read_file(path).decode(errors="replace")
    return ""
