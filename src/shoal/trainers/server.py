"""The program of a trainer's process: `python server.py FD`, with any interpreter that has NumPy (Python 3.8 and later).

It answers the calls of the host on the socket FD, one after another, and ends when the host does. What it prints goes to
wherever the host has turned its output. Nothing of Shoal is imported, but files beside this one.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import select
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple  # noqa: UP035 (Python 3.8)

import numpy as np

HERE = Path(__file__).resolve().parent
Arrays = Mapping[str, np.ndarray]
Frame = Tuple[Dict[str, Any], Arrays]  # noqa: UP006


# This folder as a package, so that its files can import one another where Shoal is not installed.
package = types.ModuleType("shoal_trainers")
package.__path__ = [str(HERE)]
sys.modules[package.__name__] = package


wire, protocol, recipe, returned, descendants = (
    importlib.import_module(f"{package.__name__}.{name}")
    for name in ("wire", "trainer", "recipe", "returned", "descendants")
)
MARK = os.environ[descendants.MARK]  # of this process


class Missing(Exception):
    """The state that a call needs is not here."""


class Server:
    """The trainers of this process, by the uid of their members. Each public method answers the call of its name."""

    def __init__(self) -> None:
        self._members: dict[Any, ServedMember] = {}
        self._build: Callable[[], Any]
        self._threads = threading.enumerate()
        self._others = descendants.marked(MARK)  # such as a script that has started the interpreter

    def answer(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """Return the result of a call, or its error."""
        try:
            if hasattr(ServedMember, call["call"]):
                with self._member(call, arrays) as member:
                    return getattr(member, call["call"])(call, arrays)
            return getattr(self, call["call"])(call), {}
        except Missing:
            return {"missing": True}, {}
        except recipe.BadRecipe as error:
            place = {"field": error.field, "name": error.name, "known": list(error.known)}
            return {"error": "input", "text": " ".join(str(error).split()), **place}, {}
        except Exception as error:
            traceback.print_exc()
            text = str(error) if isinstance(error, returned.Misreturned) else recipe.one_line(error)
            return {"error": "failed", "text": text}, {}

    def describe(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Take the recipe of the trainers, and say what they can do. Raises BadRecipe."""
        sys.path[:0] = call["path"]
        try:
            kind = recipe.trainer_class(call["trainer"])
            self._build = lambda: recipe.build(kind, call)
            return returned.description(self._build())
        except recipe.BadRecipe:
            raise
        except (Exception, SystemExit) as error:
            raise recipe.BadRecipe("agent", recipe.one_line(error)) from error

    def log(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Print into another file from now on."""
        with open(call["path"], "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        return {}

    def close(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Close all trainers. Says what they leave behind: threads by name, and whether there are processes."""
        while self._members:
            self._members.popitem()[1].trainer.close()
        threads = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        return {"threads": threads, "processes": has_children() or bool(descendants.marked(MARK) - self._others)}

    @contextlib.contextmanager
    def _member(self, call: Mapping[str, Any], arrays: Arrays) -> Iterator[ServedMember]:
        """The member of a call, in the state and with the hyperparameters that the call asks for. Raises Missing.

        It is out of the table until the call has succeeded, so that none is left half-changed.
        """
        uid, wanted, given = call["uid"], call["token"], "with_state" in call
        member = self._members.get(uid)
        held = member is not None and member.token == wanted
        if not held and wanted is not None and not given:
            raise Missing
        self._members.pop(uid, None)
        if member is not None and not held and not given:  # it is to begin anew
            member.trainer.close()
            member = None
        new = member is None
        member = member or ServedMember(self._build())
        try:
            if new:
                with recipe.attributed("config"):
                    member.trainer.make(call["hyper"], call["built_seed"])
            if not held and given:
                state = protocol.TrainerState(*wire.split(arrays))
                member.trainer.set_state(state)
                member.token, member.finite = wanted, finite(state.learned)
            member.trainer.set_hyperparameters(call["hyper"])
            yield member
        except BaseException:
            with contextlib.suppress(Exception):
                member.trainer.close()
            raise
        self._members[uid] = member


class ServedMember:
    """A trainer, and the name of the state that it is in; None: as it was made. Each method answers the call of its name."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.token: str | None = None
        self.finite = True

    def train(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """One interval from the state `token`; the new state comes back and is called `next`."""
        diverged = ""
        self.trainer.begin(call["seed"])
        try:
            given = self.trainer.train(call["steps"])
        except Exception as error:
            # Libraries raise errors of many kinds where weights are not finite: that is a result, not a failure.
            sound = True  # also where it cannot say any more: then this error is the cause of that one
            with contextlib.suppress(Exception):
                sound = finite(returned.state(self.trainer.get_state()).learned)
            if sound:
                raise
            given, diverged = protocol.Report(0, (), {}), recipe.one_line(error)
        report, state = returned.report(given), self._state(call)
        content = {**report._asdict(), "finite": self.finite, "diverged": diverged}
        return content, wire.join(*state)

    def load(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """Have the trainer go on from a model that its library has saved; the new state comes back and is called `next`."""
        with recipe.attributed("init_from"):
            self.trainer.load(call["path"])
        return {}, wire.join(*self._state(call))

    def _state(self, call: Mapping[str, Any]) -> Any:
        """The state that a call has led to, which is called `next` from here on."""
        state = returned.state(self.trainer.get_state())
        self.token, self.finite = call["next"], finite(state.learned)
        return state

    def evaluate(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """Returns of one episode per seed; NaN where weights are not finite."""
        seeds = call["seeds"]
        if not self.finite:
            return {"returns": [math.nan] * len(seeds), "steps": 0}, {}
        returns = returned.returns(self.trainer.evaluate(seeds), seeds)
        return {"returns": returns, "steps": returned.evaluation_steps(self.trainer)}, {}

    def act(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """Actions [B, ...] for observations [B, ...]."""
        return {}, {"action": returned.actions(self.trainer.act(arrays["obs"]), len(arrays["obs"]))}

    def export(self, call: Mapping[str, Any], arrays: Arrays) -> Frame:
        """Have the trainer write its model into a file."""
        return {"files": returned.files(self.trainer.export(call["path"]))}, {}


def finite(learned: Arrays) -> bool:
    """True where all numbers of a state are finite."""
    return all(bool(np.isfinite(x).all()) for x in learned.values() if x.dtype.kind == "f")


def has_children() -> bool:
    """True where this process has child processes."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def end_with(peer: socket.socket) -> None:
    """Wait until the host is gone, then end this process and all that it has started."""
    poll = select.poll()
    poll.register(peer, 0)  # nothing but the end of the connection
    poll.poll()
    descendants.end(MARK)
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
        wire.send(peer, *server.answer(*wire.receive(peer)))


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main(int(sys.argv[1]))
