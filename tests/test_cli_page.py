"""The page of the command line is made from `--help`."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from shoal import cli

MADE = runpy.run_path(str(Path(__file__).parents[1] / "website/cli_page.py"))


def test_the_page_of_the_command_line_is_as_help_is_now() -> None:
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["page"](), "make cli-page writes it anew"


HEADINGS = {"positional arguments", "options", "experiment options", "worker options", "Isaac Lab options"}


@pytest.mark.parametrize("name", [command.__name__ for command in cli.COMMANDS])
def test_help_has_headings_that_mean_something_and_says_nothing_often(name: str) -> None:
    told = MADE["_help"](name)
    assert set(re.findall(r"^ (\w.*)", told, re.MULTILINE)) <= HEADINGS
    assert "\n\n\n" not in told
    lines = Counter(line.strip() for line in told.splitlines())
    assert [line for line, times in lines.items() if times > 2 and len(line.strip("-")) > 20] == []
