"""The exchange through a shared directory: workers publish their members, read those of others, and never wait.

It needs neither synchronised clocks nor locks, and no other worker needs to be running: files appear complete, no two
workers ever have the same name, and readers verify checksums.

    experiment.yaml     what all workers train
    slots/0003          the worker with the number 3: its name
    leases/NAME         the process that works under this name; its modification time is updated while it runs
    published/NAME/     00000012.states and then 00000012.json, its manifest, for some generations; where they are made
    workers/NAME/       the worker's own run directory
    final_selection.json  the best of their champions, once the last worker has ended
    stop                renewed when all that are at work shall end after their generation
"""

from __future__ import annotations

import math
import os
import re
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core import atomic, run_files
from shoal.core.atomic import Damaged, Irregular, read_or_nothing
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed
from shoal.distributed.lease import Lease, ended, void
from shoal.distributed.rows import to_json
from shoal.distributed.stop_request import StopRequest
from shoal.members.devices import host_memory

NAME = re.compile(r"\w[\w.-]{0,63}")


class Lost(Exception):
    """A published state that is missing, or does not match its manifest."""


class Published(NamedTuple):
    """The members that a worker has published of one generation."""

    worker: str
    generation: int
    columns: list[str]
    rows: np.ndarray  # float64 [N, C]
    sizes: list[int]  # bytes of each state
    checksums: list[int]


class Workspace:
    """A directory that workers share, as seen by one of them.

    keep: the number of newest published generations that are kept; for older ones, see `is_kept`.
    pause: called while waiting, and may raise. note: called once with a message for each manifest that is skipped.
    every: generations between two that are published.
    """

    def __init__(self, path: Path, keep: int, pause: Callable[[], None], note: Callable[[str], None], every: int = 1):
        self.path, self._keep, self._pause, self._note, self._every = path, keep, pause, note, every
        self._lost: set[tuple[str, int]] = set()
        self._known: dict[str, Published] = {}  # the newest manifest that was read of each worker
        self._lease: Lease | None = None
        self.staging: atomic.Staging
        self.name, self.slot = "", -1
        self._stop = StopRequest(path)

    # ------------------------------------------------------------------------------------------ joining

    def join(self, name: str | None) -> None:
        """Become the worker of this name, or a new one. Raises BadInput when another process works under it, and where the
        directory cannot be used; Failed where this worker has been at work there."""
        if name is not None and not NAME.fullmatch(name):
            raise BadField("exchange.worker", "write up to 64 letters, digits, and . _ - after the first", value=name)
        try:
            for folder in ("slots", "leases", "published", "workers"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            self.name, self.slot = self._claim(name)
            (self.path / "published" / self.name).mkdir(exist_ok=True)
            self.staging = atomic.Staging(self.path / "published" / self.name, uuid.uuid4().hex[:8])
            self._lease = Lease(self.path / "leases" / self.name, self._pause, self._note)
            self.staging.open(self._lease.check)
        except OSError as error:
            self.leave()
            run = self.path / "workers" / (name or "")
            if name is not None and run.is_dir():  # the disk is full, or gone for a while
                raise Failed(run, error) from error
            raise BadField("exchange.workspace", f"{self.path} cannot be used: {error.strerror or error}") from error

    def ensure_experiment(self, text: str, differences: Callable[[Path], Sequence[str]]) -> None:
        """Make `text` the experiment of this workspace, or compare it with the one that it has. Raises BadInput."""
        path = self.path / run_files.EXPERIMENT
        if atomic.create_file(path, text.encode()):
            return
        try:
            if not path.is_file():
                raise BadField("exchange.workspace", f"{path} is no file")
            if found := differences(path):
                problem = f"{self.path} belongs to another experiment, which differs in {', '.join(found)}"
                raise BadField("exchange.workspace", problem, f"compare {path}, or choose another workspace")
        except BadInput:
            if not self._generations(self.name):  # it has published nothing
                self.staging.close()
                (self.path / "published" / self.name).rmdir()
                (self.path / "slots" / f"{self.slot:04d}").unlink()
            raise

    def leave(self) -> None:
        """Give the name back."""
        if self._lease is not None:
            self.staging.close()
            self._lease.release()
            self._lease = None

    def is_last(self) -> bool:
        """True where no other worker is at work: each has its result, or has ended without one. Of one of another machine
        that is not known: it is watched."""
        leases = [p for p in (self.path / "leases").iterdir() if NAME.fullmatch(p.name) and p.name != self.name]
        running = [p for p in leases if not (self.path / "workers" / p.name / run_files.RESULT).exists()]
        return void([p for p in running if not ended(read_or_nothing(p))], self._pause)

    def _claim(self, name: str | None) -> tuple[str, int]:
        """A name and a number that no other worker has or had."""
        taken = {int(p.name): read_or_nothing(p) for p in (self.path / "slots").glob("[0-9]" * 4)}
        for slot, worker in taken.items():
            if worker == name:
                return worker, slot
        slot = max(taken, default=-1) + 1
        while name is None and str(slot) in taken.values():
            slot += 1
        if slot > 9999:
            raise BadField("exchange.workspace", f"{self.path} has no number left for another worker")
        worker = str(slot) if name is None else name
        if atomic.create_file(self.path / "slots" / f"{slot:04d}", worker.encode()):
            return worker, slot
        return self._claim(name)  # another process was faster

    @property
    def stopped(self) -> bool:
        """True once somebody has asked all workers to stop, since this one is here."""
        return self._stop.made

    # --------------------------------------------------------------------------------------- publishing

    def publish(self, generation: int, columns: list[str], rows: np.ndarray, states: Sequence[bytes]) -> None:
        """Publish the members of a generation: first the states, then the manifest.

        Raises OSError when the directory cannot be written by this process, or not any more.
        """
        folder = self.path / "published" / self.name
        manifest = {
            "generation": generation,
            "columns": columns,
            "rows": to_json(rows),
            "sizes": [len(x) for x in states],
            "checksums": [zlib.crc32(x) for x in states],
        }
        self.staging.write(folder / f"{generation:08d}.states", b"".join(states))
        self.staging.write(folder / f"{generation:08d}.json", atomic.seal(manifest))
        for old in self._generations(self.name):
            if not is_kept(old // self._every, generation // self._every, self._keep):
                for suffix in ("json", "states"):  # the manifest first: without it, no reader opens the states
                    self.staging.remove(folder / f"{old:08d}.{suffix}")

    def check_past(self, first: int, uid: np.ndarray) -> None:
        """Raise BadInput where these members, who go on at generation `first`, have published it: others may have copied
        what they would now live again, and otherwise."""
        for generation in reversed(self._generations(self.name)):
            with suppress(Damaged):
                if generation >= first and np.array_equal(self._manifest(self.name, generation).rows[:, 0], uid):
                    problem = (
                        f"others may have copied its generation {generation + 1}, and its own files have lost that: "
                        f"they end before generation {first + 1}"
                    )
                    raise BadField("exchange.worker", problem, "use another name", value=self.name)

    # ------------------------------------------------------------------------------------------ reading

    def visible(self, generation: int, columns: list[str]) -> list[Published]:
        """The newest readable manifest of every other worker up to `generation`, by name.

        Only stats with these columns are believed. Raises OSError where somebody else has this
        worker's name: it decides nothing any more.
        """
        assert self._lease is not None
        self._lease.check()
        names = {p.name for p in (self.path / "published").iterdir() if p.is_dir() and NAME.fullmatch(p.name)}
        workers = sorted(names - {self.name})
        stats = [manifest for name in workers if (manifest := self._newest(name, generation))]
        foreign = [manifest for manifest in stats if manifest.columns != columns]
        for manifest in foreign:
            self.reject(manifest, "it is of another experiment")
        return [manifest for manifest in stats if manifest not in foreign]

    def reject(self, manifest: Published, why: str) -> None:
        """Ignore a manifest from now on."""
        worker, generation, *_ = manifest
        self._skip(worker, generation, f"skipping generation {generation + 1} of worker {worker}: {why}")

    def read(self, manifest: Published, row: int) -> bytes:
        """The state of a member. Raises Lost, and the manifest is no longer visible."""
        path = self.path / "published" / manifest.worker / f"{manifest.generation:08d}.states"
        why: str | None = f"{path} does not match its manifest"
        try:
            with atomic.open_file(path) as file:
                begin, size = sum(manifest.sizes[:row]), manifest.sizes[row]
                there = begin + size <= os.fstat(file.fileno()).st_size and size <= (host_memory() or math.inf)
                file.seek(begin)
                data = file.read(size) if there else b""
            if len(data) == manifest.sizes[row] and zlib.crc32(data) == manifest.checksums[row]:
                return data
        except FileNotFoundError:
            why = None  # removed since the manifest was read
        except OSError as error:
            why = f"{path} cannot be read: {error.strerror}"
        except Irregular as error:
            why = str(error)
        self._skip(manifest.worker, manifest.generation, why)
        raise Lost(path)

    def _newest(self, worker: str, generation: int) -> Published | None:
        for g in reversed(self._generations(worker)):
            if g <= generation and (worker, g) not in self._lost:
                try:
                    return self._manifest(worker, g)
                except Damaged as error:
                    gone = isinstance(error.__cause__, FileNotFoundError)
                    self._skip(worker, g, None if gone else f"skipping a damaged manifest: {error}")
        return None

    def _manifest(self, worker: str, generation: int) -> Published:
        known = self._known.get(worker)
        if known is None or known.generation != generation:
            path = self.path / "published" / worker / f"{generation:08d}.json"
            content = atomic.unseal(path)
            try:
                names, rows = [str(x) for x in content["columns"]], np.array(content["rows"], float)
                sizes, checksums = ([int(x) for x in content[name]] for name in ("sizes", "checksums"))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise Damaged(f"{path.parent}: {path.name} is no manifest") from error
            n = len(sizes) if all(0 <= x < 2**48 for x in sizes) else -1
            if (content.get("generation"), len(checksums), rows.shape) != (generation, n, (n, len(names))):
                raise Damaged(f"{path.parent}: {path.name} is not the manifest of this generation")
            self._known[worker] = known = Published(worker, generation, names, rows, sizes, checksums)
        return known

    def _generations(self, worker: str) -> list[int]:
        try:
            names = os.listdir(self.path / "published" / worker)
        except OSError:  # not a worker's folder, or unreadable
            return []
        return sorted(int(n[:8]) for n in names if re.fullmatch(r"[0-9]{8}\.json", n))

    def _skip(self, worker: str, generation: int, why: str | None) -> None:
        self._lost.add((worker, generation))
        if why is not None:
            self._note(why)


def is_kept(generation: int, newest: int, keep: int) -> bool:
    """True where a published generation stays: the last `keep`, and of older ones every 2nd, 4th, 8th ..., ever fewer.

    So a worker that comes late or is slow finds somebody of about its own experience, in G generations among no more
    than keep x (1 + log2(G / keep)) of them.
    """
    return generation % (1 << ((newest - generation) // keep).bit_length()) == 0 or newest - generation < keep
