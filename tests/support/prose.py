"""The sentences, cells and words of a page of the docs, without code blocks."""

from __future__ import annotations

import re

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.DOTALL | re.MULTILINE)
TAG = re.compile(r"<[^>]+>|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)")


def _plain(page: str) -> str:
    """The page without code blocks, tags, pictures and where links lead."""
    return TAG.sub("", FENCE.sub("\n\n", page))


def words(text: str) -> list[str]:
    return [word for word in _plain(text).split() if re.search(r"\w", word)]


def cells(page: str) -> list[str]:
    """What stands in the cells of a page's tables. `\\|` is a bar within a cell."""
    rows = [line.strip() for line in _plain(page).splitlines() if line.lstrip().startswith("|")]
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def sentences(page: str) -> list[str]:
    """The sentences of paragraphs, list items and headings: each ends with a full stop, or where its block does."""
    lines = ["" if line.lstrip().startswith("|") else line for line in _plain(page).splitlines()]
    text = re.sub(r"\n\s*(?=[-*#>]|\d+\. )", "\n\n", "\n".join(lines))
    blocks = re.split(r"\n\s*\n", text)
    return [" ".join(found.split()) for block in blocks for found in re.split(r"(?<=[.!?])[)\"'*]*\s+", block)]
