"""The result of a run: what `train` returns, and the text of result.json."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.core.yaml_text import plain
from shoal.experiment.experiment import Experiment
from shoal.records.words import error_text, many, text
from shoal.run.champion import Champion, load_champion


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run."""

    run_dir: Path
    summary: dict[str, Any]
    """contents of result.json; its `status` is done, or stopped if a callback ended the run early"""
    experiment: Experiment
    """as it ran, with its defaults filled in, and objects as they were given"""
    leading: bool = True
    """True for the process that writes the records"""
    already: bool = False
    """True if the run had finished before"""

    def __repr__(self) -> str:
        tested = self.evaluation
        mean, error = tested.get("mean"), tested.get("standard_error")
        spread = "" if error is None else f" ± {error_text(error)} (standard error)"
        if mean is None:
            score = "no score"
        elif tested.get("exact"):  # nothing was played
            score = f"champion with exploitability {text(-mean)}"
        else:
            score = f"champion {text(mean)}{spread} over {many(tested['episodes'], 'episode')}"
        return f"<result of {self.run_dir}: {self.summary['status']}, {score}>"

    @property
    def evaluation(self) -> dict[str, Any]:
        """Final evaluation of the champion: `mean`, `standard_error` and `episodes`; empty if all members diverged."""
        return (self.summary.get("champion") or {}).get("evaluation", {})

    @cached_property
    def champion(self) -> Champion:
        """Champion of the run. Raises BadInput if no member had a finite fitness."""
        # Objects may have no name in the run's file, and so come from here; this process has run its code already.
        e = self.experiment
        return load_champion(self.run_dir, trust_code=True, agent=e.agent, method=e.method, config=e.config)


def as_json(summary: dict[str, Any]) -> str:
    """Return the text of result.json: a line for each field, and one for a list of numbers."""
    text = json.dumps(plain(summary), indent=1, allow_nan=False)
    return re.sub(r"\[\n[^][{}\"]+\]", lambda listed: re.sub(r"\s+", " ", listed[0]), text)
