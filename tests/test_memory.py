"""The memory of the tests: programs are dropped once they take much, and a test that takes too much fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support import memory

LEFT = 1e9
FEW, MANY, TOO_MANY = LEFT + 0.9 * memory.ROOM, LEFT + 1.1 * memory.ROOM, 1.3 * memory.BOUND


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return True if programs are dropped where a test ends with so many bytes in memory, and so many at most so far."""

    def ends(now: float, peak: float, slow: bool = False) -> bool:
        dropped: list[bool] = []
        monkeypatch.setattr(memory, "resident", lambda: now)
        monkeypatch.setattr(memory, "peak", lambda: peak)
        monkeypatch.setattr(memory, "make_room", lambda: dropped.append(True))
        item: Any = SimpleNamespace(get_closest_marker=lambda name: "marked" if slow else None)
        memory.pytest_runtest_teardown(item)
        return bool(dropped)

    monkeypatch.setattr(memory, "_peak", 0)
    monkeypatch.setattr(memory, "_left", LEFT)
    return ends


def test_programs_are_dropped(ends: Callable[..., bool]) -> None:
    """Once there are many more than were left the last time: what stays for good is not dropped after every test."""
    assert not ends(FEW, MANY)
    assert ends(MANY, MANY)
    assert not ends(MANY, MANY), "so many were left"
    assert ends(MANY + 1.1 * memory.ROOM, MANY)


def test_too_much(ends: Callable[..., bool]) -> None:
    """It is the test at which the most goes beyond the bound that fails, and no later one."""
    ends(MANY, memory.BOUND)
    with pytest.raises(pytest.fail.Exception, match=r"^this process has taken 2\.6 GB: tests may take 2 GB$"):
        ends(MANY, TOO_MANY)
    ends(MANY, TOO_MANY)


def test_slow_tests_may_take_more(ends: Callable[..., bool]) -> None:
    ends(MANY, TOO_MANY, slow=True)


def test_what_is_allocated_counts() -> None:
    before = memory.resident()
    block = b"x" * 50_000_000
    assert 40_000_000 < memory.resident() - before < 60_000_000 and memory.peak() - before > 40_000_000
    assert len(block) == 50_000_000
