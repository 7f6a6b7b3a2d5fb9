"""An experiment and the text that says it: files, plain data, one field by its path; every error names its place."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from shoal.core.atomic import read_file
from shoal.core.errors import BadField, BadInput, no_run
from shoal.core.evolution import Range
from shoal.core.knobs import PREFIX
from shoal.core.schema import as_given, build
from shoal.core.yaml_text import parse, plain, read_yaml, write_yaml
from shoal.experiment.experiment import Experiment, check
from shoal.experiment.registry import method_data, method_name, name_of
from shoal.methods.evolving import Pbt

COMPONENTS = ("method", "method.select", "method.explore")  # a name, or a name with options
OPTIONS = {option.name for option in fields(Pbt)}  # which people look for beside the method


def load(path: Path) -> Experiment:
    """Read an experiment file. Raises BadInput that names the file, the line and the nearest valid field."""
    with blame(path):
        experiment = read(path)
        check(experiment)
    return experiment


def read(path: Path) -> Experiment:
    """Read an experiment file that flags will still change. Raises BadInput for what is wrong whatever they say."""
    return _parsed(path, text_of(path))


def _parsed(path: Path, text: str) -> Experiment:
    """The experiment that a file says. Raises BadInput that names the file."""
    with blame(path):
        values = read_yaml(text)
        return from_dict({} if values is None else values)


def text_of(path: Path) -> str:
    """What a file says that a user has named. Raises BadInput, with the nearest name in its folder."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        others = path.parent.glob("*.yaml") if isinstance(error, FileNotFoundError) else ()
        near = difflib.get_close_matches(path.name, [p.name for p in others], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if (path / "experiment.yaml").is_file():
            hint = "; it holds a run, with which shoal resume goes on"
        raise BadInput(f"{path}: {error.strerror}{hint}") from error
    except ValueError as error:
        raise BadInput(f"{path}: not a text file") from error


def of_run(run: Path) -> Experiment:
    """The experiment of a run directory. Raises BadInput."""
    file = run / "experiment.yaml"
    try:
        return _parsed(file, read_file(file).decode())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_run(run) from error
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: not a text file") from error


@contextmanager
def blame(path: Path | None, changed: Collection[str] = (), always: bool = True, within: str = "") -> Iterator[None]:
    """Errors inside name the file and the line that they are about.

    changed: fields that flags have set, for which the file is not to blame
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


def from_dict(values: dict[str, Any]) -> Experiment:
    """An experiment from plain data. Raises BadInput for unknown fields and wrong types."""
    given = values if isinstance(values, dict) else {}  # what is no mapping is refused below
    if "arms" in given:
        raise BadField("arms", "a study compares them, this trains one population", "give the file to shoal study")
    beside = sorted(OPTIONS.intersection(given))
    if beside:
        name = beside[0]
        raise BadField(name, "is an option of the method", f"write method: {{name: pbt, {name}: ...}}")
    return build(Experiment, values, "")


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain data that `from_dict` takes back. Objects given in Python appear as module:name."""
    values = {f.name: getattr(experiment, f.name) for f in fields(experiment)}
    fitness = replace(experiment.fitness, objective=name_of(experiment.fitness.objective))
    values["fitness"], values["checkpoint"] = asdict(fitness), asdict(experiment.checkpoint)
    values["processes"] = asdict(experiment.processes)
    for name in ("levels", "wandb"):
        values[name] = None if values[name] is None else asdict(values[name])
    for name in ("env", "agent"):
        values[name] = name_of(values[name])
    values["method"] = method_data(experiment.method)
    values["config"] = {k: name_of(v) if callable(v) else v for k, v in experiment.config.items()}
    if experiment.space is not None:
        values["space"] = {
            name: {k: v for k, v in as_given(r).items() if v != getattr(Range, k)}
            for name, r in experiment.space.items()
        }
    return {k: v for k, v in values.items() if v is not None}


def dump(experiment: Experiment) -> str:
    """The experiment as YAML."""
    return write_yaml(to_dict(experiment))


def differences(one: Experiment, other: Experiment) -> list[str]:
    """Dotted names of the fields in which two experiments differ."""
    a, b = plain(to_dict(one)), plain(to_dict(other))
    found = []
    for name in sorted(a.keys() | b.keys()):
        x, y = a.get(name), b.get(name)
        if isinstance(x, dict) and isinstance(y, dict):
            found += [f"{name}.{key}" for key in sorted(x.keys() | y.keys()) if x.get(key) != y.get(key)]
        elif x != y:
            found.append(name)
    return found


def assign(experiment: Experiment, path: str, value: Any) -> Experiment:
    """Set one field by its dotted path, such as `hyper.discount`. Raises BadInput."""
    place = values = plain(to_dict(experiment))  # a copy, down to its leaves
    *parents, last = _parts(path)
    if last == "name" and ".".join(parents) in COMPONENTS:  # options go with a name
        return assign(experiment, ".".join(parents), value)
    for i, part in enumerate(parents):
        above = ".".join(parents[: i + 1])
        if above in COMPONENTS and isinstance(place.get(part), str):
            place[part] = {"name": place[part]}
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise BadField(path, f"{above} has no fields")
        place = inner
    if path == "method" and value == method_name(experiment.method):
        return experiment  # with the options that it has
    place[last] = value
    return from_dict(values)


def _parts(path: str) -> list[str]:
    """The names in a dotted path, of which those of knobs have dots themselves."""
    first, *rest = path.split(".")
    if first in ("hyper", "space") and f"{rest[0] if rest else ''}." == PREFIX:
        end = [rest.pop()] if first == "space" and rest[-1] in {f.name for f in fields(Range)} else []
        rest = [".".join(rest), *end]
    return [first, *rest]
