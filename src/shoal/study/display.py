"""The terminal's view of a study: a table with a line per arm, and the time left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.table import Table

from shoal.records.screen import plain_table

if TYPE_CHECKING:
    from shoal.study.scheduler import Scheduler


def progress_table(study: Scheduler) -> Table:
    """Runs and mean score of each arm, and the run at work."""
    table = plain_table(title=progress_line(study), title_justify="left")
    for name in ("task", "arm", "runs", "mean of champions", "now"):
        table.add_column(name, justify="right" if name in ("runs", "mean of champions") else "left")
    for (task, arm), keys in study.arms.items():
        scores = [study.outcomes[key].score for key in keys if key in study.outcomes]
        mean = f"{sum(scores) / len(scores):.4g}" if scores else ""
        now = f"seed {study.running.seed}, {study.share:.0%}" if study.running in keys and study.running else ""
        table.add_row(task, arm, f"{len(scores)}/{len(keys)}", mean, now)
    return table


def progress_line(study: Scheduler) -> str:
    """Runs that are done, and the time left if this process does all the others."""
    seconds, over = 0.0, study.over
    known = {key: x for key, outcome in study.outcomes.items() if (x := outcome.row["seconds"]) == x}
    for keys in study.arms.values():
        durations = [known[key] for key in keys if key in known] or [*known.values()] or [0.0]
        seconds += sum(durations) / len(durations) * sum(key not in over and study.is_due(key) for key in keys)
    left = time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86_400 else f"{seconds / 3600:.0f} hours"
    most = "at most " if study.study.interim_analyses else ""
    return f"{len(study.outcomes)} of {most}{len(study.trials)} runs, {most}{left} left"
