"""In a notebook the table and the bar are one output, drawn anew in its place."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.runs import tiny

from shoal.records import notebook
from shoal.records.console import Display
from shoal.records.screen import Screen
from shoal.run.train import train

GENERATIONS = 4


def test_the_bar_grows_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, picture: dict[str, str], raw: bool) -> None:
            shown.append(picture)

    def display(*what: Any, raw: bool = False, display_id: bool = False) -> Handle | None:
        shown.extend(what if display_id else ())
        return Handle() if display_id else None

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(notebook, "EVERY", 0)
    train(tiny(tmp_path / "run", generations=GENERATIONS), [Display(Screen(file=StringIO(), force_jupyter=True))])
    texts = [picture["text/plain"] for picture in shown]
    shares = [int(found[1]) for text in texts if (found := re.search(r"(\d+)% ", text))]
    assert len(shares) > 2 * GENERATIONS and shares == sorted(shares) and (shares[0], shares[-1]) == (0, 100)
    assert any("compiling training" in text for text in texts)
    assert [f"{g}/{GENERATIONS}" in texts[-1] for g in range(1, GENERATIONS + 1)] == [True] * GENERATIONS
    assert "%" not in texts[-1]  # the bar is gone when it is over
    assert all(picture["text/html"].startswith("<pre") for picture in shown)


@pytest.mark.slow
def test_in_a_real_notebook(tmp_path: Path) -> None:
    """An output for each line that begins it, one for the table, and what the cell gives."""
    import nbformat
    from nbclient import NotebookClient

    given = tiny(tmp_path / "run", generations=GENERATIONS)
    cell = nbformat.v4.new_code_cell(f"from shoal import Experiment, train\ntrain({given!r}, progress=True)")
    NotebookClient(nbformat.v4.new_notebook(cells=[cell]), kernel_name="python3", timeout=300).execute()
    first, length, table, result = cell.outputs
    assert f"{GENERATIONS} generations of" in first.data["text/plain"]
    assert f"4 members × {GENERATIONS * 64} steps each" in length.data["text/plain"]
    assert re.findall(r"\d+(?=/4 )", table.data["text/plain"]) == ["1", "2", "3", "4"]
    assert table.data["text/html"].startswith("<pre")
    assert result.output_type == "execute_result" and result.data["text/plain"].startswith("<result of")
