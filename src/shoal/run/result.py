"""How a run ended: what `train` returns and result.json says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.core.population import ChampionSoFar, PopulationStats
from shoal.experiment.plan import Plan
from shoal.records.callback import about_method
from shoal.records.generation import finite_or_none
from shoal.run.champion import Champion, load_champion


@dataclass(frozen=True, repr=False)
class Result:
    """How a run ended. `summary` is what result.json says."""

    run_dir: Path
    summary: dict[str, Any]
    """its `status` is done, or stopped where a callback has ended the run before its last generation"""
    leading: bool = True
    """whether this is the process that writes the records"""
    already: bool = False
    """whether the run had come to its end before, so that nothing was left to do"""

    def __repr__(self) -> str:
        tested = (self.summary.get("champion") or {}).get("evaluation", {})
        mean, error = tested.get("mean"), tested.get("standard_error")
        spread = "" if error is None else f" ± {error:.4g}"
        score = "no score" if mean is None else f"champion {mean:.4g}{spread} over {tested['episodes']} episodes"
        return f"<result of {self.run_dir}: {self.summary['status']}, {score}>"

    @property
    def champion(self) -> Champion:
        return load_champion(self.run_dir, trust_code=True)  # this process has run it already

    @property
    def lineage(self) -> Path:
        return self.run_dir / "lineage.jsonl"


def summarise(
    plan: Plan,
    stats: PopulationStats,
    champion: ChampionSoFar,
    done: int,
    tested: dict[str, Any],
    steps: int,
    evaluation_steps: int,
    seconds: float,
    compile_seconds: float,
) -> dict[str, Any]:
    """Everything that result.json holds.

    done: generations so far. tested: what the champion's fresh episodes say of it; empty where there is none.
    """
    experiment, method = plan.experiment, about_method(plan)
    told = {
        "uid": champion.uid,
        "generation": champion.generation,
        "selection_fitness": champion.fitness,
        **tested,
        "hyper": champion.hyper,
    }
    return {
        "status": "done" if plan.progress(done, steps + evaluation_steps) >= 1 else "stopped",
        "env": experiment.env_name,
        "method": method["name"],
        "traits": method["traits"],
        "agent": experiment.agent_name,
        "population": experiment.population,
        "generations": done,
        "seed": experiment.seed,
        "fitness": {str(u): finite_or_none(f) for u, f in zip(stats.uid, stats.fitness, strict=True)},
        "champion": told if tested else None,
        "environment_steps": steps,
        "evaluation_steps": evaluation_steps,
        "seconds": seconds,
        "compile_seconds": compile_seconds,
    }
