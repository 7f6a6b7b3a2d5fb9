"""From the words of a command line to a subcommand that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass, make_dataclass
from functools import partial, wraps
from inspect import signature
from io import StringIO
from itertools import groupby
from typing import Any, TypeVar, get_type_hints

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from shoal import __version__
from shoal.core.errors import BadInput, unknown
from shoal.core.interrupts import DONE

Command = Callable[..., int]
T = TypeVar("T")
# What commands and other programs call the place where they write.
PLACES = {"run-dir", "workspace", "out", "output", "outdir", "output-dir", "dir", "directory", "folder", "logdir"}
CONFIG = (FlagCreatePairsOff, OmitArgPrefixes)  # no --no-quiet, and no --flags.seed


def call(commands: Sequence[Command], overview: str, given: Sequence[str]) -> int:
    """Call the subcommand that is asked for; none, or `help`, asks for help. Where that is all, SystemExit with it.

    Raises BadInput for what nothing takes.
    """
    if given[:1] in ([], ["help"]):
        given = [*given[1:], "--help"]
    for command in commands:
        if given[:1] == [command.__name__]:
            return _told(f"shoal {command.__name__}", partial(_bound, command, given[1:]), partial(_flags, command))()
    if given == ["--version"]:
        print(f"shoal {__version__}")
        return DONE
    if not given[0].startswith("-"):
        raise unknown("command", given[0], [command.__name__ for command in commands])
    app, completion = tyro.extras.SubcommandApp(), given[0].startswith("--tyro-")
    for command in commands:  # without their arguments, because their types and defaults take longest to import
        bare = make_dataclass(command.__name__, (), namespace={"__doc__": command.__doc__})
        app.command(command if completion else bare)
    return _told("shoal", lambda: app.cli(prog="shoal", description=overview, args=given, config=CONFIG))


def _bound(command: Command, arguments: Sequence[str]) -> Callable[[], int]:
    """A command with its arguments."""

    @wraps(command)
    def bind(*positional: Any, **named: Any) -> Callable[[], int]:
        return partial(command, *positional, **named)

    return tyro.cli(bind, prog=f"shoal {command.__name__}", args=arguments, config=CONFIG)


def _flags(command: Command) -> list[str]:
    """The names of what a command takes; of a dataclass those of its fields."""
    taken = get_type_hints(command)
    return [
        name
        for parameter in signature(command).parameters
        for name in ([f.name for f in fields(taken[parameter])] if is_dataclass(taken[parameter]) else [parameter])
    ]


def _told(command: str, parse: Callable[[], T], flags: Callable[[], Sequence[str]] = tuple) -> T:
    """What the parser makes of the arguments of a command. Raises BadInput, a line with what it says, where it refuses.

    flags: gives those that the command takes
    """
    try:
        with redirect_stderr(StringIO()) as said:
            return parse()
    except AssertionError as error:  # a shell that tyro does not know
        raise BadInput(str(error)) from error
    except SystemExit as end:
        if end.code in (None, DONE):
            raise
        _, *box = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()).splitlines()  # below its title
        lines = [line.strip("│|╭╮╰╯ ") for line in box]
        parts = [list(part) for ruled, part in groupby(lines, lambda line: not line.strip("─-")) if not ruled]
        problem = " ".join(parts[0]).removesuffix(".")
        near = [line for part in parts if part[0] == "Perhaps you meant:" for line in part if line.startswith("--")]
        if not near and problem.startswith("Unrec"):
            near = _as_flag(problem, flags())
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise BadInput(f"{problem}{hint}; {command} --help says what there is") from end


def _as_flag(problem: str, flags: Sequence[str]) -> list[str]:
    """What a command has, of these flags, for what is no flag of it: the place where it writes, by whatever name; or how a
    field is set, as in `--config.rollout 64`: --set config.rollout=64."""
    asked = re.search(r"--([a-z][a-z_-]*)", problem)
    if asked and asked[1].replace("_", "-") in PLACES:
        return [f"--{name.replace('_', '-')}" for name in ("run_dir", "workspace", "out") if name in flags][:1]
    if "set" not in flags:
        return []
    if taken := re.search(r"--([a-z_]+(?:\.\w+)+)(?:=|, )([^\s,]+)", problem):
        return [f"--set {taken[1]}={taken[2]}"]
    return ["--set FIELD=VALUE"] if "--" in problem else []


def one_by_one(arguments: Sequence[str]) -> list[str]:
    """`--set A=1 B=2` as `--set A=1 --set B=2`."""
    given: list[str] = []
    for argument in arguments:
        if given[-2:-1] == ["--set"] and "=" in argument and not argument.startswith("-"):
            given.append("--set")
        given.append(argument)
    return given


def isaac_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments of Isaac Lab's command as tyro takes them: `--kit_args` with its value, which looks like flags, in one;
    all overrides, which may stand anywhere, behind the others."""
    given: list[str] = []
    for argument in arguments:
        if given[-1:] in (["--kit_args"], ["--kit-args"]):
            given[-1] += f"={argument}"
        else:
            given.append(argument)
    places = ("-o", "--out")  # which are followed by a path

    def is_override(i: int) -> bool:
        return "=" in given[i] and not given[i].startswith("-") and (i == 0 or given[i - 1] not in places)

    order = sorted(range(len(given)), key=is_override)  # which keeps the order of each kind
    return [given[i] for i in order]
