"""Ancestry against cases worked out by hand, and files as a killed process leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic_run import write_run

from shoal.core.errors import BadInput
from shoal.records.jsonl import read_lines
from shoal.report.lineage import Lineage, tabulate
from shoal.report.load_run import load_run
from shoal.report.page import write_report
from shoal.report.run import read_run
from shoal.report.schedule import schedule


def lines(*generations: dict[int, int], start: int = 0) -> list[dict[str, Any]]:
    """One entry per member; each generation is {uid: parent}. The learning rate tells where it was written."""
    return [
        {
            "generation": generation,
            "uid": uid,
            "parent": parent,
            "explored": parent != uid,
            "fitness": 10.0 * generation + uid,
            "returns_std": 1.0,
            "episodes": 8,
            "steps": 100 * (generation + 1),
            "hyper": {"learning_rate": generation + uid / 100},
        }
        for generation, members in enumerate(generations, start)
        for uid, parent in members.items()
    ]


def write(path: Path, entries: list[dict[str, Any]], tail: str = "") -> Path:
    path.mkdir(exist_ok=True)
    (path / "lineage.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + tail)
    return path


def lineage(*generations: dict[int, int], start: int = 0) -> Lineage:
    return tabulate(lines(*generations, start=start))


def ancestors(table: Lineage, uid: int, generation: int) -> list[tuple[int, int]]:
    """(uid, generation) of all whose weights led to this member, oldest first, ending with itself."""
    rows, columns = table.trace(uid, generation)
    return list(zip(table.uids[columns].tolist(), table.generations[rows].tolist(), strict=True))


def test_ancestors_follow_the_parents() -> None:
    table = lineage({0: 0, 1: 1, 2: 0}, {0: 0, 1: 2, 2: 2}, {0: 0, 1: 1, 2: 2})
    assert ancestors(table, 1, 2) == [(0, 0), (2, 1), (1, 2)]
    assert ancestors(table, 0, 2) == [(0, 0), (0, 1), (0, 2)]
    assert ancestors(table, 1, 1) == [(1, 0), (1, 1)]
    assert ancestors(table, 1, 0) == [(1, 0)]


def test_copies_of_one_generation_come_from_a_snapshot() -> None:
    """0 -> 1 -> 2 in one generation: 2 gets what 1 had before it copied 0."""
    table = lineage({0: 0, 1: 0, 2: 1}, {0: 0, 1: 1, 2: 2})
    assert ancestors(table, 2, 1) == [(1, 0), (2, 1)]
    assert ancestors(table, 1, 1) == [(0, 0), (1, 1)]


def test_weights_of_an_earlier_generation() -> None:
    """A worker copies what a slower one had published before: 1 goes on from 0 as it was a generation earlier."""
    entries = lines({0: 1, 1: 1, 2: 2}, {0: 0, 1: 1, 2: 2}, {0: 0, 1: 0, 2: 2}, {0: 0, 1: 1, 2: 2})
    for entry in entries:
        late = (entry["generation"], entry["uid"]) == (2, 1)
        entry["parent_generation"] = 0 if late else entry["generation"]
    table = tabulate(entries)
    assert ancestors(table, 1, 3) == [(0, 0), (1, 3)]
    assert ancestors(table, 0, 3) == [(1, 0), (0, 1), (0, 2), (0, 3)]
    assert table.founders[-1].tolist() == [1, 0, 2]
    for entry in entries:
        entry.pop("parent_generation")
    assert ancestors(tabulate(entries), 1, 3) == [(1, 0), (0, 1), (0, 2), (1, 3)]


def test_a_parent_of_a_generation_that_is_not_there() -> None:
    entries = lines({0: 0, 1: 1}, {0: 0, 1: 0}, {0: 0, 1: 1}, start=3)
    entries[3]["parent_generation"] = 1
    assert ancestors(tabulate(entries), 1, 5) == [(1, 5)]


def test_founders() -> None:
    table = lineage({0: 0, 1: 1, 2: 0}, {0: 1, 1: 1, 2: 2}, {0: 0, 1: 1, 2: 2})
    assert table.founders.tolist() == [[0, 1, 2], [0, 1, 0], [1, 1, 0]]


def test_copies_are_counted_by_generation() -> None:
    table = lineage({0: 0, 1: 0, 2: 0}, {0: 0, 1: 1, 2: 1}, {0: 0, 1: 1, 2: 2})
    assert table.copied.sum(axis=1).tolist() == [2, 1, 0]


def test_any_integers_are_uids() -> None:
    table = lineage({700: 700, -3: 700}, {700: 700, -3: -3})
    assert ancestors(table, -3, 1) == [(700, 0), (-3, 1)]
    assert table.founders.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        (({0: 0, 1: 99}, {0: 0, 1: 1}), [(1, 1)]),  # the parent lives in another process
        (({0: 0}, {0: 0, 1: 1}), [(1, 1)]),  # the member was not there before
        (({1: 0}, {1: 1}), [(1, 1)]),  # the parent's own line is missing
    ],
)
def test_ancestry_ends_where_nothing_is_known(generations: Any, expected: Any) -> None:
    assert ancestors(lineage(*generations), 1, 1) == expected


def test_ancestry_does_not_bridge_a_lost_generation() -> None:
    table = tabulate(lines({0: 0, 1: 0}) + lines({0: 0, 1: 1}, start=2))
    assert ancestors(table, 1, 2) == [(1, 2)]


def test_unknown_members_have_no_ancestors() -> None:
    table = lineage({0: 0}, {0: 0})
    assert ancestors(table, 5, 0) == ancestors(table, 0, 7) == ancestors(tabulate([]), 0, 0) == []


def test_the_later_of_two_lines_holds() -> None:
    """A run that resumes from a checkpoint writes some generations twice."""
    table = tabulate(lines({0: 0, 1: 1}, {0: 0, 1: 1}) + lines({0: 1, 1: 1}))
    assert ancestors(table, 0, 1) == [(1, 0), (0, 1)]


def test_broken_lines_are_skipped(tmp_path: Path) -> None:
    entries = lines({0: 0, 1: 1}, {0: 1, 1: 1})
    broken = '\n[1, 2]\n"text"\n{"uid": 1}\n{"generation": 1.5, "uid": 0}\n{"generation": true, "uid": 0}\n'
    broken += '{"generation": 1, "u'  # the process was killed here
    run = read_run(write(tmp_path / "run", entries, broken))
    assert run.lineage.present.all() and run.lineage.present.shape == (2, 2)
    (tmp_path / "bytes.jsonl").write_bytes(b'{"a": 1}\n\xff\xfe\x00{\n{"a": 2}\n')
    assert read_lines(tmp_path / "bytes.jsonl") == [{"a": 1}, {"a": 2}]
    assert read_lines(tmp_path / "missing.jsonl") == []


def test_numbers_that_are_none_become_nan() -> None:
    entry = {
        "generation": 0,
        "uid": 0,
        "fitness": None,
        "steps": "many",
        "hyper": {"a": None, "b": float("inf"), "c": 2},
    }
    table = tabulate([entry, {"generation": 0, "uid": 1, "hyper": None, "fitness": float("nan"), "parent": "x"}])
    assert np.isnan(table.fitness).all() and np.isnan(table.steps).all()
    assert np.isnan(table.hyper["a"]).all() and np.isnan(table.hyper["b"]).all()
    assert table.hyper["c"][0, 0] == 2 and not table.copied.any()
    assert table.best() is None


def test_schedule_is_the_history_of_the_weights(tmp_path: Path) -> None:
    run = write(tmp_path / "run", lines({0: 0, 1: 1, 2: 0}, {0: 0, 1: 2, 2: 2}, {0: 0, 1: 1, 2: 2}))
    (run / "result.json").write_text('{"champion": {"uid": 1, "generation": 2}}')
    assert schedule(run) == [
        {"generation": 0, "uid": 0, "steps": 100, "fitness": 0.0, "copied": False, "learning_rate": 0.0},
        {"generation": 1, "uid": 2, "steps": 200, "fitness": 12.0, "copied": True, "learning_rate": 1.02},
        {"generation": 2, "uid": 1, "steps": 300, "fitness": 21.0, "copied": True, "learning_rate": 2.01},
    ]


def test_schedule_keeps_its_columns_and_says_none(tmp_path: Path) -> None:
    entries = lines({0: 0}, {0: 0})
    entries[0] |= {"fitness": None, "steps": None, "hyper": {"steps": 7.0}}
    rows = schedule(write(tmp_path / "run", entries))
    assert rows[0] == {
        "generation": 0,
        "uid": 0,
        "steps": None,
        "fitness": None,
        "copied": False,
        "learning_rate": None,
    }
    json.dumps(rows, allow_nan=False)


def test_champion_of_the_result_then_the_metrics_then_the_fittest(tmp_path: Path) -> None:
    run = write(tmp_path / "run", lines({0: 0, 1: 1}, {0: 0, 1: 1}))
    assert read_run(run).champion == (1, 1)
    (run / "metrics.jsonl").write_text(
        '{"champion": {"uid": 1, "generation": 0}}\n{"champion": {"uid": 0, "generation": 1}}\n{"c'
    )
    assert read_run(run).champion == (0, 1)
    (run / "result.json").write_text('{"champion": {"uid": 0, "generation": 0}}')
    assert read_run(run).champion == (0, 0)
    (run / "result.json").write_text('{"champion": {"uid": 8, "generation": 0}}')
    assert read_run(run).champion == (0, 1)
    (run / "result.json").write_text('{"champion": {"uid": 0, "gen')
    assert read_run(run).champion == (0, 1)


def test_no_champion_without_fitness(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3, 2, diverged=1.0)
    assert read_run(run).champion is None
    assert schedule(run) == []


def test_ranges_as_the_experiment_states_them(tmp_path: Path) -> None:
    entries = lines({0: 0})
    entries[0]["hyper"] = dict.fromkeys(("rate", "steps", "size", "odd", "empty"), 1.0)
    run = write(tmp_path / "run", entries)
    (run / "experiment.yaml").write_text(
        "space:\n  rate: {low: 1e-5, high: 1e-2, scale: log}\n  steps: {low: 1, high: 8, integer: true}\n"
        "  size: {choices: [1, 2, 4], ordered: true}\n  odd: {low: 3, high: 1, scale: cubic}\n"
        "  empty:\n  absent: {low: 0, high: 1}\n"
    )
    space = read_run(run).space
    assert list(space) == ["rate", "steps", "size", "odd", "empty"]
    assert (space["rate"].low, space["rate"].high, space["rate"].scale) == (1e-5, 1e-2, "log")
    assert space["steps"].integer and space["size"].choices == (1, 2, 4) and space["size"].ordered
    assert space["odd"].low is None and space["odd"].scale == "linear"


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no run"):
        read_run(tmp_path)
    with pytest.raises(BadInput, match="no such directory"):
        read_run(tmp_path / "nowhere")


def test_synthetic_lineage_is_whole(tmp_path: Path) -> None:
    table = read_run(write_run(tmp_path / "run", 12, 15)).lineage
    assert table.copied.sum(axis=1).tolist() == [3] * 14 + [0]
    for uid in range(12):
        found = ancestors(table, uid, 14)
        assert [generation for _, generation in found] == list(range(15))
        assert table.uids[table.founders[14, uid]] == found[0][0]


@pytest.mark.parametrize("steps", [-1, 2**62, 10**30, 10**400, True, "many", [1]])
def test_numbers_of_steps_that_cannot_be(tmp_path: Path, steps: Any) -> None:
    """They are not told, in the schedule, in the tables of a notebook, or on the page."""
    run = write_run(tmp_path / "run")
    forged = {"steps": steps, "episodes": steps, "evaluation_steps": steps}
    for name in ("lineage.jsonl", "metrics.jsonl"):
        rows = [json.dumps(row | forged) + "\n" for row in read_lines(run / name)]
        (run / name).write_text("".join(rows))
    result = json.loads((run / "result.json").read_text()) | {"environment_steps": steps, "evaluation_steps": steps}
    (run / "result.json").write_text(json.dumps(result))
    assert {row["steps"] for row in schedule(run)} == {None}
    loaded = load_run(run)
    assert loaded.lineage["steps"].isna().all() and loaded.metrics["steps"].isna().all()
    write_report(run)


def test_lines_that_would_make_too_large_a_table_are_refused(tmp_path: Path) -> None:
    """Each of a member and a generation of its own: a megabyte of them would take all memory."""
    run = write_run(tmp_path / "run", population=2, generations=2)
    lines = (json.dumps({"generation": i, "uid": i}) + "\n" for i in range(12_000))
    (run / "lineage.jsonl").write_text("".join(lines))
    with pytest.raises(BadInput, match="has 12,000 generations of 12,000 members, too many for a table"):
        read_run(run)
