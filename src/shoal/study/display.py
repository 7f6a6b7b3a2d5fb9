"""The terminal's view of a study: a line per arm, and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.table import Table

from shoal.records.screen import plain_table
from shoal.records.words import text
from shoal.study.results import RunOutcome
from shoal.study.study_file import RunKey

Arms = Mapping[tuple[str, str], Sequence[RunKey]]  # by task and arm


def progress_table(title: str, arms: Arms, outcomes: Mapping[RunKey, RunOutcome], now: Mapping[RunKey, float]) -> Table:
    """Runs and mean score of each arm, and the share of the runs at work that is done."""
    table = plain_table(title=title, title_justify="left")
    for name in ("task", "arm", "runs", "mean of champions", "now"):
        table.add_column(name, justify="right" if name in ("runs", "mean of champions") else "left")
    for (task, arm), keys in arms.items():
        done = [outcomes[key].score for key in keys if key in outcomes]
        scores = [score for score in done if score == score]  # others have no champion
        mean = text(sum(scores) / len(scores)) if scores else ""
        running = ", ".join(f"seed {key.seed}, {share:.0%}" for key, share in now.items() if key in keys)
        table.add_row(task, arm, f"{len(done)}/{len(keys)}", mean, running)
    return table


def time_left(
    arms: Arms,
    steps: Mapping[tuple[str, str], float],
    outcomes: Mapping[RunKey, RunOutcome],
    due: Mapping[RunKey, float],
) -> str:
    """The time until the end of the study if this process does all the runs that are left.

    An arm of which no run is done takes as long per environment step as other arms on its task, or as those on all.

    steps: of a run, by task and arm; NaN where they are not known. due: the share that is left of each run that is due.
    """
    took = {key: x for key, outcome in outcomes.items() if (x := outcome.row["seconds"]) == x}
    left = 0.0
    for (task, arm), keys in arms.items():
        own = [took[key] for key in keys if key in took]
        others = {key: x for key, x in took.items() if key.task == task} or took
        if own:
            seconds = sum(own) / len(own)
        elif others:
            scale = steps[task, arm] / sum(steps[key.task, key.arm] for key in others)
            seconds = sum(others.values()) * (scale if scale == scale else 1 / len(others))
        else:
            seconds = 0.0
        left += seconds * sum(due.get(key, 0.0) for key in keys)
    return time.strftime("%H:%M:%S", time.gmtime(left)) if left < 86_400 else f"{left / 3600:.0f} hours"
