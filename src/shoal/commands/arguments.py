"""From the arguments of the command line to a call of a subcommand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, get_type_hints

import tyro
from tyro import _errors as errors  # its hook for errors, which has no public name yet
from tyro._arguments import ArgumentDefinition
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional

from shoal import __version__
from shoal.core.aliases import FLAGS, called_here, spelt
from shoal.core.errors import BadInput, nearest, unknown
from shoal.core.interrupts import DONE

Command = Callable[..., int]
T = TypeVar("T")
# Names of flags for the output directory, here and elsewhere.
PLACES = {"run_dir", "workspace", "out", "output", "outdir", "output_dir", "dir", "directory", "folder", "logdir"}
CONFIG = (FlagCreatePairsOff, OmitArgPrefixes)  # no --no-quiet, and no --flags.seed


def call(commands: Sequence[Command], overview: str, given: Sequence[str]) -> int:
    """Call a subcommand. Without one, or with `help`, print the help and raise SystemExit. Raises BadInput."""
    if given[:1] in ([], ["help"]):
        given = [*given[1:], "--help"]
    for command in commands:
        if given[:1] == [command.__name__]:
            return _parsed(f"shoal {command.__name__}", partial(_bound, command, given[1:]), partial(_flags, command))()
    if given == ["--version"]:
        print(f"shoal {__version__}")
        return DONE
    if not given[0].startswith("-"):
        raise unknown("command", given[0], [command.__name__ for command in commands])
    app, completion = tyro.extras.SubcommandApp(), given[0].startswith("--tyro-")
    for command in commands:  # without their arguments, because their types and defaults take longest to import
        bare = make_dataclass(command.__name__, (), namespace={"__doc__": command.__doc__})
        app.command(command if completion else bare)
    return _parsed("shoal", lambda: app.cli(prog="shoal", description=overview, args=given, config=CONFIG))


def _bound(command: Command, arguments: Sequence[str]) -> Callable[[], int]:
    """A command bound to its parsed arguments."""

    @wraps(command)
    def bind(*positional: Any, **named: Any) -> Callable[[], int]:
        return partial(command, *positional, **named)

    return tyro.cli(bind, prog=f"shoal {command.__name__}", args=arguments, config=CONFIG)


def _flags(command: Command) -> list[str]:
    """Names of the flags of a command; a dataclass stands for its fields."""
    hints, extras = get_type_hints(command), get_type_hints(command, include_extras=True)
    return [
        name
        for parameter in signature(command).parameters
        if Positional not in getattr(extras[parameter], "__metadata__", ())
        for name in ([f.name for f in fields(hints[parameter])] if is_dataclass(hints[parameter]) else [parameter])
    ]


def _parsed(command: str, parse: Callable[[], T], flags: Callable[[], Sequence[str]] = tuple) -> T:
    """The result of tyro for a command. Raises BadInput with one line if tyro rejects the arguments.

    flags: returns the names of the flags of the command
    """

    def reject(event: errors.ParseErrorEvent) -> None:
        if problem := _problem(event, flags):
            raise BadInput(f"{problem}; see {command} --help")

    try:
        with errors.on_parse_error(reject):
            return parse()
    except (AssertionError, ImportError) as error:  # a shell that tyro does not know, or for which it needs a package
        raise BadInput(str(error)) from error


def _problem(event: errors.ParseErrorEvent, flags: Callable[[], Sequence[str]]) -> str:
    """The message of an error of tyro; empty for one that tyro prints itself."""
    match event:
        case errors.UnrecognizedArgs(tokens=tokens):
            advice = _advice(tokens, flags())
            return f"unrecognized arguments: {' '.join(tokens)}" + (f"; {advice}" if advice else "")
        case errors.MissingArgs(missing_arguments=missing):
            return f"missing arguments: {' '.join(_name(each.arg) for each in missing)}"
        case errors.InvalidChoice(argument=argument, value=value, choices=choices):
            return f"{_name(argument)} {value}: choose from {', '.join(sorted(set(choices) - {'None'}))}"
        case errors.BadValue(argument=argument):
            return f"{_name(argument)} needs a value"
        case errors.InstantiationFailure(argument=argument, message=message):
            return f"{_name(argument)}: {message}" if argument else message
    return ""


def _name(argument: ArgumentDefinition) -> str:
    """The name of an argument in the help."""
    return str(argument.lowered.metavar) if argument.is_positional() else argument.display_name()


def _advice(tokens: Sequence[str], flags: Sequence[str]) -> str:
    """Say what to write for unrecognized arguments: an answer to a flag of other libraries, the output directory, a flag
    of a similar name, or --set."""
    at = next((i for i, token in enumerate(tokens) if token.startswith("--")), None)
    if at is None:
        return ""
    name, _, value = tokens[at].removeprefix("--").partition("=")
    name, value = name.replace("-", "_"), value or next(iter(tokens[at + 1 :]), "")
    if {"env", "set"} <= {*flags} and (answer := flag_here(name, value)):
        return answer
    places = [place for place in ("run_dir", "workspace", "out") if place in flags][:1]
    if near := places if name in PLACES else called_here(name, flags) or nearest(name, flags):
        meant = " or ".join(f"--{flag.replace('_', '-')}" for flag in near)
        return f"did you mean {meant}?"
    if name in PLACES or "set" not in flags:
        return ""
    return f"did you mean --set {f'{name}={value}' if '.' in name and value else 'FIELD=VALUE'}?"


def flag_here(flag: str, value: str) -> str:
    """Answer a flag that does not exist, in a command that takes the fields of an experiment; nothing if it is unknown."""
    from shoal.agents.registry import AGENTS

    if answer := FLAGS.get(spelt(flag)):
        return answer
    hyper = [name for agent in AGENTS.values() for name in agent.hyper._fields]
    config = [field.name for agent in AGENTS.values() for field in fields(agent.config)]
    known = (("hyper", hyper), ("config", config))
    paths = [f"{place}.{here}" for place, names in known for here in called_here(flag, names)]
    return f"write --set {paths[0]}={value or 'VALUE'}" if paths else ""


def one_by_one(arguments: Sequence[str]) -> list[str]:
    """Rewrite `--set A=1 B=2` as `--set A=1 --set B=2`, and `--set A 1` as `--set A=1`."""
    given: list[str] = []
    for argument in arguments:
        after = given[-2:-1] == ["--set"] and not argument.startswith("-")
        if after and "=" not in given[-1]:
            given[-1] += f"={argument}"
            continue
        if after and "=" in argument:
            given.append("--set")
        given.append(argument)
    return given
