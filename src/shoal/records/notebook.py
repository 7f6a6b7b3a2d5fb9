"""The display of a run in the output of a notebook cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO

from rich.console import RenderableType

from shoal.records.screen import Screen

WIDTH = 110  # characters of a line
EVERY = 0.25  # seconds between updates
PRE = '<pre style="margin: 0; line-height: 1.3; overflow-x: auto; white-space: pre">{code}</pre>'


class Cell:
    """A live view in the output of a cell."""

    def __init__(self, view: Callable[[], RenderableType]):
        self._view = view

    def start(self) -> None:
        from IPython.display import display  # present in a notebook

        self._drawn = time.monotonic()
        self._handle = display(self._picture(), raw=True, display_id=True)

    def refresh(self) -> None:
        """Update the view, unless that was a moment ago."""
        if time.monotonic() - self._drawn >= EVERY:
            self._draw()

    def stop(self) -> None:
        """Update the view for the last time."""
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._handle.update(self._picture(), raw=True)

    def _picture(self) -> dict[str, str]:
        paper = Screen(record=True, file=StringIO(), width=WIDTH, force_terminal=True, force_jupyter=False)
        paper.print(self._view())
        html = paper.export_html(inline_styles=True, code_format=PRE, clear=False)
        return {"text/html": html, "text/plain": paper.export_text()}
