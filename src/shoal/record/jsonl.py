"""JSON, one object a line: appended as the run goes, cut back when it resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from shoal.atomic import write_file
from shoal.record.lineage import read_lines


class Lines:
    """A file of rows. With `before`, only the rows of earlier generations are kept."""

    def __init__(self, path: Path, before: int | None = None):
        self._path = path
        if before is not None:
            rows = [row for row in read_lines(path) if isinstance(row.get("generation"), int)]
            kept = [row for row in rows if row["generation"] < before]
            write_file(path, "".join(json.dumps(row) + "\n" for row in kept).encode())

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows in one go."""
        with open(self._path, "a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def sync(self) -> None:
        """Make sure that what was written survives a power cut."""
        with open(self._path, "a") as file:
            os.fsync(file.fileno())
