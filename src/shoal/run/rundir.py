"""The run directory: what lies where, and that nothing half-made stays behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shoal.core import run_files
from shoal.core.atomic import FILE, FOLDER, Staging, check_kind, parse_json
from shoal.core.candidates import Candidate, SmoothedFitness
from shoal.core.errors import BadField, BadInput
from shoal.core.escape import in_shell
from shoal.core.interrupts import to_resume
from shoal.core.schema import build
from shoal.core.spec import Spec
from shoal.core.trend import Trend
from shoal.core.types import PyTree
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import dump
from shoal.records.generation import Generation
from shoal.records.jsonl import Lines, last_line, read_text
from shoal.run import champion as champions
from shoal.run.checkpoint import Checkpoints

LINES = (run_files.LINEAGE, run_files.METRICS, run_files.PROVENANCE)
FOLDERS = ("tensorboard", "checkpoints", "champion", "wandb")
FILES = (
    run_files.EXPERIMENT,
    run_files.METHOD,
    run_files.INIT_FROM,
    run_files.WANDB,
    run_files.RESULT,
    *LINES,
    *FOLDERS,
)


@dataclass(frozen=True)
class Totals:
    """Totals of the run so far, in the manifest of a checkpoint."""

    seconds: float
    compile_seconds: float
    steps: int
    earlier: list[dict[str, Any]]  # candidates of the final selection, without what they have learned
    last: list[dict[str, Any]]
    smoothed: SmoothedFitness
    measured: int
    trend: Trend
    episode_length: float
    uids: list[int]  # of the members that are left, where members may end


def read_totals(manifest: dict[str, Any], place: str) -> Totals:
    """Read the totals in a manifest. Raises BadInput, with `place` in front, where it does not."""
    return build(Totals, {field.name: manifest.get(field.name) for field in fields(Totals)}, place)


class RunDirectory:
    """The files of one run; `keep` checkpoints stay. staging: where they are made, and must be to be written at all."""

    def __init__(self, path: Path, keep: int, staging: Staging):
        """Raises BadInput where something else has the name of one of them, such as a link to another place."""
        for name in (*FILES, "trainers"):
            check_kind(path / name, FOLDER if name in (*FOLDERS, "trainers") else FILE)
        self.path, self._staging = path, staging
        self.checkpoints = Checkpoints(path / "checkpoints", keep, staging)
        self._lines: list[Lines] = []
        self._champion: Candidate | None = None  # that lies on disk
        self._new = False

    def check_free(self, needed: int) -> None:
        """Raise BadInput where a run lies already, or where the disk has no room for `needed` bytes."""
        if (self.path / run_files.EXPERIMENT).exists():
            advice = f"`{to_resume(self.path)}` continues it, --run-dir NEW trains elsewhere"
            raise BadField("run_dir", f"{self.path} already holds a run", advice)
        if any((self.path / name).exists() for name in FILES):
            raise BadField("run_dir", f"{self.path} holds what is left of a run", "remove it or choose another place")
        place = next(p for p in (self.path, *self.path.absolute().parents) if p.is_dir())
        free = shutil.disk_usage(place).free
        if needed > free:
            raise BadField(
                "run_dir",
                f"{self.path} needs about {needed / 1e9:.2g} GB for checkpoints and {free / 1e9:.2g} GB are free",
                "make room, choose another place, or lower checkpoint.keep",
            )

    def create(self, experiment: Experiment, method: dict[str, Any]) -> None:
        """Make the folder of a new run; write its experiment, and `method` as method.json.

        Raises BadInput, and leaves nothing, if that fails.
        """
        self._new = True
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._staging.open()
            self.write_experiment(experiment, method)
            self._open_lines(before=0)
        except OSError as error:
            self.discard()
            raise BadField("run_dir", f"{self.path} cannot be written: {error.strerror}") from error

    def reopen(
        self, experiment: Experiment, method: dict[str, Any], first: int, champion: Candidate, spec: Spec | None
    ) -> None:
        """Cut everything back to what was known before generation `first`."""
        self._staging.open()
        self._staging.remove(self.path / run_files.RESULT)
        self.write_experiment(experiment, method)
        if champion.learned is None:  # one on disk is of generations that the run has lost
            self._staging.remove(self.path / "champion")
        self._crown(champion, spec)  # the one on disk may be younger than the checkpoint, or half replaced
        self._open_lines(before=first)

    def record(self, generations: Sequence[Generation]) -> None:
        """Append the lines of some generations. A checkpoint comes after those of the generations that it contains."""
        if generations:  # only one process has any
            self.lineage.write([line for one in generations for line in one.rows.lineage])
            self.metrics.write([one.rows.metrics for one in generations])

    def save(
        self,
        generation: int,
        parts: dict[str, PyTree],
        manifest: dict[str, Any] | None,
        all_parts: int,
        champion: Candidate | None,
        spec: Spec | None,
    ) -> None:
        """Write the champion, where it is a new one, and parts of the state after a generation, if there are any; see
        `Checkpoints.save`."""
        if champion is not None:
            self._crown(champion, spec)
        if parts:
            if manifest is not None:
                self.lineage.sync()
                self.metrics.sync()
            self.checkpoints.save(generation, parts, manifest, all_parts)

    def result(self) -> dict[str, Any]:
        """Content of result.json; nothing where there is none, or a damaged one."""
        with suppress(ValueError):
            match parse_json(read_text(self.path / run_files.RESULT)):
                case {"status": str(), "generations": int(), "champion": dict() | None} as result:
                    return result
        return {}

    @property
    def begun(self) -> bool:
        """True once there is something to keep: the records of a generation, or a checkpoint."""
        return bool(last_line(self.path / run_files.METRICS) or self.checkpoints.generations())

    def check_unfinished(self) -> None:
        """Raise BadInput where to start anew would replace what is finished: a champion that was saved alone, or that of a
        run that has ended, whose checkpoints are gone."""
        began, ended = ((self.path / name).exists() for name in (run_files.PROVENANCE, run_files.RESULT))
        if (self.path / "champion").exists() and (ended or not began):
            problem = "holds a champion, and no checkpoint to resume from"
            raise BadInput(
                f"{self.path} {problem}; begin a new run with it: --init-from {in_shell(self.path / 'champion')}"
            )

    def discard_unborn(self) -> None:
        """Take back a new run that never recorded a generation."""
        if self._new and not self.begun:
            self.discard()

    def discard(self) -> None:
        """Remove the run's files, and its folder where nothing else lies in it, such as the lock of this process; and where
        nobody has taken it over, who may just have made it."""
        lost = self._staging.lost
        for name in FILES:
            with suppress(OSError):
                self._staging.remove(self.path / name)
        self.close()
        with suppress(OSError):  # whatever else lies there stays
            if not lost:
                self.path.rmdir()

    def write_experiment(self, experiment: Experiment, method: dict[str, Any]) -> None:
        """Write experiment.yaml, which makes this folder a run, and method.json."""
        self.write(run_files.EXPERIMENT, dump(experiment))
        self.write(run_files.METHOD, json.dumps(method, indent=1))

    def write(self, name: str, text: str) -> None:
        """Write a file of the run."""
        self._staging.write(self.path / name, text.encode())

    def reason(self, error: OSError) -> OSError:
        """The reason why the run cannot be written: another process has it now, or the system's error."""
        return OSError(f"{self.path} was taken over by another process, or removed") if self._staging.lost else error

    def close(self) -> None:
        """Close the files; nothing more will be written."""
        for lines in self._lines:
            lines.close()
        self._staging.close()

    def _crown(self, champion: Candidate, spec: Spec | None) -> None:
        if champion.learned is not None and champion is not self._champion:
            champions.save(self.path / "champion", champion, spec, self._staging)
            self._champion = champion

    def _open_lines(self, before: int) -> None:
        for name in LINES:
            self._lines.append(Lines(self.path / name, before, self._staging.path))
        self.lineage, self.metrics, self.provenance = self._lines
