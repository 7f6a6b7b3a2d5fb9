"""docs/reference/cli.md from `--help`: what stands before the first command stays, all else is written anew."""

from __future__ import annotations

import os
import re
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from shoal import cli

PAGE = Path(__file__).parents[1] / "docs/reference/cli.md"
FIRST = "\n## shoal "  # the heading of the first command


def page() -> str:
    """The page as it is now."""
    head = PAGE.read_text(encoding="utf-8").partition(FIRST)[0]
    return head + "".join(_section(command.__name__) for command in cli.COMMANDS)


def _section(name: str) -> str:
    """A heading, the description, and a block of the usage and the options."""
    usage, _, rest = _help(name).partition("\n\n")
    description, options = re.split(r"\n\n(?= \w+)", rest, maxsplit=1)
    options = re.sub(r"^ +-+\n", "", options, flags=re.MULTILINE)  # lines under headings
    options = re.sub(r"^  -h, --help .*\n", "", options, flags=re.MULTILINE)
    options = re.sub(r"^ options\n\n", "", options, flags=re.MULTILINE)  # none but --help
    options = re.sub(r"^ (\w.*)", r"\1:", options, flags=re.MULTILINE)
    block = f"{usage}\n\n{options}".rstrip()
    description = re.sub(r"\n{3,}", "\n\n", description)
    return f"{FIRST}{name}\n\n{description}\n\n```text\n{block}\n```\n"


def _help(name: str) -> str:
    """The help of a command, without spaces at the ends of its lines."""
    out = StringIO()
    with patch.dict(os.environ, COLUMNS="80"), redirect_stdout(out), suppress(SystemExit):
        cli.main([name, "--help"])
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
