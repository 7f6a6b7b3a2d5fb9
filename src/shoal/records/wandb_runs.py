"""Curves in Weights & Biases: a run of W&B for the population, or for each member."""

from __future__ import annotations

import importlib
import json
import math
import uuid
from typing import TYPE_CHECKING, Any

from shoal.core import run_files
from shoal.core.atomic import parse_json, read_or_nothing, write_file
from shoal.core.errors import BadField
from shoal.core.extras import install
from shoal.core.user_code import one_line
from shoal.core.yaml_text import plain
from shoal.experiment.experiment import WeightsAndBiases
from shoal.experiment.files import to_dict
from shoal.records.callback import Callback
from shoal.records.scalars import scalars

if TYPE_CHECKING:
    from shoal.records.callback import Start
    from shoal.records.generation import Generation

STEPS = "steps"  # the x-axis of all curves; see `Rows.step`
POPULATION = "population"  # the run of W&B for the population


class WandbRuns(Callback):
    """Logs the scalars of TensorBoard, over the same steps.

    RUN/wandb.json holds the ids of its runs for a resume, and the address of the run for the population.
    Raises BadInput if the package is missing or login fails.
    """

    def __init__(self, settings: WeightsAndBiases):
        try:
            self._wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise BadField("wandb", f"needs the package wandb ({error})", install("wandb")) from error
        self._settings = settings
        self._runs: dict[str, Any] = {}

    def on_training_start(self, event: Start) -> None:
        self._plan, self._run_dir = event.plan, event.run_dir
        self._config = plain(to_dict(event.plan.experiment)) | {"provenance": dict(event.provenance)}
        self._ids = self._known(event)
        self._run(POPULATION)  # raises BadInput before anything is trained

    def on_generation_end(self, event: Generation) -> None:
        points: dict[str, dict[str, float]] = {}
        for name, value, member in scalars(event.rows, self._plan):
            if not math.isnan(value):
                run, name = self._place(name, member)
                points.setdefault(run, {})[name] = value
        for run, values in points.items():
            self._run(run).log(values | {STEPS: event.rows.step}, step=event.generation)

    def on_training_end(self, result: dict[str, Any] | None) -> None:
        if result is not None and (best := result["champion"]) is not None and POPULATION in self._runs:
            found = {"champion/evaluation": best["evaluation"]["mean"], "champion/uid": best["uid"]}
            self._runs[POPULATION].summary.update(found)
        for run in self._runs.values():
            run.finish()

    def _known(self, event: Start) -> dict[str, str]:
        """Ids of the runs of W&B by name; empty if the file is damaged."""
        file = event.run_dir / run_files.WANDB
        try:
            known = parse_json(read_or_nothing(file) or "{}").get("ids", {})
            return {name: id_ for name, id_ in known.items() if isinstance(id_, str)}
        except (ValueError, AttributeError):  # no JSON, or no mapping
            event.note(f"{file} is damaged: curves continue in new runs of W&B")
            return {}

    def _place(self, name: str, member: int | None) -> tuple[str, str]:
        """The run of W&B that a curve belongs to, and its name there."""
        if member is None:
            return POPULATION, name
        return (POPULATION, f"{name}/member{member}") if self._settings.runs == "one" else (f"member{member}", name)

    def _run(self, name: str) -> Any:
        """A run of W&B, created or resumed."""
        if name in self._runs:
            return self._runs[name]
        settings, run_dir, new = self._settings, self._run_dir, name not in self._ids
        called = settings.name or run_dir.name
        if new:
            self._ids[name] = uuid.uuid4().hex[:12]
            self._keep()
        try:
            self._runs[name] = self._wandb.init(
                project=settings.project,
                group=settings.group or run_dir.name,
                job_type=POPULATION if name == POPULATION else "member",
                name=called if name == POPULATION else f"{called} {name}",
                entity=settings.entity,
                tags=list(settings.tags),
                id=self._ids[name],
                resume=None if new or settings.mode == "offline" else "allow",
                mode=settings.mode,
                dir=str(run_dir),
                config=self._config,
                reinit="create_new",  # several at a time
                # The terminal belongs to the display, and provenance has the commit.
                settings={"silent": True, "console": "off", "disable_git": True},
            )
        except Exception as error:  # of any kind
            advice = "wandb: {mode: offline} records curves for a later upload"
            raise BadField("wandb", one_line(error), advice) from error
        self._runs[name].define_metric("*", step_metric=STEPS)
        if name == POPULATION:
            self._keep()
        return self._runs[name]

    def _keep(self) -> None:
        """Write the ids, and the address as far as it is known: offline there is none."""
        known = {"ids": self._ids, "url": getattr(self._runs.get(POPULATION), "url", None)}
        write_file(self._run_dir / run_files.WANDB, json.dumps(known, indent=1).encode())
