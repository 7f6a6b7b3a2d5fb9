"""The terminal, to which everything that Shoal prints goes."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.core.escape import shown, speakable


class Screen(Console):
    """Standard output or error. Text is printed literally in one line: no markup, no control characters, no absolute paths
    where relative ones will do. See `styled`."""

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._meant = bool(options.get("force_terminal"))  # not only by FORCE_COLOR
        speakable(self.file)

    @property
    def redraws(self) -> bool:
        """True if output can be redrawn in place: in a terminal except `TERM=dumb`, not in a pipe with FORCE_COLOR."""
        return self.is_terminal and not self.is_dumb_terminal and (self._meant or self.file.isatty())

    def status(self, status: Any, **options: Any) -> Any:
        """A temporary status line, if it can be removed again."""
        return super().status(status, **options) if self.redraws else nullcontext()

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(shown(text), **options)


class Output(Screen):
    """Standard output of a run, which goes on when its reader is gone, as with `| head`."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        if not self.stderr:
            Output(stderr=True).print("shoal: output is closed; the run continues")


def plain_table(*heads: str, **options: Any) -> Table:
    """A table without lines."""
    return Table(*heads, box=None, pad_edge=False, header_style="dim", **options)


def styled(*parts: str | tuple[str, str]) -> Text:
    """A line of several parts: text, or (text, style)."""
    whole = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        whole.append(shown(text), style)
    return whole
