"""Tutorials that train something."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_notebook_of_the_tutorials_runs(tmp_path: Path) -> None:
    """As it is: its cells end without an error, and the champion balances the pole."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(Path(__file__).parents[2] / "docs/tutorials/notebook.ipynb", 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells)
    assert any("image/png" in output.data for cell in cells for output in cell.outputs)
    assert float(cells[-1].outputs[-1].data["text/plain"]) > 150
