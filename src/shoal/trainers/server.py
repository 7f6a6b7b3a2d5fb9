"""What runs in a trainer's process: `python server.py FD`, with any interpreter that has NumPy (Python 3.8 and later).

It answers the calls of the host on the socket FD, one after another, and ends when the host does. What it prints goes to
wherever the host has turned its output. Nothing of Shoal is imported, but files beside this one.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import keyword
import math
import os
import platform
import select
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence  # noqa: UP035 (Python 3.8)

import numpy as np

HERE = Path(__file__).resolve().parent
ADAPTERS = ("rl_games", "sb3")  # files beside this one, each with a function `trainer(name)` that gives a class
LONGEST = 300  # characters of an error message of other people's code
Arrays = Mapping[str, np.ndarray]


# This folder as a package, so that its files can import one another where Shoal is not installed.
package = types.ModuleType("shoal_trainers")
package.__path__ = [str(HERE)]
sys.modules[package.__name__] = package


def load(name: str) -> Any:
    """The module in a file beside this one."""
    return importlib.import_module(f"{package.__name__}.{name}")


wire, protocol = load("wire"), load("trainer")


class BadInput(Exception):
    """What the experiment asks for and cannot have: `field` says where it does, `known` what there is instead of `name`."""

    def __init__(self, field: str, text: str, name: str = "", known: Sequence[str] = ()):
        super().__init__(text)
        self.field, self.name, self.known = field, name, known


class Missing(Exception):
    """The state that a call needs is not here."""


class Member:
    """A trainer, and the name of the state that it is in."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.token: str | None = None  # None: as it was made
        self.finite = True


class Server:
    """The trainers of this process, by the uid of their members. Each public method answers the call of its name."""

    def __init__(self) -> None:
        self._members: dict[Any, Member] = {}
        self._build: Callable[[], Any]
        self._threads = threading.enumerate()

    def describe(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Take the recipe of the trainers, and say what they can do. Raises BadInput."""
        sys.path[:0] = call["path"]
        try:
            kind = trainer_class(call["trainer"])
            self._build = lambda: build(kind, call)
            trainer = self._build()
            with complaints("config"):
                described = {
                    "hyper": {named(name): float(value) for name, value in trainer.hyper.items()},
                    "space": {name: as_mapping(values) for name, values in trainer.space.items()},
                    "limits": limits_of(trainer),
                    "spec": getattr(trainer, "spec", None),
                }
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            raise BadInput("agent", one_line(error)) from error
        can = {name: hasattr(trainer, name) for name in ("act", "export")}
        return {**described, **can, "python": platform.python_version()}, {}

    def train(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """One interval from the state `token`; the new state comes back and is called `next`."""
        diverged = ""
        with self._member(call, arrays) as member:
            trainer = member.trainer
            trainer.begin(call["seed"])
            try:
                report = parts_of(trainer.train(call["steps"]), protocol.Report)
            except Exception as error:
                # Libraries raise errors of many kinds where weights are not finite: that is a result, not a failure.
                if finite(parts_of(trainer.get_state(), protocol.State).learned):
                    raise
                report, diverged = protocol.Report(0, (), {}), one_line(error)
            state = parts_of(trainer.get_state(), protocol.State)
            member.token, member.finite = call["next"], finite(state.learned)
        content = {
            "steps": int(report.steps),
            "returns": [float(x) for x in report.returns],
            "metrics": {name: float(x) for name, x in report.metrics.items()},
            "own": state.own,
            "finite": member.finite,
            "diverged": diverged,
        }
        return content, wire.join(state.learned, state.memory)

    def evaluate(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Returns of one episode per seed; NaN where weights are not finite."""
        seeds = call["seeds"]
        with self._member(call, arrays) as member:
            returns = member.trainer.evaluate(seeds) if member.finite else [math.nan] * len(seeds)
            if len(returns) != len(seeds):
                raise ValueError(f"evaluate gave {len(returns)} returns for {len(seeds)} seeds")
            steps = getattr(member.trainer, "evaluation_steps", 0) if member.finite else 0
        return {"returns": [float(x) for x in returns], "steps": int(steps)}, {}

    def act(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Actions [B, ...] for observations [B, ...]."""
        with self._member(call, arrays) as member:
            return {}, {"action": member.trainer.act(arrays["obs"])}

    def export(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Have the trainer write its model into a file."""
        with self._member(call, arrays) as member:
            return {"files": [str(file) for file in member.trainer.export(call["path"])]}, {}

    def log(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Print into another file from now on."""
        with open(call["path"], "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        return {}, {}

    def close(self, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Close all trainers. Says what they leave behind: threads by name, and whether there are processes."""
        while self._members:
            self._members.popitem()[1].trainer.close()
        threads = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        return {"threads": threads, "processes": has_children()}, {}

    @contextlib.contextmanager
    def _member(self, call: Mapping[str, Any], arrays: Arrays) -> Iterator[Member]:
        """The member of a call, in the state and with the hyperparameters that the call asks for. Raises Missing.

        It is out of the table until the call has succeeded, so that none is left half-changed.
        """
        uid, wanted, given = call["uid"], call["token"], "own" in call
        member = self._members.get(uid)
        held = member is not None and member.token == wanted
        if not held and wanted is not None and not given:
            raise Missing
        self._members.pop(uid, None)
        if member is not None and not held and not given:  # it is to begin anew
            member.trainer.close()
            member = None
        new = member is None
        if member is None:
            member = Member(self._build())
        try:
            if new:
                with complaints("config"):
                    member.trainer.make(call["hyper"], call["built_seed"])
            if not held and given:
                learned, memory = wire.split(arrays)
                member.trainer.set_state(protocol.State(learned, memory, call["own"]))
                member.token, member.finite = wanted, finite(learned)
            if not new or given:
                member.trainer.set_hypers(call["hyper"])
            yield member
        except BaseException:
            with contextlib.suppress(Exception):
                member.trainer.close()
            raise
        self._members[uid] = member


def trainer_class(name: str) -> Any:
    """The class that `adapter:NAME` or `package.module:Class` names. Raises BadInput."""
    place, _, attribute = name.partition(":")
    with complaints("agent"):
        if place in ADAPTERS:
            return load(place).trainer(attribute)
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise BadInput("agent", f"there is no module {error.name}") from error
    if not hasattr(module, attribute):
        known = [name for name, x in vars(module).items() if isinstance(x, type) and hasattr(x, "train")]
        raise BadInput("agent", f"there is no {attribute} in {place}", attribute, known)
    return getattr(module, attribute)


def build(kind: Any, recipe: Mapping[str, Any]) -> Any:
    """A trainer from its recipe. Raises BadInput."""
    arguments, options = (recipe["env"], recipe["env_options"]), recipe["config"]
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        raise BadInput("config", f"{recipe['trainer']} does not take it: {error}") from error
    with complaints("config"):
        return kind(*arguments, **options)


def named(name: Any) -> str:
    """The name of a hyperparameter, which the host makes a field of a tuple. Raises BadInput."""
    if not (isinstance(name, str) and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        allowed = "letters, digits and _, a letter first, and no word of Python's own"
        raise BadInput("agent", f"its hyper has {name!r}, and a name must be {allowed}")
    return name


def as_mapping(values: Any) -> Any:
    """A range as a mapping of its fields, where it is [low, high] or [low, high, scale]; else as it is."""
    if isinstance(values, (list, tuple)) and len(values) in (2, 3):
        return dict(zip(("low", "high", "scale"), values))  # noqa: B905 (Python 3.8)
    return values


def limits_of(trainer: Any) -> dict[str, tuple[float, float]]:
    """The lowest and highest possible value of some hyperparameters. Raises BadInput."""
    limits = getattr(trainer, "limits", None)
    try:
        return {name: (float(low), float(high)) for name, (low, high) in (limits or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInput("agent", f"its limits = {limits} must be {{name: (lowest, highest)}}") from error


@contextlib.contextmanager
def complaints(field: str) -> Iterator[None]:
    """What a trainer raises about its input becomes BadInput, about `field` where it does not say of which field."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = "install it there, or name an interpreter that has it"
        raise BadInput("python", f"lacks a package: {error}; {advice}") from error
    except ValueError as error:
        known = getattr(error, "known", ())
        raise BadInput(getattr(error, "field", field), str(error), getattr(error, "name", ""), known) from error


def parts_of(value: Any, kind: Any) -> Any:
    """A state or a report as `kind`, which a trainer may also give as a plain tuple or dict."""
    return kind(**value) if isinstance(value, Mapping) else kind(*value)


def finite(learned: Arrays) -> bool:
    """Whether all numbers of a state are finite."""
    floats = (x for x in map(np.asarray, learned.values()) if x.dtype.kind == "f")
    return all(bool(np.isfinite(x).all()) for x in floats)


def has_children() -> bool:
    """Whether there are processes that this one has started."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def one_line(error: BaseException) -> str:
    """An error in one line: its kind, message and place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:LONGEST]
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"


def answer(server: Server, call: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """What a call gives, or what went wrong in it."""
    try:
        return getattr(server, call["call"])(call, arrays)
    except Missing:
        return {"missing": True}, {}
    except BadInput as error:
        place = {"field": error.field, "name": error.name, "known": list(error.known)}
        return {"error": "input", "text": " ".join(str(error).split()), **place}, {}
    except Exception as error:
        return {"error": "failed", "text": one_line(error), "traceback": traceback.format_exc()}, {}


def end_with(peer: socket.socket) -> None:
    """Wait until the host is gone, then end this process and all that it has started."""
    poll = select.poll()
    poll.register(peer, 0)  # nothing but the end of the connection
    poll.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(descriptor: int) -> None:
    """Answer calls until the host is gone. This process must lead a process group of its own."""
    assert os.getpgrp() == os.getsid(0), "it ends its whole process group, which must be that of a session of its own"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for Shoal, which then decides
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]
    os.set_inheritable(descriptor, False)
    peer = socket.socket(fileno=descriptor)
    threading.Thread(target=end_with, args=(peer,), name="end_with", daemon=True).start()
    server = Server()
    wire.send(peer, {"ready": True}, {})
    while True:
        content, arrays = answer(server, *wire.receive(peer))
        try:
            wire.send(peer, content, arrays)
        except TypeError as error:  # what the trainer gave cannot be sent
            wire.send(peer, {"error": "failed", "text": str(error), "traceback": traceback.format_exc()}, {})


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main(int(sys.argv[1]))
