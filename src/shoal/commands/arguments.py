"""From the words of a command line to a subcommand that runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import make_dataclass
from functools import partial, wraps
from io import StringIO
from typing import Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from shoal import __version__
from shoal.core.errors import unknown
from shoal.core.interrupts import DONE
from shoal.core.visible import visible

Command = Callable[..., int]
CONFIG = (FlagCreatePairsOff, OmitArgPrefixes)  # no --no-quiet, and no --flags.seed


def call(commands: Sequence[Command], overview: str, given: Sequence[str]) -> int:
    """Call the subcommand that is asked for. Where there is none, SystemExit with the help, or with what is wrong."""
    for command in commands:
        if given[:1] == [command.__name__]:
            return _bound(command, given[1:])()
    if given == ["--version"]:
        print(f"shoal {__version__}")
        return DONE
    if given and not given[0].startswith("-"):
        raise unknown("command", given[0], [command.__name__ for command in commands])
    app = tyro.extras.SubcommandApp()
    for command in commands:  # without their arguments, because their types and defaults take longest to import
        app.command(make_dataclass(command.__name__, (), namespace={"__doc__": command.__doc__}))
    return app.cli(prog="shoal", description=overview, args=given)


def _bound(command: Command, arguments: Sequence[str]) -> Callable[[], int]:
    """A command with its arguments. SystemExit with its help, or with what is wrong; of the arguments that this tells, the
    terminal obeys nothing."""

    @wraps(command)
    def bind(*positional: Any, **named: Any) -> Callable[[], int]:
        return partial(command, *positional, **named)

    try:
        with redirect_stderr(StringIO()) as said:
            return tyro.cli(bind, prog=f"shoal {command.__name__}", args=arguments, config=CONFIG)
    finally:
        own = r"(\n|\x1b\[[\d;]*m)" if sys.stdout.isatty() else r"(\n)"  # its lines and colours
        parts = re.split(own, said.getvalue())
        if sys.stderr is not None:
            sys.stderr.write("".join(part if at % 2 else visible(part) for at, part in enumerate(parts)))


def one_by_one(arguments: Sequence[str]) -> list[str]:
    """`--set A=1 B=2` as `--set A=1 --set B=2`."""
    given: list[str] = []
    for argument in arguments:
        if given[-2:-1] == ["--set"] and "=" in argument and not argument.startswith("-"):
            given.append("--set")
        given.append(argument)
    return given


def overrides_last(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command with all overrides, which may stand anywhere in it, behind the others."""
    places = ("-o", "--out")  # which are followed by a path

    def is_override(i: int) -> bool:
        given = arguments[i]
        return "=" in given and not given.startswith("-") and (i == 0 or arguments[i - 1] not in places)

    order = sorted(range(len(arguments)), key=is_override)  # which keeps the order of each kind
    return [arguments[i] for i in order]
