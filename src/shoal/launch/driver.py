"""The driver: starts the workers of a workspace, shows them, brings back those that die, and ends with one result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.live import Live

from shoal.core import run_files
from shoal.core.atomic import read_or_nothing, write_file
from shoal.core.errors import BadInput
from shoal.core.interrupts import BAD_INPUT, DONE, FAILED, INTERRUPTED, described, on_signal
from shoal.core.yaml_text import plain
from shoal.distributed.stop_request import StopRequest, stop_workers
from shoal.launch.launcher import Crew, Launcher
from shoal.records.jsonl import last_line
from shoal.records.screen import Screen
from shoal.records.words import text
from shoal.report.page import write_report
from shoal.report.run import RunFiles
from shoal.report.workers import GLANCE, glances, view
from shoal.report.workspace import read_workspace

DEATHS = 3  # in a row, without a generation in between, after which a worker is given up
PAGE = 30.0  # seconds between two times that the page is written, at least; and 20 times as long as writing it takes
LOOK = 0.1  # seconds between two looks at what ended


@dataclass
class Launched:
    """A worker, as the driver knows it."""

    name: str
    code: int | None = None  # with which it ended for good
    restarts: int = 0
    fruitless: int = 0  # deaths since the last generation
    reached: int = -1  # the last generation before its last death

    @property
    def state(self) -> str:
        """State of the worker, if its files do not show it; else empty."""
        if self.code is None:
            return f"at work, restarted {self.restarts}×" if self.restarts else ""
        return {DONE: "", INTERRUPTED: "stopped"}.get(self.code, f"given up, see logs/{self.name}.log")


class Driver:
    """Workers of a workspace that are at work in one place."""

    def __init__(self, crew: Crew, launcher: Launcher, screen: Screen, quiet: bool):
        self._crew, self._launcher, self._path = crew, launcher, crew.path
        self._screen, self._quiet = screen, quiet
        self._launched = [Launched(name) for name in crew.names]
        self._started = list[str]()  # here, and not by an earlier command
        self._heard: list[int] = []
        self._request, self._stopping, self._killed = StopRequest(crew.path), False, False
        self._next_look = self._next_page = 0.0
        self._slowest = 0

    def run(self) -> list[int]:
        """The exit codes of all workers, once each has ended for good. Raises OSError."""
        (self._path / "logs").mkdir(parents=True, exist_ok=True)
        live = Live(console=self._screen, refresh_per_second=4) if self._screen.redraws and not self._quiet else None
        try:
            with on_signal(self._heard.append):
                self._start()
                if live is not None:
                    live.start()
                while any(worker.code is None for worker in self._launched):
                    self._attend()
                    with suppress(Exception):  # no view is worth a run: nobody has begun, a file is damaged
                        self._show(live)
                    time.sleep(LOOK)
                self._next_look, self._next_page = 0.0, math.inf  # the page has its end from whoever called
                with suppress(Exception):
                    self._show(live)
        except BaseException:
            self._launcher.kill(self._started)
            raise
        finally:
            if live is not None:
                live.stop()
        return [worker.code or DONE for worker in self._launched]

    def _start(self) -> None:
        """Start all that are not at work already. Raises OSError, and BadInput where the place refuses one."""
        found = list[str]()
        for name in self._crew.names:
            (self._started if self._launcher.start(name) else found).append(name)
        if found:
            self._note(f"at work already: {', '.join(found)}")

    @property
    def _asked(self) -> bool:
        """True once all shall stop: by a signal to the driver, or in the workspace."""
        return bool(self._heard) or self._request.made

    def _attend(self) -> None:
        """Stop where that is asked for, and see who has ended."""
        if self._asked:
            self._stop("stopping: each worker after its generation; once more to end them at once")
        if len(self._heard) > 1 and not self._killed:
            self._killed = True
            self._launcher.kill(self._crew.names)
        for worker in self._launched:
            if worker.code is None and (code := self._launcher.ended(worker.name)) is not None:
                self._end(worker, code)

    def _end(self, worker: Launched, code: int) -> None:
        """Note that a worker has ended: for good, or to be started again."""
        if code == BAD_INPUT and self._is_its_own(worker):
            worker.code = FAILED
            why = complaint(self._crew.log(worker.name))
            self._note(f"worker {worker.name} cannot continue: it is given up ({why})")
        elif code == BAD_INPUT:
            worker.code = code
            self._stop(f"stopping: worker {worker.name} cannot train")
        elif code == DONE or (code == FAILED and self._all_diverged(worker.name)):
            worker.code = DONE
        elif self._stopping or self._asked:
            worker.code = INTERRUPTED
        else:
            reached = self._reached(worker.name)
            worker.fruitless = 1 if reached > worker.reached else worker.fruitless + 1
            worker.reached = reached
            when = f"after generation {reached}" if reached else "before its first generation"
            how = f"worker {worker.name} ended with {code} {when}"
            if worker.fruitless >= DEATHS:
                worker.code = FAILED
                self._note(f"{how}, {DEATHS} times in a row: it is given up; see {self._crew.log(worker.name)}")
            else:
                self._restart(worker, how)

    def _restart(self, worker: Launched, how: str) -> None:
        """Start a worker again; where the place refuses it, such as Slurm beyond a limit, the others go on without it."""
        try:
            self._launcher.start(worker.name)
        except (OSError, BadInput) as error:
            worker.code = FAILED
            self._note(f"{how}, and cannot be started again: it is given up ({error})")
        else:
            worker.restarts += 1
            self._note(f"{how}: started again")

    def _stop(self, why: str) -> None:
        if not self._stopping:
            self._stopping = True
            self._note(why)
            try:
                stop_workers(self._path)
            except OSError as error:  # a full disk
                self._note(
                    f"workers on other machines go on, for the request to stop cannot be written: {described(error)}"
                )
            self._launcher.stop()

    def _is_its_own(self, worker: Launched) -> bool:
        """True where bad input is of this worker alone, as where its checkpoints are lost: it has trained here before, and
        others are at work or done."""
        published = (self._path / "published" / worker.name).glob("*.json")
        others = [other.code for other in self._launched if other is not worker]
        return (self._reached(worker.name) > 0 or any(published)) and (None in others or DONE in others)

    def _reached(self, name: str) -> int:
        """Generations of a worker that are on disk."""
        with suppress(OSError, BadInput):
            return int(last_line(self._path / "workers" / name / run_files.METRICS).get("generation", -1)) + 1
        return 0

    def _all_diverged(self, name: str) -> bool:
        """True where a worker has come to its end without a champion, as it would again. One that fails beside a result with
        a champion has failed at something else, perhaps before it took up its run again."""
        result = RunFiles(self._path / "workers" / name, lenient=True).result
        return bool(result) and not result.get("champion")

    def _show(self, live: Live | None) -> None:
        """Renew the table, or where it cannot be redrawn tell of each generation that all have done; renew the page."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + GLANCE
        if live is not None:
            live.update(view(self._path, self._states()))
        elif not self._quiet:
            self._print_progress()
        if now > self._next_page:
            self._next_page = now + PAGE
            write_report(self._path)
            self._next_page = now + max(PAGE, 20 * (time.monotonic() - now))

    def _print_progress(self) -> None:
        rows = [row for row in glances(self._path) if row.name in self._crew.names]
        slowest = min((row.done for row in rows), default=0) if len(rows) == len(self._launched) else 0
        if slowest > self._slowest:
            self._slowest, best = slowest, float(np.fmax.reduce([row.best for row in rows]))  # not of who has diverged
            copies, foreign = (sum(int(row.figures[at] or 0) for row in rows) for at in (3, 4))
            furthest, at_work = max(row.done for row in rows), sum(worker.code is None for worker in self._launched)
            self._note(
                f"generation {slowest}/{rows[0].planned} of all, {furthest} of the furthest; best {text(best)}, "
                f"{copies} copies, {foreign} of them of other workers; {at_work} at work"
            )

    def _states(self) -> Mapping[str, str]:
        begun = self._crew.begun()
        return {
            worker.name: worker.state or ("starting" if worker.code is None and worker.name not in begun else "")
            for worker in self._launched
        }

    def _note(self, message: str) -> None:
        if not self._quiet:
            self._screen.print(message, style="dim", soft_wrap=True)


def conclude(path: Path) -> dict[str, Any]:
    """The result of all workers that have one, which is written beside their page: with the best of their champions, and
    whose it is. Raises BadInput where nobody has one."""
    run = read_workspace(path, ended=True)  # others were given up, or are not among those that were started
    champion = run.result.get("champion") or {}
    whose = run.worker_of(champion["uid"]) if "uid" in champion else None
    result = run.result | {"workers": len(run.workers), "worker": whose or run.workers[0].name}
    write_file(path / run_files.RESULT, json.dumps(plain(result), indent=1).encode())
    return result


def complaint(log: Path) -> str:
    """The last message of a worker that could not train."""
    lines = [line for line in read_or_nothing(log).splitlines() if line.startswith("shoal: ")]
    return lines[-1].removeprefix("shoal: ") if lines else f"see {log}"
