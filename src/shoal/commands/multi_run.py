"""Commands that make or read several runs: the end of each, in words and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.commands.output import console, fail, scored
from shoal.core.errors import BadInput
from shoal.core.escape import in_shell
from shoal.core.interrupts import DONE, FAILED, INTERRUPTED, Failed, Interrupted, ending
from shoal.records.screen import Output, Screen, plain_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shoal.experiment.experiment import Experiment


def show_study(file: Path, workspace: Path | None, quiet: bool) -> int:
    """Make the runs of a study, and say what they come to. Returns the exit code."""
    from shoal.commands.bundled_experiments import find_experiment
    from shoal.study.compare import seeds_summary
    from shoal.study.cost import costs, summary, unlike
    from shoal.study.page import write_page
    from shoal.study.results import read_results
    from shoal.study.scheduler import run_study

    def work(screen: Screen) -> int:
        path, failed = run_study(find_experiment(file, study=True), workspace, screen, quiet)
        results = read_results(path)
        cost = costs(results)
        for line in filter(None, (*([] if quiet else [seeds_summary(results), *summary(cost)]), *unlike(cost))):
            screen.print(line, soft_wrap=True)
        screen.print(f"report: open {in_shell(write_page(path))}", soft_wrap=True)
        return FAILED if failed else DONE

    again = f"continue with: shoal study {in_shell(file)}{f' --workspace {in_shell(workspace)}' if workspace else ''}"
    return until_stopped(work, again)


def show_seeds(experiment: Experiment, seeds: Sequence[int], changed: Sequence[str], quiet: bool) -> int:
    """Make a run of each seed with a display and TensorBoard, and compare them. Returns the exit code.

    changed: fields that flags have set. Raises BadInput.
    """
    if "seed" in changed:
        raise BadInput("--seeds: the seed of each run is one of these; leave --seed out")
    import numpy as np

    from shoal.members.rollouts.episodes import statistics
    from shoal.records.console import Display
    from shoal.records.tensorboard import TensorBoard
    from shoal.report.lineage import number
    from shoal.report.run import read_run
    from shoal.study.seeds import train_seeds

    def work(screen: Screen) -> int:
        runs = train_seeds(experiment, seeds, lambda: [Display(screen, quiet), TensorBoard()])
        code = show_comparison(runs, runs[0].parent / "comparison.html", console())
        found = np.array([number(read_run(run).tested.get("mean")) for run in runs])
        over_seeds = statistics(found)
        known = over_seeds["episodes"]
        if known > 1:
            counted = f"{known}" if known == len(runs) else f"{known} of {len(runs)}"
            console().print(f"mean of {counted} seeds: {scored(over_seeds)}")
        if known == len(runs):
            return code
        diverged = ", ".join(str(seed) for seed, score in zip(seeds, found, strict=True) if not np.isfinite(score))
        return fail(f"there is no champion with seed {diverged}: all members diverged", FAILED)

    return until_stopped(work, "run the same command to continue")


def show_comparison(runs: Sequence[Path], out: Path, screen: Screen) -> int:
    """Write the page that compares runs, and print its table of champions. Returns the exit code."""
    from shoal.report.comparison import write_comparison

    heads, *rows = write_comparison(runs, out)
    table = plain_table(*heads)
    for row in rows:
        table.add_row(*row)
    screen.print(table)
    screen.print(f"open {in_shell(out)}", soft_wrap=True)
    return DONE


def until_stopped(work: Callable[[Screen], int], again: str) -> int:
    """Do work of several runs, and say how it goes on where a signal or a full disk ends it. Returns the exit code."""
    screen = Output()
    try:
        return work(screen)
    except (Interrupted, KeyboardInterrupt):
        ending(INTERRUPTED)
        screen.print(f"interrupted; {again}", soft_wrap=True)
        return INTERRUPTED
    except Failed as error:
        return fail(f"{error.reason}; once that is solved, {again}", FAILED)
