"""Rows that are appended as a run goes, and cut back when it resumes."""

from __future__ import annotations

import errno
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import ended

from shoal.core.errors import BadInput
from shoal.records import jsonl
from shoal.records.jsonl import Lines, last_line, read_lines


def row(generation: int, uid: int = 0) -> dict[str, int]:
    return {"generation": generation, "uid": uid}


def read(path: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, rows: list[dict[str, int]], before: int = 9) -> None:
    lines = Lines(path, before, path.parent)
    try:
        lines.write(rows)
    finally:
        lines.close()


def test_appends(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = Lines(path, 0, tmp_path)
    assert path.read_text() == ""
    lines.write([row(0, 0), row(0, 1)])
    lines.write([row(1, 0)])
    lines.sync()
    lines.close()
    assert path.read_text() == '{"generation": 0, "uid": 0}\n{"generation": 0, "uid": 1}\n{"generation": 1, "uid": 0}\n'


def test_goes_on_with_what_is_there(tmp_path: Path) -> None:
    write(tmp_path / "a", [row(0)])
    write(tmp_path / "a", [row(1)])
    assert read(tmp_path / "a") == [row(0), row(1)]


ROWS = st.lists(st.fixed_dictionaries({"generation": st.integers(0, 5), "x": st.text() | st.floats(allow_nan=False)}))


def test_rows_come_back_those_of_before(tmp_path: Path) -> None:
    """From a file whose end is missing too, as after a power cut: half a line is dropped."""
    path = tmp_path / "a"

    @given(ROWS, ROWS, st.integers(0, 6), st.integers(0, 30))
    def come_back(some: list, more: list, before: int, missing: int) -> None:
        path.unlink(missing_ok=True)
        write(path, some)
        whole = path.read_bytes()
        data = whole[: max(len(whole) - missing, 0)]
        path.write_bytes(data)
        write(path, more, before)
        left, there = data.count(b"\n"), [len(line) for line in whole.split(b"\n")]
        left += left < len(some) and len(data.rpartition(b"\n")[2]) == there[left]  # all but the end of its line
        assert read(path) == [row for row in some[:left] if row["generation"] < before] + more

    come_back()


def test_foreign_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a"
    foreign = b'\n5\nnull\n[1]\n{}\n{"generation": "x"}\n{"generation": null}\n\xff\xfe\n'
    path.write_bytes(foreign + b'{"generation": 1, "uid": 2}\n')
    write(path, [], before=5)
    assert read(path) == [row(1, 2)]


def test_cutting_back_a_missing_file(tmp_path: Path) -> None:
    write(tmp_path / "a", [row(3)], before=3)
    assert read(tmp_path / "a") == [row(3)]


def test_cutting_back_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write(path, [row(0), row(1)])

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, [], before=1)
    assert read(path) == [row(0), row(1)]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_who_has_lost_the_file_appends_to_none(tmp_path: Path) -> None:
    """Another process has taken over the run, and has cut back its lines."""
    path = tmp_path / "a"
    late = Lines(path, 0, tmp_path)
    late.write([row(0), row(1)])
    now = Lines(path, 1, tmp_path)
    late.write([row(2)])
    now.write([row(1, 7)])
    late.sync()
    for lines in (late, now):
        lines.close()
    assert read(path) == [row(0), row(1, 7)]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_long_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    line = json.dumps({"generation": 0, "text": "x" * 1000}) + "\n"
    path.write_text(line * 20_000)
    tracemalloc.start()
    try:
        write(path, [row(1)], before=1)
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 4
    finally:
        tracemalloc.stop()
    assert path.read_text() == line * 20_000 + '{"generation": 1, "uid": 0}\n'


LINES = st.lists(
    st.sampled_from([b'{"a": 1}', b'{"b": 2}', b"{}", b"[1]", b'{"a": ', b"", b"\0\0\0", b"\xff"]), max_size=6
)


@given(lines=LINES, ended=st.booleans())
def test_the_last_line_is_the_last_of_all_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool
) -> None:
    """However much of the file is looked at from its end."""
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)
    last = next(reversed(read_lines(path)), {})
    assert last_line(path) == last
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "LARGEST", 12)
        assert last_line(path) in (last, {})


@pytest.mark.parametrize("read", [read_lines, last_line])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any, end: bytes) -> None:
    monkeypatch.setattr(jsonl, "LARGEST", 100)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"0" * 101 + end)
    with pytest.raises(BadInput, match="has a line of more than 100 bytes"):
        read(path)


@pytest.mark.parametrize("fitness", [[1.5e308] * 4, [np.inf, -np.inf, np.nan, 1.0], [np.inf]], ids=str)
def test_no_row_has_a_number_that_json_has_not(fitness: list[float]) -> None:
    """The sum of numbers near the end of float64 is infinite, and so is their mean."""
    metrics = ended(0, np.array(fitness)).rows.metrics
    json.dumps(metrics["fitness"], allow_nan=False)
    finite = [x for x in fitness if np.isfinite(x)]
    assert metrics["fitness"]["best"] == max(finite, default=None)
