"""The page of the command line is made from `--help`."""

from __future__ import annotations

import runpy
from pathlib import Path

MADE = runpy.run_path(str(Path(__file__).parents[1] / "website/cli_page.py"))


def test_the_page_of_the_command_line_is_as_help_is_now() -> None:
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["page"](), "make cli-page writes it anew"
