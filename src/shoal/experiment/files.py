"""An experiment and the text that says it: files, plain data, one field by its path; every error names its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Any

from shoal.core import run_files
from shoal.core.aliases import called_here
from shoal.core.atomic import read_file, read_named
from shoal.core.env_parameters import PREFIX
from shoal.core.errors import BadField, BadInput, nearest, no_run
from shoal.core.schema import as_given, build, changed_in
from shoal.core.space import Range
from shoal.core.user_code import name_of
from shoal.core.yaml_text import parse, plain, read_yaml, write_yaml
from shoal.environments.levels import Levels
from shoal.experiment.experiment import CHANGEABLE, OF_EXCHANGE, Checkpoint, Experiment, Fitness, Stop
from shoal.experiment.validation import check
from shoal.methods.components import REGISTRIES, SIGNATURES, expand_shorthand, with_defaults
from shoal.methods.pbt import Pbt

NAMED = ("method", "method.select", "method.explore", "exchange")  # fields that a name is enough for
# Options that people look for beside the field they stand under, which that has with this name.
OPTIONS = {option.name: ("method", "pbt") for option in fields(Pbt)}
OPTIONS |= {name: ("exchange", owner) for name, owner in OF_EXCHANGE.items()}


def load(path: Path) -> Experiment:
    """Read an experiment file. Raises BadInput that names the file, the line and the nearest valid field."""
    with attribute_errors(path):
        experiment = read(path)
        check(experiment)
    return experiment


def read(path: Path) -> Experiment:
    """Read an experiment file that flags will still change. Raises BadInput for what is wrong whatever they say."""
    with attribute_errors(path):
        values = read_yaml(text_of(path))
        if values is None:
            raise BadInput("is empty: write a field in it, such as env: CartPole-v1")
        return from_dict(values)


def text_of(path: Path, read: Callable[[Path], bytes] = read_named) -> str:
    """The text of a file that a user has named. Raises BadInput, with the nearest name in its folder."""
    try:
        return read(path).decode()
    except OSError as error:
        others = path.parent.glob("*.yaml") if isinstance(error, FileNotFoundError) else ()
        near = nearest(path.stem, [p.stem for p in others], 1)
        hint = f"; did you mean {near[0]}.yaml?" if near else ""
        if run_files.is_workspace(path):
            raise BadInput("is a workspace; repeat the command that started it to continue", file=path) from error
        if path.is_dir():
            run = (path / run_files.EXPERIMENT).is_file()
            raise BadInput(
                f"is {'a run; continue it with shoal resume' if run else 'a directory; name a file'}", file=path
            ) from error
        raise BadInput(f"{error.strerror}{hint}", file=path) from error
    except ValueError as error:
        raise BadInput("not a text file", file=path) from error


def of_run(run: Path) -> Experiment:
    """The experiment of a run directory. Raises BadInput."""
    return _experiment(run, fields_of_run(run))


def of_workspace(workspace: Path) -> Experiment:
    """The experiment that all workers of a workspace have in common. Raises BadInput."""
    return _experiment(workspace, _fields(workspace))


def fields_of_run(run: Path) -> dict[str, Any]:
    """The fields that experiment.yaml of a run states. Raises BadInput where it is missing, or was emptied or damaged."""
    if run_files.is_workspace(run):
        worker = [*sorted((run / "workers").glob("[!.]*")), run / "workers" / "NAME"][0]
        advice = f"name the run of a worker, such as {worker}; the command that started it continues it"
        raise BadInput(f"{run} is a workspace: {advice}")
    return _fields(run)


def _experiment(folder: Path, fields: dict[str, Any]) -> Experiment:
    with attribute_errors(folder / run_files.EXPERIMENT):
        return from_dict(fields)


def _fields(folder: Path) -> dict[str, Any]:
    file = folder / run_files.EXPERIMENT
    if not lexists(file):
        raise no_run(folder)
    with attribute_errors(file):
        values = read_yaml(text_of(file, read_file))
        if not isinstance(values, dict) or not values:
            raise BadInput("holds no fields", file=file)
        return values


@contextmanager
def attribute_errors(
    path: Path | None, changed: Collection[str] = (), always: bool = True, within: str = ""
) -> Iterator[None]:
    """Attribute errors inside to the file and the line that they are about.

    changed: fields that flags have set, whose errors are not of the file
    always: name the file even where no line of it fits
    within: the field of the file in which the fields lie that errors name
    """
    try:
        yield
    except BadInput as error:
        if path is None or error.file is not None or not path.is_file():
            raise
        if isinstance(error, BadField):
            if any(f"{error.path}.".startswith(f"{field}.") for field in changed):
                raise
            with suppress(BadInput, OSError):
                error.line = error.within(within).line_in(parse(path.read_text(encoding="utf-8"))[1])
        if error.line is not None or always:
            error.file = path
        raise


def from_dict(values: Any) -> Experiment:
    """An experiment from plain data: a mapping, or None. Raises BadInput for unknown fields and wrong types."""
    values = {} if values is None else values
    given = values if isinstance(values, dict) else {}  # what is no mapping is refused below
    if "arms" in given:
        raise BadField("arms", "a study compares them, this trains one population", "give the file to shoal study")
    for name in sorted(OPTIONS.keys() & given):
        field, owner = OPTIONS[name]
        raise BadField(name, f"is an option of the {field}", f"write {field}: {{name: {owner}, {name}: ...}}")
    for name in sorted(map(str, given.keys() - {field.name for field in fields(Experiment)})):
        if paths := _below(name, given.get("agent")):
            raise BadField("", "does not exist", f"did you mean {' or '.join(paths)}?", name=name)
    return build(Experiment, values, "")


def _below(name: str, agent: Any) -> list[str]:
    """Return the dotted paths of fields with this name, one level below the fields of an experiment."""
    declaration = Pbt().declaration(agent) or Pbt.agents["ppo"]
    hyper = declaration.hyper._fields
    known: dict[str, Iterable[str]] = {"hyper": hyper, "space": hyper, "config": _names(declaration.config)}
    known |= {"fitness": _names(Fitness), "checkpoint": _names(Checkpoint)}
    known |= {"levels": _names(Levels), "stop": _names(Stop)}
    known |= {f"method.{part}": [x for made in REGISTRIES[part].values() for x in _names(made)] for part in SIGNATURES}
    return [f"{place}.{here}" for place, names in known.items() for here in called_here(name, dict.fromkeys(names))]


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain data that `from_dict` takes back. Objects given in Python appear as module:name."""
    e = experiment
    named = {"env": e.env_name, "agent": e.agent_name, "method": _named(e.method), "config": _named(e.config)}
    values = {k: as_given(v) if is_dataclass(v) else v for k, v in (as_given(e) | named).items() if v is not None}
    values["fitness"] |= {name: name_of(values["fitness"][name]) for name in ("objective", "tie_breaker")}
    values["exchange"] = {"name": e.exchange.name} | changed_in(e.exchange)
    if e.space is not None:
        values["space"] = {name: changed_in(r) for name, r in e.space.items()}
    return values


def _named(value: Any) -> Any:
    """Return the value with names for functions and classes, in mappings and lists too."""
    if isinstance(value, dict):
        return {k: _named(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_named, value))
    return name_of(value) if callable(value) else value


def dump(experiment: Experiment) -> str:
    """The experiment as YAML."""
    return write_yaml(to_dict(experiment))


def differences(one: Experiment, other: Experiment) -> list[str]:
    """Dotted paths of the fields in which two experiments differ."""
    return [path for path, _, _ in differing(plain(to_dict(one)), plain(to_dict(other)))]


def differing(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The dotted paths at which two pieces of plain data differ, with what each has there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from differing(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new


def with_fields(run: Experiment, given: Mapping[str, Any]) -> Experiment:
    """The experiment of a run with these fields; what a mapping among them leaves out stays as the run has it."""
    before = {name: getattr(run, name) for name in given if hasattr(run, name)}
    records = [(name, x) for name, x in before.items() if is_dataclass(x)]
    whole = {name: as_given(x) | given[name] for name, x in records if isinstance(given[name], dict)}
    now = replace(run, **{**given, **whole})
    return replace(run, **{name: _completed(x, getattr(now, name), name) for name, x in before.items()})


def _completed(before: Any, now: Any, path: str) -> Any:
    """A value, with what it leaves out as it was before."""
    if is_dataclass(before) and type(before) is type(now):
        before, now = as_given(before), as_given(now)
    if isinstance(before, dict) and isinstance(now, dict) and isinstance(now.get("name", ""), str):
        return before | {name: _completed(before.get(name), x, f"{path}.{name}") for name, x in now.items()}
    return before if now is None and path not in CHANGEABLE else now


def assign(experiment: Experiment, given: Mapping[str, Any]) -> Experiment:
    """Set fields by their dotted paths, such as `hyper.discount`: whole ones before parts of them. Raises BadInput."""
    values = plain(to_dict(experiment))  # a copy, down to its leaves
    for path in sorted(given, key=lambda path: path.count(".")):
        whole = path.removesuffix(".name")  # options go with a name
        *parents, last = _parts(whole if whole in NAMED else path)
        place = values
        for i, part in enumerate(parents):
            above = ".".join(parents[: i + 1])
            if above == "method":
                place[part] = with_defaults(expand_shorthand(place.get(part)))
            elif above in NAMED and isinstance(place.get(part), str):
                place[part] = {"name": place[part]}
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise BadField(path, f"{above} has no fields", _of_environment(last) if above == "env" else "")
        old = place.get(last)
        if whole in NAMED and isinstance(old, dict) and given[path] == old.get("name"):
            continue  # with the options that it has
        place[last] = given[path]
    return from_dict(values)


def _of_environment(name: str) -> str:
    """Say where options of the environment stand."""
    return f"write env_options.{name} for all episodes, or hyper.{PREFIX}{name} for those of training"


def _parts(path: str) -> list[str]:
    """The names in a dotted path, of which those of environment parameters have dots themselves."""
    first, *rest = path.split(".")
    if first in ("hyper", "space") and f"{rest[0] if rest else ''}." == PREFIX:
        end = [rest.pop()] if first == "space" and rest[-1] in {f.name for f in fields(Range)} else []
        rest = [".".join(rest), *end]
    return [first, *rest]
