"""Plausible histories of population-based training, made by NumPy: for tests of whatever reads a run's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

SPACE: dict[str, dict[str, Any]] = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "scale": "log"},
    "discount": {"low": 0.9, "high": 0.999, "scale": "one_minus_log"},
    "entropy": {"low": 0.0, "high": 0.05},
    "epochs": {"low": 1, "high": 8, "integer": True},
    "minibatches": {"choices": [1, 2, 4, 8], "ordered": True},
}
FIXED = {"clip": 0.2, "trace": 0.95}


def write_run(
    path: Path,
    population: int = 8,
    generations: int = 20,
    *,
    seed: int = 0,
    copying: bool = True,
    finished: bool = True,
    env: str = "CartPole-v1",
    agent: str = "ppo",
    interval: int = 32768,
    diverged: float = 0.0,
) -> Path:
    """Write the files of a run: truncation selection and perturbation on a learner with a best learning rate.

    `diverged` is the chance that an evaluation is NaN (null in the file).
    """
    draw = np.random.default_rng(seed)
    path.mkdir(parents=True, exist_ok=True)
    hyper = {name: np.array([_draw(entry, draw) for _ in range(population)]) for name, entry in SPACE.items()}
    skill = draw.uniform(0.01, 0.05, population)
    uid = np.arange(population)
    lineage, metrics, elapsed = [], [], 0.0
    best: dict[str, Any] = {}
    for generation in range(generations):
        last = generation == generations - 1
        off = np.log10(hyper["learning_rate"]) - (-3.0 - 1.2 * generation / max(generations, 2))
        gain = 6.0 / (generations + 10) * np.exp(-(off**2)) * draw.uniform(0.3, 1.0, population)
        skill = skill + gain * (1 - skill)
        fitness = 500 * skill + draw.normal(0, 9, population)
        fitness[draw.random(population) < diverged] = np.nan
        rank = np.argsort(np.where(np.isnan(fitness), -np.inf, fitness))
        quarter = population // 4 if copying and not last else 0
        parents = uid.copy()
        if quarter:
            parents[rank[:quarter]] = draw.choice(rank[-quarter:], quarter)
        explored = parents != uid
        for member in uid:
            lineage.append(
                {
                    "generation": generation,
                    "uid": int(member),
                    "parent": int(parents[member]),
                    "explored": bool(explored[member]),
                    "fitness": _null(fitness[member]),
                    "returns_std": round(float(draw.uniform(2, 40)), 3),
                    "episodes": 8,
                    "steps": (generation + 1) * interval,
                    "hyper": {name: float(values[member]) for name, values in hyper.items()} | FIXED,
                }
            )
        seconds = {"train": draw.uniform(0.8, 1.1), "evaluate": draw.uniform(0.1, 0.2), "evolve": 0.01, "record": 0.02}
        elapsed += sum(seconds.values())
        best = {"uid": int(rank[-1]), "generation": generation, "fitness": _null(fitness[rank[-1]])}
        metrics.append(
            {
                "generation": generation,
                "steps": (generation + 1) * interval * population,
                "evaluation_steps": (generation + 1) * 4000 * population,
                "fitness": {"best": best["fitness"], "mean": _null(np.mean(fitness))},
                "champion": best,
                "copies": int(explored.sum()),
                "members": {"loss/policy": [float(v) for v in draw.normal(size=population)]},
                "timing": {"seconds": elapsed, "steps_per_second": interval * population / seconds["train"], **seconds},
            }
        )
        skill = skill[parents]
        for name, entry in SPACE.items():
            inherited = hyper[name][parents]
            hyper[name] = np.where(explored, [_perturb(v, entry, draw) for v in inherited], inherited)

    experiment = {
        "env": env,
        "agent": agent,
        "population": population,
        "generations": generations,
        "interval": interval,
        "seed": seed,
        "select": {"name": "truncation", "bottom": 0.25} if copying else {"name": "keep"},
        "explore": {"name": "perturb"},
        "hyper": FIXED,
        "space": SPACE,
    }
    (path / "experiment.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))
    _write_lines(path / "lineage.jsonl", lineage)
    _write_lines(path / "metrics.jsonl", metrics)
    if finished:
        selected = best["fitness"] or 0.0
        result = {
            "status": "done",
            "env": env,
            "agent": agent,
            "generations": generations,
            "population": population,
            "fitness": {str(line["uid"]): line["fitness"] for line in lineage[-population:]},
            "champion": {
                "uid": best["uid"],
                "generation": best["generation"],
                "selection_fitness": selected,
                "evaluation": {"mean": selected - 11.7, "standard_error": 1.24, "episodes": 100},
                "hyper": lineage[-population + best["uid"]]["hyper"],
            },
            "environment_steps": generations * interval * population,
            "evaluation_steps": generations * 4000 * population,
            "seconds": elapsed + 6.0,
            "compile_seconds": 5.2,
        }
        (path / "result.json").write_text(json.dumps(result))
    return path


def _draw(entry: dict[str, Any], draw: np.random.Generator) -> float:
    if "choices" in entry:
        return float(draw.choice(entry["choices"]))
    low, high = _scaled(entry["low"], entry), _scaled(entry["high"], entry)
    return _value(draw.uniform(low, high), entry)


def _perturb(value: float, entry: dict[str, Any], draw: np.random.Generator) -> float:
    if "choices" in entry:
        at = entry["choices"].index(value) + draw.choice([-1, 1])
        return float(entry["choices"][int(np.clip(at, 0, len(entry["choices"]) - 1))])
    low, high = _scaled(entry["low"], entry), _scaled(entry["high"], entry)
    step = max(1.0, 0.1 * (high - low)) if entry.get("integer") else 0.08 * (high - low)
    return _value(float(np.clip(_scaled(value, entry) + draw.choice([-step, step]), low, high)), entry)


def _scaled(value: float, entry: dict[str, Any]) -> float:
    scale = entry.get("scale")
    return np.log10(value) if scale == "log" else -np.log10(1 - value) if scale == "one_minus_log" else float(value)


def _value(scaled: float, entry: dict[str, Any]) -> float:
    scale = entry.get("scale")
    value = 10**scaled if scale == "log" else 1 - 10**-scaled if scale == "one_minus_log" else scaled
    return float(round(value) if entry.get("integer") else value)


def _null(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


def _write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
