"""`shoal doctor`: every check, then a dry run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table

from shoal.commands.doctor import checks, dry_run, evolution
from shoal.commands.doctor.checks import Diagnostic
from shoal.core.backend import on_jax
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_plan
from shoal.members.devices import prepare
from shoal.records.screen import plain_table, styled
from shoal.records.words import duration, many
from shoal.run.auto_population import measure, permitted

if TYPE_CHECKING:
    from shoal.records.screen import Screen

CHECKS = (
    *(
        checks.size,
        checks.warm_start,
        checks.run_dir,
        checks.devices,
        checks.observations,
        checks.normalisation,
    ),
    *(checks.storage, checks.processes, evolution.selection, checks.rungs, checks.one_agent),
    *(evolution.hyperparameters, evolution.environment_parameters),
)
COLORS = {"✓": "green", "!": "yellow", "✗": "bold red"}


@on_jax()
def examine(experiment: Experiment, arguments: Sequence[str], console: Screen, members: bool = False) -> bool:
    """Print the diagnostics of an experiment. Returns True if it can be run. Raises BadInput if it is invalid.

    arguments: those of `shoal train` that run it. members: measure how many take the time of one
    """
    prepare()
    found: list[Diagnostic] = []

    def show(diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            mark, topic, text = diagnostic
            row = Table.grid(padding=(0, 1))
            row.add_column(width=1)
            row.add_column(width=20)
            row.add_row(styled((mark, COLORS[mark])), styled((topic, "bold")), text)
            console.print(row)
            found.append(diagnostic)

    def time_members() -> int:
        with console.status("timing generations of 1, 2, 4, ... members"):
            free = measure(experiment)
        show(checks.members(experiment, free))
        table = plain_table("members", "a generation", "times one member")
        for n, seconds in free.seconds.items():
            table.add_row(f"{n:,}", duration(seconds), f"{free.times(n):.2f}")
        console.print(table)
        return permitted(experiment, free) if experiment.auto else free.members

    if experiment.auto:
        members, experiment = False, replace(experiment, population=time_members())
    plan = make_plan(experiment)
    for check in CHECKS:
        show(check(plan))
    plan.kind.close()
    if not any(x.mark == "✗" and x.topic == "memory" for x in found):  # what does not fit is not run
        if plan.kind.compiled is None:
            with console.status("testing the trainer"):
                show(dry_run.trainer(plan, {*plan.space, *experiment.hyper}))
        with console.status("a dry run of two short generations"):
            show(list(dry_run.dry_run(plan)))
    if members and not any(x.mark == "✗" for x in found):
        time_members()
    errors, warnings = (sum(x.mark == mark for x in found) for mark in "✗!")
    verdict = many(errors, "error") if errors else f"ready to run: shoal train {shlex.join(arguments)}"
    console.print("; ".join([verdict, *([many(warnings, "warning")] if warnings else [])]), soft_wrap=True)
    return not errors
