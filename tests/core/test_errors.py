"""What is shown of long values in messages."""

from __future__ import annotations

from pathlib import Path

from shoal.core.errors import BadInput
from shoal.core.interrupts import to_resume


def test_a_command_is_shown_whole_and_a_value_by_its_ends() -> None:
    place, value = Path("/somewhere") / ("a folder with spaces " * 9) / "run", "word " * 40
    said = str(BadInput(f"note = {value!r}: it holds a run; `{to_resume(place)}` continues it"))
    assert to_resume(place) in said and value not in said and " ... " in said
