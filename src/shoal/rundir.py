"""The run directory: what lies where, and that nothing half-made stays behind."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal import champion as champions
from shoal.atomic import write_file
from shoal.champion import Best
from shoal.checkpoint import Checkpoints, tidy
from shoal.experiment import Experiment, dump
from shoal.record.jsonl import Lines
from shoal.types import BadInput, PyTree, Spec

FILES = ("experiment.yaml", "lineage.jsonl", "metrics.jsonl", "tensorboard", "checkpoints", "champion")


class RunDirectory:
    """The files of one run; `keep` checkpoints stay. attempt: see `Checkpoints`."""

    def __init__(self, path: Path, keep: int, attempt: str = "0"):
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints", keep, attempt)
        self._made: list[Path] | None = None  # the folders of a new run that were not there before

    def check_free(self, needed: int) -> None:
        """Raise BadInput where a run lies already, or where the disk has no room for `needed` bytes."""
        if (self.path / "experiment.yaml").exists():
            raise BadInput(f"run_dir: {self.path} already holds a run; `shoal resume {self.path}` continues it")
        if any((self.path / name).exists() for name in FILES):
            raise BadInput(f"run_dir: {self.path} holds what is left of a run; remove it or choose another place")
        place = next(p for p in (self.path, *self.path.absolute().parents) if p.is_dir())
        free = shutil.disk_usage(place).free
        if needed > free:
            raise BadInput(
                f"run_dir: {self.path} needs about {needed / 1e9:.2g} GB for checkpoints and {free / 1e9:.2g} GB "
                f"are free; make room, choose another place, or lower checkpoint.keep"
            )

    def create(self, experiment: Experiment) -> None:
        """Make the folder of a new run and write its experiment. Raises BadInput, and leaves nothing, if that fails."""
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_experiment(experiment)
        except OSError as error:
            self.discard()
            raise BadInput(f"run_dir: {self.path} cannot be written: {error.strerror}") from error
        self._open_lines()

    def reopen(self, experiment: Experiment, first: int, best: Best, spec: Spec) -> None:
        """Cut everything back to what was known before generation `first`."""
        tidy(self.path)
        tidy(self.path / "checkpoints")
        (self.path / "result.json").unlink(missing_ok=True)
        self.write_experiment(experiment)
        if best.learned is not None:  # the one on disk may be younger than the checkpoint, or half replaced
            champions.save(self.path / "champion", best, spec)
        self._open_lines(before=first)

    def save(
        self,
        generation: int,
        parts: dict[str, PyTree],
        manifest: dict[str, Any] | None,
        all_parts: int,
        best: Best | None,
        spec: Spec,
    ) -> None:
        """Write a new champion, and parts of the state after a generation, if there are any; see `Checkpoints.save`."""
        if best is not None:
            champions.save(self.path / "champion", best, spec)
        if parts:
            if manifest is not None:
                self.lineage.sync()
                self.metrics.sync()
            self.checkpoints.save(generation, parts, manifest, all_parts)

    def discard_unborn(self) -> None:
        """Take back a new run that never came to its first checkpoint."""
        if self._made is not None and not self.checkpoints.generations():
            self.discard()

    def discard(self) -> None:
        """Remove the run's files, and the folders that were made for it."""
        for name in FILES:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):  # it was not there
                    path.unlink()
        for folder in self._made or ():
            with suppress(OSError):  # whatever else lies there stays
                folder.rmdir()

    def write_experiment(self, experiment: Experiment) -> None:
        """Write experiment.yaml."""
        write_file(self.path / "experiment.yaml", dump(experiment).encode())

    def _open_lines(self, before: int | None = None) -> None:
        self.lineage = Lines(self.path / "lineage.jsonl", before=before)
        self.metrics = Lines(self.path / "metrics.jsonl", before=before)
