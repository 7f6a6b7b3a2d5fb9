"""Compiled programs on disk: entries are complete or absent, damaged ones are removed, and their size is bounded.

JAX's own cache writes in place and never overwrites: an entry that was cut off by a kill causes a warning and a new
compilation for ever. Its own bound on the size needs another package, puts a lock around every read, and takes four times as
long to write an entry among 10,000.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache

from shoal.core.atomic import write_file

BOUND = 2**30  # bytes of Shoal's own folder; a program takes about 0.1 MB


class Entries:
    """A folder of entries, with the interface of JAX's caches. bound: bytes, beyond which those unused for longest go."""

    def __init__(self, folder: Path, bound: float):
        self._path, self._bound = folder, bound

    def get(self, key: str) -> bytes | None:
        """An entry, where there is one."""
        try:
            value = self.file(key).read_bytes()
        except FileNotFoundError:
            return None
        with suppress(OSError):  # a folder that may only be read
            os.utime(self.file(key))
        return value

    def put(self, key: str, value: bytes) -> None:
        """Write an entry, and make room for it."""
        self._path.mkdir(parents=True, exist_ok=True)
        write_file(self.file(key), value)
        if self._bound < math.inf:
            self._prune()

    def file(self, key: str) -> Path:
        return self._path / f"{key}-cache"

    def _prune(self) -> None:
        found = []
        for file in self._path.glob("*-cache"):
            with suppress(FileNotFoundError):  # another process removes it too
                state = file.stat()
                found.append((state.st_mtime_ns, state.st_size, file))
        total = sum(size for _, size, _ in found)
        for _, size, file in sorted(found):
            if total <= self._bound:
                return
            file.unlink(missing_ok=True)
            total -= size


def keep_whole(own: Path | None) -> None:
    """Let JAX store its programs in `Entries`, in the folder that the user has set. own: the folder that is bounded.

    JAX has no public interface for this; the two functions are the same in 0.10 and 0.11. A cache that JAX has opened
    already is not changed.
    """
    compilation_cache.get_file_cache = lambda path: _opened(path, own)
    compilation_cache.get_executable_and_time = _read_or_remove


_open, _read = compilation_cache.get_file_cache, compilation_cache.get_executable_and_time


def _opened(path: str, own: Path | None) -> Any:
    if "://" in path or getattr(jax.config, "jax_compilation_cache_max_size", -1) != -1:
        return _open(path)  # not on a disk, or bounded by the user
    return Entries(Path(path), BOUND if Path(path) == own else math.inf), path


def _read_or_remove(cache_key: str, *arguments: Any, **options: Any) -> Any:
    try:
        return _read(cache_key, *arguments, **options)
    except Exception:
        cache = compilation_cache._cache
        if not isinstance(cache, Entries):
            raise
        cache.file(cache_key).unlink(missing_ok=True)
        return None, None
