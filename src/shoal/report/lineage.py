"""The lineage of a run as tables: members by generations, and whose weights they copied.

Axes: G generations (rows), N members (columns).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal.core.errors import BadInput


@dataclass(frozen=True)
class Lineage:
    """`lineage.jsonl` as tables [G, N]; NaN, or the member itself as its parent, where there is no record."""

    generations: np.ndarray  # int64 [G], ascending
    uids: np.ndarray  # int64 [N], ascending
    present: np.ndarray  # bool: is there a record?
    parents: np.ndarray  # int64: the uid whose weights the member carries into the next generation
    parent_generations: np.ndarray  # int64: and of which generation they are; workers that share a directory differ
    explored: np.ndarray  # bool: were its hyperparameters perturbed on the way there?
    fitness: np.ndarray
    returns_std: np.ndarray
    episodes: np.ndarray
    steps: np.ndarray  # environment steps of the member itself
    hyper: dict[str, np.ndarray]

    @property
    def counted(self) -> np.ndarray:
        """int64 [G]: generations as people count them, and the terminal does: from one. In files they begin with 0."""
        return self.generations + 1

    @property
    def origin(self) -> np.ndarray:
        """int64 [G, N]: the column whose weights a member started from; -1 where that is unknown."""
        return self.sources[1]

    @cached_property
    def sources(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [G, N] each: row (one up, as a rule) and column whose weights a member started from."""
        rows, columns = np.full((2, *self.present.shape), -1)
        for row in range(1, len(rows)):
            if self.generations[row] != self.generations[row - 1] + 1:
                continue
            uid, generation = self.parents[row - 1], self.parent_generations[row - 1]
            column = np.searchsorted(self.uids, uid).clip(max=len(self.uids) - 1)
            above = np.searchsorted(self.generations, generation).clip(max=row - 1)
            found = (self.uids[column] == uid) & (self.generations[above] == generation) & self.present[above, column]
            known = found & self.present[row - 1] & self.present[row]
            rows[row], columns[row] = np.where(known, above, -1), np.where(known, column, -1)
        return rows, columns

    @cached_property
    def founders(self) -> np.ndarray:
        """int64 [G, N]: the column of the oldest known ancestor; -1 where there is no record."""
        founders = np.broadcast_to(np.arange(len(self.uids)), self.present.shape).copy()
        for row in range(1, len(founders)):
            known = self.origin[row] >= 0
            founders[row, known] = founders[self.sources[0][row, known], self.origin[row, known]]
        return np.where(self.present, founders, -1)

    @cached_property
    def copied(self) -> np.ndarray:
        """bool [G, N]: the member leaves this generation with the weights of another."""
        return self.present & (self.parents != self.uids)

    @property
    def foreign(self) -> np.ndarray:
        """bool [G, N]: the member copied another one that has no record here."""
        return self.copied & ~np.isin(self.parents, self.uids)

    def trace(self, uid: int, generation: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of a member's ancestors and of itself, oldest first; empty when there is no record of it."""
        rows, columns = np.flatnonzero(self.generations == generation), np.flatnonzero(self.uids == uid)
        if not (len(rows) and len(columns) and self.present[rows[0], columns[0]]):
            return np.empty(0, int), np.empty(0, int)
        path = [(int(rows[0]), int(columns[0]))]
        above, origin = self.sources
        while origin[path[-1]] >= 0:
            path.append((int(above[path[-1]]), int(origin[path[-1]])))
        rows, columns = np.array(path[::-1]).T
        return rows, columns

    def descent(self, row: int, before: int = 0) -> np.ndarray:
        """int64 [row - before + 1, N]: the columns of the ancestors of a row's members, at every row from `before` on to
        that row itself; -1 where they are unknown."""
        columns = [np.where(self.present[row], np.arange(len(self.uids)), -1)]
        for step in range(row, before, -1):
            columns.append(np.where(columns[-1] >= 0, self.origin[step][columns[-1]], -1))
        return np.array(columns[::-1])

    def best(self) -> tuple[int, int] | None:
        """(uid, generation) of the fittest member of the last generation with any fitness."""
        rows = np.flatnonzero(np.isfinite(self.fitness).any(axis=1))
        if not len(rows):
            return None
        return int(self.uids[np.nanargmax(self.fitness[rows[-1]])]), int(self.generations[rows[-1]])


def number(value: object) -> float:
    """`value` as a float that can be drawn; NaN for anything else: null, text, infinity, and what squares to that."""
    try:
        # YAML 1.1 reads 1e-5 as text, so text is worth a try
        result = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return result if abs(result) < 1e100 else math.nan


def count(value: object) -> float:
    """`value` as a number of things, such as steps; NaN where it is a flag, below 0, or more than tables hold."""
    result = math.nan if isinstance(value, bool) else number(value)
    return result if 0 <= result < 2**53 else math.nan


def inner(entry: object, *names: str) -> dict[str, Any]:
    """The object that lies in others under these names; an empty one where it does not."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry if isinstance(entry, dict) else {}


def flat(value: Any, separator: str, name: str = "") -> dict[str, Any]:
    """Flatten {"method": {"name": "pbt"}} to {"method.name": "pbt"}."""
    if not (isinstance(value, dict) and value):
        return {name: value}
    paths = {f"{name}{separator}{key}" if name else str(key): inside for key, inside in value.items()}
    return {path: leaf for at, inside in paths.items() for path, leaf in flat(inside, separator, at).items()}


LARGEST = 2**27  # cells of a table
MEASURED = {"fitness": number, "returns_std": number, "episodes": count, "steps": count}  # and how each is read


def tabulate(entries: list[dict[str, Any]]) -> Lineage:
    """The lines of `lineage.jsonl` as tables. Of two lines on the same member and generation the later one holds.
    Raises BadInput where they are too large."""
    entries = [e for e in entries if _whole(e.get("generation")) and _whole(e.get("uid"))]
    (generations, rows), (uids, columns) = (
        np.unique(np.array([e[name] for e in entries], np.int64), return_inverse=True) for name in ("generation", "uid")
    )
    shape = (len(generations), len(uids))
    if math.prod(shape) > LARGEST:  # each of a few lines may have a generation and a member of its own
        raise BadInput(f"lineage.jsonl has {shape[0]:,} generations of {shape[1]:,} members, too many for a table")

    def table(values: Any, missing: Any = np.nan) -> np.ndarray:
        made = np.broadcast_to(missing, shape).copy()
        made[rows, columns] = values
        return made

    hyper = [inner(e, "hyper") for e in entries]
    return Lineage(
        generations, uids,
        present=table(True, False),
        parents=table([e["parent"] if _whole(e.get("parent")) else e["uid"] for e in entries], uids),
        parent_generations=table(
            [e["parent_generation"] if _whole(e.get("parent_generation")) else e["generation"] for e in entries],
            generations[:, None],
        ),
        explored=table([e.get("explored") is True for e in entries], False),
        **{name: table([read(e.get(name)) for e in entries]) for name, read in MEASURED.items()},
        hyper={name: table([number(h.get(name)) for h in hyper]) for name in dict.fromkeys(n for h in hyper for n in h)},
    )  # fmt: skip


def _whole(value: object) -> bool:
    """An integer that fits the tables, and one more than it; a flag is none."""
    return type(value) is int and abs(value) < 2**53
