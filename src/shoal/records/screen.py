"""The screen: where all that Shoal prints meets the terminal."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.core.escape import escape, speakable


class Screen(Console):
    """Standard output or error. A text is one line and means itself: nothing in it is markup, or steers the terminal.

    What has a style of Shoal's own is `styled`.
    """

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._meant = bool(options.get("force_terminal"))  # not only by FORCE_COLOR
        speakable(self.file)

    @property
    def redraws(self) -> bool:
        """Whether what is printed can be drawn anew in its place: in a terminal, but for `TERM=dumb`, and not in a pipe,
        even where FORCE_COLOR asks for colours."""
        return self.is_terminal and not self.is_dumb_terminal and (self._meant or self.file.isatty())

    def status(self, status: Any, **options: Any) -> Any:
        """A word on what is going on, where it can be taken away again."""
        return super().status(status, **options) if self.redraws else nullcontext()

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape(text), **options)


class Output(Screen):
    """One of a run, which goes on when nobody reads any more, as with `| head`."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        if not self.stderr:
            Output(stderr=True).print("shoal: nobody reads the output any more; the run goes on")


def plain_table(*heads: str, **options: Any) -> Table:
    """A table without lines."""
    return Table(*heads, box=None, pad_edge=False, header_style="dim", **options)


def styled(*parts: str | tuple[str, str]) -> Text:
    """A line of several parts; those that are (text, style) have one."""
    whole = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        whole.append(escape(text), style)
    return whole
