"""Whether the records of workers that share a directory agree: every copy, and every line, has what explains it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows_of(workspace: Path) -> dict[str, list[Row]]:
    """The lineage of every worker, by name; what is half-written is an error here."""
    files = sorted((workspace / "workers").glob("*/lineage.jsonl"))
    return {file.parent.name: [json.loads(line) for line in file.read_text().splitlines()] for file in files}


def check_ancestry(workspace: Path) -> int:
    """Assert that all records agree. Returns how many copies from one worker to another were explained."""
    lineages = rows_of(workspace)
    wrong = [f"{name}: {what}" for name, rows in lineages.items() for what in unsteady(rows)]
    every = {(row["uid"], row["generation"]): (name, row) for name, rows in lineages.items() for row in rows}
    if len(every) < sum(map(len, lineages.values())):
        wrong.append("a member of a generation has two lines")
    across = 0
    for (uid, generation), (name, row) in every.items():
        copied = row["parent"], row["parent_generation"]
        owner, parent = every.get(copied, ("", None))
        across += owner != name
        child = every.get((uid, generation + 1), ("", None))[1]
        wrong += [f"{name}: member {uid} after generation {generation}: {what}" for what in untrue(row, parent, child)]
    assert not wrong, f"{len(wrong)} records that others do not explain, such as {wrong[:3]}"
    return across


def unsteady(rows: list[Row]) -> Iterable[str]:
    """A worker's members go on generation by generation, and train on the way; lines of two lives do not."""
    members = sorted({row["uid"] for row in rows})
    for place, row in enumerate(rows):
        expected = place // len(members), members[place % len(members)]
        if (row["generation"], row["uid"]) != expected:
            yield f"line {place} is of {row['generation'], row['uid']} instead of {expected}"
            return


def untrue(row: Row, parent: Row | None, child: Row | None) -> Iterable[str]:
    """What a line says of its parent, and what became of it, against what the parent's own line says."""
    if parent is None:
        yield f"nobody was {row['parent'], row['parent_generation']}"
        return
    if row["parent_generation"] > row["generation"]:
        yield "its parent is of the future"
    if row["parent"] != row["uid"] and parent["fitness"] is None:
        yield "its parent had no fitness"
    if row["parent_fitness"] != parent["fitness"]:
        yield f"its parent's fitness was {row['parent_fitness']}, and the parent says {parent['fitness']}"
    if child is not None and not row["explored"] and child["hyper"] != parent["hyper"]:
        yield f"it went on with {child['hyper']}, and its parent had {parent['hyper']}"
