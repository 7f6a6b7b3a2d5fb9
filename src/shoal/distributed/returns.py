"""Measuring one population together through a shared directory, in which workers exchange the returns of its members.

    returns/00000012/0003.json     the returns of the members of part 3 in generation 12
    returns/00000012/0003.claim    a worker measures this part

All workers sample the same members; each measures parts that no other has claimed. A claim is a hint only: a worker that has
waited long for a part measures it too, with the same result. So no worker depends on another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from shoal.core.atomic import Damaged, create_file, remove, seal, unseal
from shoal.distributed.rows import to_json

POLL = 0.02  # seconds between two checks for results of others
PATIENCE = 3.0  # times the duration of a part here, after which a claimed one is measured here too


class Returns:
    """The returns that the workers of a directory measure together, as seen by one of them.

    first: where this worker begins; all others should begin elsewhere. pause: called while waiting, and may raise.
    rows: of the generation that is being measured, by part: the returns that are there already, float64 [n, C].
    """

    def __init__(self, folder: Path, first: int, pause: Callable[[], None]):
        self._folder, self._first, self._pause = folder, first, pause
        self.rows: dict[int, np.ndarray] = {}

    def to_measure(self, generation: int, parts: int, shape: tuple[int, int]) -> Iterator[int]:
        """The parts that this worker is to measure, one after another; each must be published before the next is asked
        for. There is at least one. In the end `rows` has those of all parts, of this shape."""
        self.rows = {}
        order = [(self._first + i) % parts for i in range(parts)]
        folder = self._folder / f"{generation:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        create_file(folder / f"{order[0]:04d}.claim", b"")
        yield order[0]
        spent = since = time.monotonic()
        patience = PATIENCE * (spent - began)
        missing = order
        while missing := [part for part in missing if not self.there(generation, part, shape)]:
            free = (part for part in missing if create_file(folder / f"{part:04d}.claim", b""))
            late = missing[0] if time.monotonic() - since > patience else None
            part = next(free, late)
            if part is None:
                self._pause()
                time.sleep(POLL)
            else:
                yield part
                since = time.monotonic()
        for part in order:
            remove(folder / f"{part:04d}.claim")

    def publish(self, generation: int, part: int, rows: np.ndarray) -> None:
        """Show what was measured, float64 [n, C]."""
        create_file(self._path(generation, part), seal({"rows": to_json(rows)}))

    def there(self, generation: int, part: int, shape: tuple[int, int]) -> bool:
        """True once a part is published; then `rows` has its returns, so that nobody who waits reads them again and again. A
        damaged file is removed, so that the part is measured again."""
        path = self._path(generation, part)
        if not os.path.lexists(path):
            return False
        with suppress(Damaged, KeyError, TypeError, ValueError, OverflowError):
            rows = np.array(unseal(path)["rows"], float)
            if rows.shape == shape:
                self.rows[part] = rows
                return True
        with suppress(OSError):
            remove(path)
            remove(path.with_suffix(".claim"))
        return False

    def _path(self, generation: int, part: int) -> Path:
        return self._folder / f"{generation:08d}" / f"{part:04d}.json"
