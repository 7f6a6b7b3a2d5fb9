"""The protocol of a place where workers run, and the workers that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

LOST = -1  # in place of the exit code of a worker that left none


class PlaceLost(Exception):
    """The place is gone, such as a cluster, and all of its workers with it."""


@dataclass(frozen=True)
class Crew:
    """The workers of a workspace. Each runs `shoal train`, with a name that it has again when it is started again.

    arguments: of all of them. cpus, gpus: of each, where the place gives them out
    """

    path: Path
    count: int
    arguments: Sequence[str]
    cpus: int = 1
    gpus: float = 0

    @property
    def names(self) -> list[str]:
        return [f"w{number}" for number in range(self.count)]

    def begun(self) -> set[str]:
        """The names of workers that have come to the workspace."""
        return {lease.name for lease in (self.path / "leases").glob("*")}

    def words(self, name: str) -> list[str]:
        """The arguments of the `shoal` command."""
        return ["train", *self.arguments, *own_words(name)]

    def log(self, name: str) -> Path:
        """The file to which a worker prints."""
        return self.path / "logs" / f"{name}.log"


def own_words(name: str) -> list[str]:
    """The arguments of a worker that no other has, which are the last ones of its command."""
    return ["--worker", name, "--quiet"]


class Launcher(Protocol):
    """A place where workers run. Whatever fails there for good raises OSError; all may raise PlaceLost."""

    def start(self, name: str) -> bool:
        """Start a worker; False where this place has it at work already, from an earlier command."""

    def ended(self, name: str) -> int | None:
        """The exit code of a worker, LOST where it died without one; None while it runs, or waits for its turn."""

    def stop(self) -> None:
        """Hasten the end of workers who are asked to stop; those that have not begun never do."""

    def kill(self, names: Iterable[str]) -> None:
        """End some at once: each goes on from its last checkpoint when it is started again."""
