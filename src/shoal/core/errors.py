"""Errors of input: what is wrong, in words, and where it stands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from shoal.core import run_files
from shoal.core.aliases import NOT_HERE, called_here, spelt

# What can be long in a message: quoted text that is no part of a command, lists, mappings, and words that are no paths.
LONG = re.compile(
    r"""(?<!\w)(?<!shoal resume )(?<!pip install )(?<!pip install -e )'[^']{99,}'(?!\w)|"""
    r"""(?<!\w)"[^"]{99,}"(?!\w)|[\[{][^\]}]{99,}[\]}]|[^\s/]{99,}"""
)
STRUCTURE = "config."  # in front of the choices of a structure, which say the place in a list
CHOOSE = "write choices of structures as config: {layers: {choices: [[64, 64], [256, 256]]}}"
SCHEDULED = ("learning_rate", "clip_range")  # which RL Zoo lets fall to 0 as lin_VALUE


class BadInput(Exception):
    """Invalid input of the user; the message says what is wrong, where, and what is allowed.

    file, line: where that stands, once it is known. Of long values in the message only the ends are shown.
    """

    def __init__(self, problem: str, line: int | None = None, file: Path | None = None):
        super().__init__(problem)
        self.file, self.line = file, line

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        where = ", ".join(str(part) for part in (self.file, line) if part is not None)
        return shortened(f"{where}: {self.args[0]}" if where else self.args[0])


class BadField(BadInput):
    """An invalid field of an experiment.

    field:   its dotted path, such as `config.layers`; "" is the experiment itself
    problem: what is wrong with it
    advice:  what to do instead, where the problem does not say it
    value:   what it has, as it is to be shown; of a long one the ends
    name:    which name in it is wrong, where it is one
    """

    def __init__(self, field: str, problem: str, advice: str = "", *, value: object = None, name: str | None = None):
        shown = "" if value is None else f" = {_ends(str(value), 200)}"
        which = "" if name is None else f"{name!r} "
        super().__init__(f"{field or 'the experiment'}{shown}: {which}{problem}{f'; {advice}' if advice else ''}")
        self.field, self.problem, self.advice, self.value, self.name = field, problem, advice, value, name

    @property
    def path(self) -> str:
        """The place as the file names it: the field, or the name in it."""
        return ".".join(part for part in (self.field, self.name) if part)

    def within(self, prefix: str) -> BadField:
        """Return the same error with the path of an enclosing field in front."""
        field = ".".join(part for part in (prefix, self.field) if part)
        return BadField(field, self.problem, self.advice, value=self.value, name=self.name)

    def line_in(self, lines: Mapping[str, int]) -> int | None:
        """Find the line of the place, or of an enclosing one, among the lines of all dotted paths of a file."""
        path = self.path
        while path and path not in lines:
            path = path.rpartition(".")[0]
        return lines.get(path)


@contextmanager
def error_context(prefix: str) -> Iterator[None]:
    """Put a prefix, such as the path of a field, in front of the errors inside."""
    try:
        yield
    except BadField as error:
        raise error.within(prefix) from error
    except BadInput as error:
        raise BadInput(f"{prefix}: {error}") from error


def no_run(path: Path) -> BadInput:
    """Describe why a path is no directory of a run, and suggest which one may be meant."""
    if not path.exists():
        return BadInput(f"{path}: no such directory")
    file = run_files.EXPERIMENT
    if (path.parent / file).is_file():
        return BadInput(f"{path} is a part of a run: give the directory of the run, {path.parent}")
    inside = [run for pattern in ("*", "workers/*", "runs/*/*") for run in sorted(path.glob(f"{pattern}/{file}"))]
    hint = f"; did you mean {inside[-1].parent}?" if inside else ""
    return BadInput(f"{path} holds no run: there is no {file} in it{hint}")


def unknown(field: str, name: str, known: Iterable[str]) -> BadField:
    """Make the error for a name that does not exist in a field; it suggests similar names, or lists all."""
    known = sorted(known)
    near = called_here(name, known)
    if not near and (instead := NOT_HERE.get(spelt(name))):
        return BadField(field, "does not exist", instead, name=name)
    near = near or nearest(name, known)
    there = f"choose from {', '.join(known)}" if known else "there are none"
    return BadField(field, "does not exist", f"did you mean {' or '.join(near)}?" if near else there, name=name)


def check_least(least: float, values: object, *names: str, within: str = "") -> None:
    """Raise BadField for the first of these attributes below `least`. within: the path of the object, with its dot."""
    for name in names:
        if (value := getattr(values, name)) < least:
            shown = f"{value:g}" if isinstance(value, float) else value
            raise BadField(f"{within}{name}", f"must be at least {least}", value=shown)


def check_names(field: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `unknown` for the first of these names that does not exist."""
    known = list(known)
    for name in names:
        if name not in known:
            raise unknown(field, name, known)


def type_in_words(value: object) -> str:
    """Name the type of a value, with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def number_here(field: str, value: object) -> str:
    """Say what to write in place of a value that is no number: for a linear schedule, such as lin_2.5e-4 of RL Zoo, and for
    what other libraries have; nothing for other values."""
    for name in SCHEDULED:
        if field.endswith(name) and isinstance(value, str) and value.startswith("lin"):
            first = value.removeprefix("linear").removeprefix("lin").strip("_()") or "the first value"
            return f"for a linear decay to 0 write {first}, and {name}_end_factor: 0"
    if field.startswith(f"space.{STRUCTURE}"):
        return CHOOSE
    return NOT_HERE.get(spelt(field.rpartition(".")[2]), "")


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names most similar to `name`, best first, whatever their case; none much worse than the best."""
    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), lower, count, 0.6)
    likeness = [difflib.SequenceMatcher(None, k, name.lower()).ratio() for k in found]
    alike = [(k, x) for k, x in zip(found, likeness, strict=True) if x > 0.6 or name.lower() in k]  # nope is no hopper
    return [lower[k] for k, x in alike if x > 0.8 * likeness[0]]


def shortened(message: str) -> str:
    """Cut the middle of each long value out of a message, which has a thousand characters at most."""
    return _ends(LONG.sub(lambda found: _ends(found[0], 60), _ends(message, 10_000)), 1000)


def _ends(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length * 3 // 4]} ... {text[-length // 4 :]}"
