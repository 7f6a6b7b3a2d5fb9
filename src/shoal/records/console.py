"""The display of a run: a live table in a terminal, or plain lines; and signals before and after the run."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from functools import partial, reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.core.interrupts import SIGNALS
from shoal.core.schema import as_given
from shoal.experiment import plan_text
from shoal.experiment.structures import choices, structures
from shoal.records.callback import Callback
from shoal.records.notebook import Cell
from shoal.records.screen import Screen, plain_table, styled
from shoal.records.words import text

if TYPE_CHECKING:
    from shoal.records.callback import Start
    from shoal.records.generation import Generation, Rows

Column = Callable[["Rows"], str]
ROWS = 12  # generations in view
PHASES = {"train": "training", "evaluate": "evaluating", "evolve": "evolving"}


class Display(Callback):
    """A row per generation: fitness, copies, steps per second; below, a progress bar and the time left."""

    def __init__(self, console: Screen, quiet: bool = False):
        self._console, self._quiet = console, quiet
        self._live: Live | Cell | None = None
        self._renew: Callable[[], None] = lambda: None  # for a view without a thread
        self._rows: list[tuple[str, ...]] = []
        self._phase, self._entered, self._fraction, self._compiles = "", 0.0, 0.0, False
        self._columns: dict[str, Column] = {}
        self._noted: set[str] = set()

    def on_training_start(self, event: Start) -> None:
        plan, run_dir, generation = event.plan, event.run_dir, event.generation
        e, method = plan.experiment, plan.method
        self._plan, self._total, self._done = plan, e.generations, generation
        self._first, self._began, self._compiling = generation, time.monotonic(), 0.0
        name = e.method_name
        copies: dict[str, Column] = {"copies": _copies} if method.copies else {}
        chosen = {name: _hyper(name) for name in method.self_tuned}
        self._columns = dict(SAMPLED) if plan.kind.sampled else FITNESS | copies | chosen
        where = f"{event.devices} device{'s' * (event.devices > 1)}"
        many = f"{e.generations} generation{'s' * (e.generations > 1)}"
        if e.budget is not None:
            many = f"{e.budget:,} steps, evaluation included, in at most {many}"
        if e.time_limit is not None:
            until = f"{_clock(e.time_limit)}{'' if e.budget is None else f' or {e.budget:,} steps'}"
            many = f"{until}, in generations"
        if early := ", ".join(f"stop.{name} = {x:g}" for name, x in as_given(e.stop).items() if x is not None):
            many = f"{early}, or {many}"
        self._say(
            styled(
                *((f"{e.population} × {e.agent_name} by {name}", "bold"), " on ", (e.env_name, "bold"), ", "),
                f"{many} of {plan_text.generation(plan)}, {where} → {run_dir}",
            )
        )
        if text := plan_text.whole_run(plan):
            self._say(text, "dim")
        if plan.steps and plan.steps != e.interval:
            self._say(f"interval {e.interval:,} is rounded up to {plan.steps:,}: whole rollouts", "dim")
        if method.tunes and not plan.space and e.population > 1:
            self._say("space is empty: all members have the same hyperparameters", "dim")
        if differing := ", ".join(f"config.{name}" for name in choices(e)):
            turns = "members of the same structure train in parallel, structures one after another"
            self._say(f"{len(structures(e))} structures (choices of {differing}): {turns}", "dim")
        if text := plan_text.rungs(plan) or plan_text.too_few_tuned(plan):
            self._say(text, "dim")
        if text := plan_text.normalised(plan):
            self._say(f"normalised {text}", "dim")
        if e.levels is not None:
            other = "train" if e.fitness.levels == "validation" else "validation"
            self._columns[other] = partial(_on_levels, other)
            self._say(
                f"fitness: on {e.fitness.levels} levels; {other}: that of the best member on {other} levels", "dim"
            )
        if plan.kind.sampled:
            self._say(
                f"mean: fitness of the mean policy; rank: its rank among the {e.population} sampled members; "
                "lowest, average, highest: fitness of these members",
                "dim",
            )
        if self._quiet:
            return
        if self._console.is_jupyter:
            self._live = Cell(self.view)
            self._renew = self._live.refresh
        elif self._console.redraws:
            # It draws in a thread of its own.
            self._live = Live(get_renderable=self.view, console=self._console, refresh_per_second=8)
        if self._live is not None:
            self._live.start()

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        self._compiles = generation == self._first and fraction == 0 and phase in ("train", "evaluate")
        if self._phase != (name := PHASES.get(phase, "final evaluation")):
            self._entered, self._phase = time.monotonic(), name  # in this order: another thread reads them
        # Training takes most of the time: the bar shows that alone.
        self._fraction = {"train": fraction, "champion": 0.0}.get(phase, 1.0)
        self._renew()

    def on_generation_end(self, event: Generation) -> None:
        self._compiling += event.timing["compile"]
        self._ended, self._fraction, self._done = time.monotonic(), 0.0, event.generation + 1
        progress = self._plan.progress(self._done, event.steps + event.evaluation_steps, event.timing["seconds"])
        self._total = max(self._done, math.ceil(self._done / progress - 1e-6))  # an estimate where they are not counted
        if DETERMINANT in event.metrics:
            self._columns = self._columns | {"determinant": _metric("members", DETERMINANT, 0)}
        row = (
            f"{self._done}/{self._total}",
            *(value(event.rows) for value in self._columns.values()),
            f"{event.timing['steps_per_second']:,.0f}",
        )
        self._rows = [*self._rows[-ROWS + 1 :], row]
        if self._live is None and not self._quiet:
            values = {**dict(zip(self._headings(), row, strict=True)), "left": _clock(self._left())}
            self._say("  ".join(f"{name} {value}" for name, value in values.items()))
        for what, members in _troubles(event).items():
            if len(members) and what not in self._noted:
                self._noted.add(what)
                self.on_message(f"generation {self._done}, {_named(members)}: {what}")
        of = event.metrics
        if event.generation == 0 and "returns/min" in of and of["returns/min"][0] == of["returns/max"][0]:
            self.on_message(ALIKE)

    def on_message(self, message: str) -> None:
        self._console.print(message, style="yellow", soft_wrap=True)

    def on_training_end(self, result: dict[str, Any] | None) -> None:
        if self._live is not None:
            self._phase = ""
            self._live.stop()

    def view(self) -> Group:
        table = plain_table()
        for name in self._headings():
            if name == "copies":
                table.add_column("child ← parent", ratio=1, overflow="ellipsis", no_wrap=True)
            else:
                table.add_column(name, justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        if not self._phase:
            return Group(table)
        done = min((self._done + self._fraction) / self._total, 1.0)
        line = Table.grid(padding=(0, 1))
        left = f", {_clock(self._left())} left" if self._first < self._done < self._total else ""
        phase = self._phase
        if self._compiles:
            phase = f"compiling {phase}, {time.monotonic() - self._entered:.0f} s"
        text = Text(f"{done:4.0%} {phase}{left}", style="dim")
        line.add_row(ProgressBar(total=1.0, completed=done, width=30), text)
        return Group(table, line)

    def _headings(self) -> tuple[str, ...]:
        return ("generation", *self._columns, "steps/s")

    def _left(self) -> float:
        """Estimated seconds to the end, from the generations of this process without compiling."""
        each = (self._ended - self._began - self._compiling) / (self._done - self._first)
        return max(each * (self._total - self._done) - (time.monotonic() - self._ended), 0.0)

    def _say(self, text: str | Text, style: str | None = None) -> None:
        if not self._quiet:
            self._console.print(text, style=style, soft_wrap=True)


class SignalsOutsideRun(Callback):
    """Passes signals to their previous handlers before a run starts, and ignores them after it. The run handles them
    in between."""

    def __init__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self._over = False

    def on_training_end(self, result: dict[str, Any] | None) -> None:
        self._over = True

    def handle(self, number: int) -> None:
        handler = self._before[signal.Signals(number)]
        if not self._over and callable(handler):
            handler(number, None)


def _troubles(event: Generation) -> dict[str, np.ndarray]:
    """Problems, and uids of the members that have them."""
    stats = event.stats
    broken = event.metrics.get("steps/broken", np.zeros(len(stats.uid)))
    return {
        "rewards or observations of the environment were not finite, or too large for float32, or no action was legal; "
        "such a step ends its episode, which has no return and is not trained on": stats.uid[broken > 0],
        "no fitness: weights or returns are not finite": stats.uid[np.isnan(stats.fitness) & (stats.episodes > 0)],
    }


def _named(members: np.ndarray) -> str:
    few = ", ".join(map(str, members[:5]))
    return f"member{'s' * (len(members) > 1)} {few}{' ...' * (len(members) > 5)}"


def _copies(rows: Rows) -> str:
    pairs = [f"{row['uid']}←{row['parent']}" for row in rows.lineage if row["uid"] != row["parent"]]
    return " ".join(pairs) or "none" if len(pairs) <= 8 else f"{' '.join(pairs[:7])} … {len(pairs)} in all"


def _metric(*path: str | int) -> Column:
    """A number of the generation, by its path in the row of metrics.jsonl."""
    return lambda rows: _figure(reduce(getitem, path, cast(Any, rows.metrics)))


def _hyper(name: str) -> Column:
    """A hyperparameter that all members share."""
    return lambda rows: _figure(rows.lineage[0]["hyper"][name])


def _on_levels(purpose: str, rows: Rows) -> str:
    """The return of the fittest member on the levels of a purpose."""
    best = max(rows.lineage, key=lambda row: -math.inf if row["fitness"] is None else row["fitness"])
    return _figure(best["levels"][purpose])


def _figure(value: float | None) -> str:
    return "nan" if value is None else text(value)


FITNESS = {kind: _metric("fitness", kind) for kind in ("best", "median", "worst")}
RETURNS = {"rank": "mean/rank", "lowest": "returns/min", "average": "returns/mean", "highest": "returns/max"}
SAMPLED = {"mean": FITNESS["best"]} | {title: _metric("members", name, 0) for title, name in RETURNS.items()}
DETERMINANT = "diversity/determinant"
ALIKE = (
    "all members of the first generation have the same return, so there is nothing to learn from; try a larger sigma or "
    "config.normalize_observations"
)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
