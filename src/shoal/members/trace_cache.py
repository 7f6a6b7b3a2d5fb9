"""Blank shards, which hold compiled programs: shards of one structure are siblings of one blank shard, those of several runs
in one process too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST = 8  # structures: the programs of a small one take 0.1 GB
Kept = list[tuple[str, Any, Any]]  # structures, as text and as they are, with their blank shards
_kept: Kept | None = None


@contextmanager
def trace_cache(kept: Kept | None = None) -> Iterator[None]:
    """Within it, runs take programs that are kept, and keep theirs. What they name must stay what it is: code that changes
    under its name, as that of a notebook does, would not be seen.

    kept: those that there are already; by default those of where this is called, or none
    """
    global _kept
    before = _kept
    _kept = kept if kept is not None else before if before is not None else []
    try:
        yield
    finally:
        _kept = before


def same_structure(structure: Any, make: Callable[[], Any], own: Kept) -> Any:
    """Return the blank shard of an equal structure, or a new one. own: where it is kept without a `trace_cache`."""
    kept = own if _kept is None else _kept
    text = repr(structure)  # tells numbers apart that are equal, but of different types
    for kept_text, kept_structure, shard in kept:
        if kept_text == text and kept_structure == structure:
            return shard
    del kept[MOST - 1 :]  # of more, which come again seed after seed, the first still serve; the last would not
    kept.append((text, structure, make()))
    return kept[-1][2]
