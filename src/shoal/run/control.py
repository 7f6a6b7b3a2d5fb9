"""Signals to a running process, and its progress for callbacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from shoal.core import run_files
from shoal.core.interrupts import BY_SIGNAL, Interrupted
from shoal.core.types import PyTree
from shoal.records.callback import Callback

PATIENCE = 10.0  # seconds that a stopped run may take to end its generation instead of abandoning it
SHORT = 0.05  # seconds of a generation within which a signal can wait


class NotBegun(Interrupted):
    """The run was stopped by a signal, of this number, before there was anything to resume."""

    def __init__(self, run_dir: Path, leading: bool, number: int):
        super().__init__(run_dir, leading=leading)
        self.code = BY_SIGNAL + number

    def __str__(self) -> str:
        return "interrupted; start it again"


class Control:
    """Passes progress to the callbacks of a run, and signals to its parts.

    stop: a signal has asked for an end. iterations: of an interval. leading: this process writes the records.
    last_seconds: of training, in the last generation. last_generation: seconds of the whole of it.
    run_dir: where the run lies, once it has a place.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = list(callbacks)
        self.stop = self.abandon = self._told = False
        self.last_seconds, self.last_generation, self.iterations = 0.0, 0.0, 1
        self.leading, self._number = True, 0
        self.run_dir: Path | None = None
        self._generation, self._phase, self._began = 0, "", time.perf_counter()

    def lead(self, leading: bool) -> None:
        """Set whether this process writes the records: callbacks receive the events of the whole run, or none."""
        self.leading = leading
        if not leading:
            self.callbacks = []

    def interrupt(self, number: int) -> None:
        """Called by a signal, in the middle of anything: it only leaves word for `attend`."""
        left = self.last_generation - (time.perf_counter() - self._began)
        self.abandon = self.stop or not self.last_generation or left > PATIENCE or self._phase == "champion"
        self.stop, self._number = True, number

    def attend(self) -> None:
        """Do what a signal has asked for. Raises Interrupted when this generation is not to be ended."""
        if self.stop and not self._told:
            self._told = True
            end = "this generation is abandoned" if self.abandon else "after this generation; once more to abandon it"
            self.note(f"stopping: {end}")
        if self.abandon:
            if self.run_dir is None or not (self.run_dir / run_files.EXPERIMENT).exists():
                raise NotBegun(self.run_dir or Path(), self.leading, self._number)
            raise Interrupted(self.run_dir, leading=self.leading)

    def pause(self, result: PyTree, done: float) -> None:
        """Wait for a result of the device, open to signals, and show how many iterations of the phase are done."""
        leaf: Any
        if 0 < self.last_generation < SHORT:
            jax.block_until_ready(result)
        for leaf in jax.tree.leaves(result):
            while not leaf.is_ready():
                self.attend()
                time.sleep(0.0005)
        self.attend()
        if done:
            for callback in self.callbacks:
                callback.on_progress(self._generation, self._phase, done / self.iterations)

    def enter(self, generation: int, phase: str) -> None:
        """Begin a phase of a generation: train, evaluate, evolve, champion."""
        self._generation, self._phase = generation, phase
        if phase == "train":
            self._began = time.perf_counter()
        for callback in self.callbacks:
            callback.on_progress(generation, phase, 0.0)

    @property
    def chunk(self) -> int:
        """Iterations per call of the device, so that the run can be watched and stopped about twice a second."""
        if not self.last_seconds:
            return -(-self.iterations // 8)
        return max(1, int(self.iterations * 0.5 / self.last_seconds))

    def note(self, message: str) -> None:
        """Pass a message for the user to the callbacks."""
        for callback in self.callbacks:
            callback.on_message(message)
