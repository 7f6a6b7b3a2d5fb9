"""The terminal's view of a study: a line per arm, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

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


def time_left(arms: Arms, outcomes: Mapping[RunKey, RunOutcome], is_left: Callable[[RunKey], bool]) -> str:
    """The time until the end of the study if this process does all the runs that are left."""
    known = {key: x for key, outcome in outcomes.items() if (x := outcome.row["seconds"]) == x}

    left = 0.0
    for keys in arms.values():
        took = [known[key] for key in keys if key in known] or [*known.values()] or [0.0]
        left += sum(took) / len(took) * sum(map(is_left, keys))
    return time.strftime("%H:%M:%S", time.gmtime(left)) if left < 86_400 else f"{left / 3600:.0f} hours"
