"""The trainers of a population: what they can do, and the processes in which they work."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections import namedtuple
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.cores import usable_cores
from shoal.core.errors import BadField, unknown
from shoal.core.interrupts import attend
from shoal.core.schema import convert
from shoal.core.space import Range
from shoal.core.spec import ActionSpace, Box, Discrete, Spec
from shoal.core.types import Hyper
from shoal.trainers.jobs import side_by_side
from shoal.trainers.process import Recipe, TrainerProcess, limited
from shoal.trainers.recipe import ADAPTERS

INSTALLED = {"site-packages", "dist-packages"}  # folders of what pip, or Debian, has installed


@dataclass(frozen=True)
class TrainerProcesses:
    """The processes in which trainers work."""

    count: int | None = None
    """how many; by default cores divided by threads, at most one for each member"""
    threads: int = 1
    """threads of each"""
    gpus: tuple[int, ...] = ()
    """the GPUs that they may use, one each in turn; by default they see none"""
    timeout: float = 3600.0
    """seconds without an answer after which a process is ended and started again"""

    def __post_init__(self) -> None:
        for name in ("count", "threads", "timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 2**31:
                raise BadField(name, "must be above 0 and below 2**31", value=value)


class Trainers:
    """The agent of an experiment whose members are trained in processes of their own.

    hyper:  defaults of its hyperparameters. space: the ranges that are tuned by default. limits: of possible values
    spec:   of the environment; None where the trainer gives none
    fixed:  what else `config` sets, with the defaults as text, as far as the trainer says
    """

    together = False

    def __init__(self, recipe: Recipe, python: str | None, processes: TrainerProcesses):
        """python: the interpreter; by default this one. Raises BadInput where it has no such trainer."""
        self._recipe, self._python, self._options = recipe, python or sys.executable, processes
        self._first = self._process(0)  # its log has no name until the run has a directory
        try:
            (description,) = side_by_side([self._first], _heard, _heard, lambda row: self._first.description, 1)
            self.hyper, self.space, self.limits, self.spec = described(description)
            self.fixed: dict[str, str] = description["fixed"]
            self.acts, self.exports, self.loads = (bool(description[name]) for name in ("act", "export", "load"))
        except BaseException:
            self.close()
            raise

    def open(self, members: int, place: Path | None = None) -> list[TrainerProcess]:
        """The processes for so many members; what they print goes into files of the folder `place`, if it is given."""
        logs = [None if place is None else place / f"{i}.log" for i in range(self.count(members))]
        if logs[0] is not None:
            self._first.log_to(logs[0])
        known = self._first.description
        return [self._first, *(self._process(i, log, known) for i, log in enumerate(logs[1:], 1))]

    def count(self, members: int) -> int:
        """Number of processes for so many members."""
        return min(members, self._options.count or max(1, len(usable_cores()) // self._options.threads))

    def close(self) -> None:
        """End the process that was asked what the trainers can do."""
        self._first.end()

    def _process(self, number: int, log: Path | None = None, known: dict[str, Any] | None = None) -> TrainerProcess:
        gpus = self._options.gpus
        limits = limited(self._options.threads, [gpus[number % len(gpus)]] if gpus else [])
        return TrainerProcess(self._python, self._recipe, log, limits, self._options.timeout, known)


def _heard(*meanwhile: Any) -> None:
    """Hear signals while the first process starts; there is nothing to show yet."""
    attend()


def is_trainer(agent: Any, python: str | None) -> bool:
    """True where an agent is trained in processes of its own: of an adapter, of another interpreter, or a class.

    Agents are functions, trainers classes. Neither the module nor a package around it is imported to find out: they may
    bring along what cannot live beside Shoal.
    """
    if not isinstance(agent, str) or ":" not in agent:
        return False
    module, _, name = agent.partition(":")
    return module in ADAPTERS or python is not None or _is_class(module, name)


def _is_class(module: str, name: str) -> bool:
    """True where a name of a module is a class, which may be imported from another module."""
    with suppress(ImportError, ValueError, OSError, SyntaxError, RecursionError):  # the last where imports are circular
        file = Path(_file_of(module) or "")
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return True
            if isinstance(node, ast.ImportFrom):
                source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                for there in (x.name for x in node.names if name == (x.asname or x.name)):
                    return _is_class(source, there)
    return False


def _file_of(module: str) -> str | None:
    """The file of a module, if it is found. Raises ImportError and ValueError."""
    package, *parts = module.split(".")
    found = importlib.util.find_spec(package)  # which imports nothing, as there is no package around it
    for part in parts:
        places = found.submodule_search_locations if found and part.isidentifier() else None
        found = PathFinder.find_spec(part, list(places)) if places is not None else None
    return found.origin if found else None


def own_folders() -> tuple[str, ...]:
    """Folders where this interpreter looks for modules that are not installed."""
    python = sysconfig.get_path("stdlib")
    folders = [Path(p).absolute() for p in sys.path]
    own = (p for p in folders if p.is_dir() and not (INSTALLED & {*p.parts} or p.is_relative_to(python)))
    return tuple(dict.fromkeys(map(str, own)))


def described(
    description: Mapping[str, Any],
) -> tuple[Hyper, dict[str, Range], dict[str, tuple[float, float]], Spec | None]:
    """Read a process's description of its trainers: hyperparameters, default ranges, limits and spec. Raises BadField."""
    defaults = {name: float(x) for name, x in description["hyper"].items()}
    made: Any = namedtuple  # whose fields are known only here
    hyper: Hyper = made("Hyper", list(defaults))(*defaults.values())  # by name, ϵ would be ε
    for name in description["space"]:
        if name not in defaults:
            raise unknown("agent.space", name, defaults)
    try:
        space = {name: convert(Range, r, f"space.{name}") for name, r in description["space"].items()}
    except BadField as error:
        raise error.within("agent") from error
    limits = {name: (low, high) for name, (low, high) in description["limits"].items()}
    return hyper, space, limits, _spec(description["spec"])


def _spec(description: Any) -> Spec | None:
    """Read a trainer's description of its environment."""
    if description is None:
        return None
    with suppress(AttributeError, KeyError, OverflowError, TypeError, ValueError):
        made: ActionSpace | None = None
        match description["action"]:
            case {"kind": "discrete", "n": n, **other} if other.keys() <= {"start"}:
                made = Discrete(int(n), start=int(description["action"].get("start", 0)))
            case {"kind": "continuous", "low": low, "high": high, **other} if not other and len(low) == len(high):
                made = Box(tuple(map(float, low)), tuple(map(float, high)))
        shape, dtype = tuple(index(n) for n in description["obs_shape"]), np.dtype(str(description["obs_dtype"]))
        if made and dtype.kind in "biuf" and all(n > 0 for n in (*shape, *made.shape, getattr(made, "n", 1))):
            return Spec(shape, dtype.name, made)
    example = '{"obs_shape": [4], "obs_dtype": "float32", "action": {"kind": "discrete", "n": 2}}'
    raise BadField("agent", f"its spec cannot be read: {description}", f"it must be such as {example}")
