"""Parts of a population that several workers measure: who measures what, and what happens to files in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shoal.core.atomic import seal, unseal
from shoal.distributed import returns
from shoal.distributed.returns import Returns

ROWS = np.array([[5, 1.5, np.nan, 2], [6, np.nan, 0.25, 2], [7, 0.1 + 0.2, 1e-300, 2]])


class Impatient(Exception):
    """Somebody waited."""


def waits() -> None:
    raise Impatient


def measure(worker: Returns, generation: int, parts: int, most: int | None = None) -> list[int]:
    """Which parts a worker measures, up to `most`."""
    done = []
    for part in worker.to_measure(generation, parts, ROWS.shape):
        worker.publish(generation, part, ROWS + part)
        done.append(part)
        if len(done) == most:
            break
    return done


def test_numbers_come_back_to_the_bit(tmp_path: Path) -> None:
    worker = Returns(tmp_path, 0, waits)
    measure(worker, 3, 1)
    other = Returns(tmp_path, 5, waits)
    assert other.there(3, 0, ROWS.shape) and not other.there(3, 1, ROWS.shape) and not other.there(4, 0, ROWS.shape)
    np.testing.assert_array_equal(other.rows[0], ROWS)


def test_one_worker_measures_everything(tmp_path: Path) -> None:
    assert measure(Returns(tmp_path, 2, waits), 0, 4) == [2, 3, 0, 1]
    assert measure(Returns(tmp_path, 2, waits), 1, 1) == [0]


def test_nobody_measures_what_others_have(tmp_path: Path) -> None:
    """But its first part, for everybody has to see the mean."""
    one, other = Returns(tmp_path, 0, waits), Returns(tmp_path, 1, waits)
    assert measure(one, 0, 4, most=2) == [0, 1]
    assert measure(other, 0, 4) == [1, 2, 3]
    assert measure(one, 0, 4) == [0]
    assert not list(tmp_path.rglob("*.claim"))


def test_a_claimed_part_is_waited_for(tmp_path: Path) -> None:
    slow, other = Returns(tmp_path, 1, waits), Returns(tmp_path, 0, waits)
    working = slow.to_measure(0, 2, ROWS.shape)
    assert next(working) == 1
    with pytest.raises(Impatient):
        measure(other, 0, 2)
    slow.publish(0, 1, ROWS)
    assert list(working) == []  # part 0 is there already
    assert measure(other, 0, 2) == [0]


def test_who_waits_reads_every_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, read = Returns(tmp_path, 3, waits), []
    working = slow.to_measure(0, 4, ROWS.shape)
    assert next(working) == 3

    def a_while() -> None:
        if len(waited) == 5:
            slow.publish(0, 3, ROWS + 3)
        waited.append(len(read))

    waited: list[int] = []
    other = Returns(tmp_path, 0, a_while)
    monkeypatch.setattr(returns, "unseal", lambda path: read.append(path.stem) or unseal(path))
    monkeypatch.setattr(returns, "PATIENCE", 1e9)
    assert measure(other, 0, 4) == [0, 1, 2]
    assert len(waited) > 5 and sorted(read) == ["0000", "0001", "0002", "0003"]
    for part in range(4):
        np.testing.assert_array_equal(other.rows[part], ROWS + part)


def test_who_is_gone_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "PATIENCE", 0.0)
    gone, other = Returns(tmp_path, 1, waits), Returns(tmp_path, 0, waits)
    assert next(gone.to_measure(0, 2, ROWS.shape)) == 1
    assert measure(other, 0, 2) == [0, 1]


DAMAGE: list[bytes | dict] = [
    *(b"", b"{", b'{"rows": [[1]], "manifest_crc32": 1}', b'{"rows": 3}', b'{"rows": ' + b"[" * 100_000),
    # forged, but sealed
    *({}, {"rows": 3}, {"rows": [[1, 2], [3]]}, {"rows": [[10**400] * 4] * 3}, {"rows": [[1.0] * 4] * 2}),
    *({"rows": {"a": 1}}, {"rows": "abc"}, {"rows": [["x"] * 4] * 3}, {"rows": [[[1.0]] * 4] * 3}),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_measured_again(tmp_path: Path, damage: bytes | dict) -> None:
    worker = Returns(tmp_path, 0, waits)
    measure(worker, 0, 3)
    (tmp_path / "00000000" / "0002.json").write_bytes(damage if isinstance(damage, bytes) else seal(damage))
    assert measure(worker, 0, 3) == [0, 2]
    np.testing.assert_array_equal(worker.rows[2], ROWS + 2)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_measured_again(tmp_path: Path, make: Callable[[Path], None]) -> None:
    worker = Returns(tmp_path, 0, waits)
    measure(worker, 0, 3)
    (tmp_path / "00000000" / "0001.json").unlink()
    make(tmp_path / "00000000" / "0001.json")
    (tmp_path / "00000000" / "0002.claim").mkdir()
    assert measure(worker, 0, 3) == [0, 1]
    np.testing.assert_array_equal(worker.rows[1], ROWS + 1)


def test_two_that_measure_the_same_agree(tmp_path: Path) -> None:
    """The first file stays: it is the same."""
    worker = Returns(tmp_path, 0, waits)
    worker.to_measure(0, 1, ROWS.shape).__next__()
    worker.publish(0, 0, ROWS)
    worker.publish(0, 0, ROWS + 1)
    assert worker.there(0, 0, ROWS.shape)
    np.testing.assert_array_equal(worker.rows[0], ROWS)
