"""Text of files, folders and flags for a terminal, a shell and a spreadsheet: what would steer them is shown instead."""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import IO, Any

# Control characters of ASCII and Latin-1, what ends a line or turns its direction, and bytes that are no UTF-8.
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA = tuple("=+-@")  # with these a cell begins that a spreadsheet computes
ASCII = {"×": "x", "±": "+-", "→": "->", "←": "<-", "–": "-", "…": "...", "·": "-", "✓": "+", "✗": "x"}


def escape(text: str) -> str:
    """A text in one line, of which a terminal obeys nothing: control characters are as Python writes them, such as \\x1b."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class _Start:
    """The folder in which the command began, where there is one: an environment may change the working directory."""

    folder: str | None = None


def _here() -> str:
    """The current folder; empty where it was removed, or is the root, below which all paths lie."""
    with suppress(OSError):
        return os.getcwd().rstrip("/")
    return ""


@contextmanager
def started_here() -> Iterator[None]:
    """Show paths relative to the folder that is the current one now, whatever folder an environment goes to meanwhile."""
    before, _Start.folder = _Start.folder, _here()
    try:
        yield
    finally:
        _Start.folder = before


def shown(text: str) -> str:
    """A text as a terminal shows it: paths below the current folder relative to it, and control characters escaped.

    Paths that would begin like a flag or a home directory stay absolute.
    """
    folder = _here() if _Start.folder is None else _Start.folder
    if folder:
        text = re.sub(rf"(?<![\w/.~@+%\\-]){re.escape(folder)}/(?=[^\s/'\"`~-])", "", text)
    return escape(text)


def in_shell(path: Path) -> str:
    """A path as a shell takes it."""
    text = str(path)
    if escape(text) == text:
        return quote(text)
    shown = (chr(x) if 32 <= x < 127 and x not in b"\\'" else f"\\x{x:02x}" for x in os.fsencode(text))
    return f"$'{''.join(shown)}'"


def write_csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str], out: IO[str]) -> None:
    """Rows as CSV. Text that a spreadsheet would compute has an apostrophe in front; numbers are as they are."""
    columns = list(columns)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(name, "")) for name in columns] for row in rows)


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return f"'{escape(value)}" if value.startswith(FORMULA) else escape(value)


def speakable(stream: IO[str] | None) -> None:
    """Let a stream take every text: what its encoding lacks is replaced by what looks like it, else shown."""
    if stream is not None and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="shoal.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join(ASCII.get(x, ascii(x)[1:-1]) for x in lost), error.end


codecs.register_error("shoal.plain", _plain)
