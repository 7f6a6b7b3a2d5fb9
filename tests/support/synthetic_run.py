"""Plausible histories of all methods, made by NumPy: for tests of whatever reads a run's files."""

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
    "num_minibatches": {"choices": [1, 2, 4, 8], "ordered": True},
}
FIXED = {"clip": 0.2, "trace": 0.95}
# What method.json says of a method: title, sampled, copies, tunes, explanation.
ABOUT = {
    "pbt": ("population-based training", False, True, True, "Weak members then copied stronger ones."),
    "independent": ("independent members", False, False, True, "This is the control: each member learned for itself."),
    "dvd": ("DvD", False, False, False, "All were rewarded for behaving differently from one another."),
    "es": ("evolution strategies", True, False, False, "The mean then took a step towards those that did well."),
    "cem_rl": (
        "CEM-RL",
        True,
        False,
        False,
        "Some of them learned before by gradient steps; the best made the next mean.",
    ),
}


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
                "fitness": {
                    "best": best["fitness"],
                    "median": _null(np.median(fitness)),
                    "mean": _null(np.mean(fitness)),
                },
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
        "method": {"name": "pbt", "select": "truncation" if copying else "none", "explore": "perturb"},
        "hyper": FIXED,
        "space": SPACE,
    }
    (path / "experiment.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))
    write_about(path, "pbt")
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
                "returns": [*(selected - 11.7 + draw.normal(0, 12.4, 99)).round(2).tolist(), None],
                "hyper": lineage[-population + best["uid"]]["hyper"],
            },
            "environment_steps": generations * interval * population,
            "evaluation_steps": generations * 4000 * population,
            "seconds": elapsed + 6.0,
            "compile_seconds": 5.2,
        }
        (path / "result.json").write_text(json.dumps(result))
    return path


def write_independent(path: Path, population: int = 4, generations: int = 8, **more: Any) -> Path:
    """A run of the control: nobody copies, nothing is tuned but at the start."""
    run = write_run(path, population, generations, copying=False, **more)
    _say(run, {"method": "independent"})
    return run


def write_dvd(
    path: Path,
    population: int = 5,
    generations: int = 12,
    *,
    missing: float = 0.0,
    arms: tuple[float, ...] = (0.0, 0.5),
) -> Path:
    """A run of members that are rewarded for differing. `missing` is the chance that a generation made no update."""
    run, draw = write_run(path, population, generations, copying=False, agent="td3"), np.random.default_rng(1)
    _say(run, {"method": {"name": "dvd", "arms": list(arms)}, "space": {}})
    lineage, metrics = (_read_lines(run / name) for name in ("lineage.jsonl", "metrics.jsonl"))
    for row, entry in enumerate(metrics):
        places = draw.normal(0, 0.2 + row / generations, (population, 3))
        distance = np.sqrt(np.square(places[:, None] - places).mean(-1))
        volume = np.linalg.slogdet(np.exp(-np.square(distance) / 2) * (1 - 1e-4) + 1e-4 * np.eye(population))[1]
        told = {f"diversity/to {at}": distance[:, at] for at in range(population)} | {
            "diversity/determinant": np.full(population, np.exp(volume)),
            "diversity/log_determinant": np.full(population, volume),
            "diversity/distance": distance.sum(-1) / max(population - 1, 1),
        }
        gap = draw.random() < missing
        entry["members"] = {name: [None if gap else float(v) for v in values] for name, values in told.items()}
        weight = float(draw.choice(arms))
        for line in lineage[row * population : (row + 1) * population]:
            line["hyper"] = FIXED | {"diversity": weight}
    _write_lines(run / "lineage.jsonl", lineage)
    _write_lines(run / "metrics.jsonl", metrics)
    return run


def write_sampled(
    path: Path,
    method: str = "es",
    population: int = 32,
    generations: int = 20,
    *,
    finished: bool = True,
    diverged: float = 0.0,
    decay: float = 1.0,
) -> Path:
    """A run of members that are sampled around a mean, by es or cem_rl.

    `diverged` is the chance that a generation measured nothing; `decay` is the factor of hyper.sigma.
    """
    draw = np.random.default_rng(0)
    path.mkdir(parents=True, exist_ok=True)
    lineage: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    steps, elapsed, best = 0, 0.0, {"uid": 0, "generation": 0, "fitness": -np.inf}
    for generation in range(generations):
        centre = 400 * (1 - np.exp(-3 * generation / generations))
        returns = centre + draw.normal(-20, 30 + centre / 10, population)
        fitness = centre + draw.normal(0, 15)
        if draw.random() < diverged:
            returns, fitness = np.full(population, np.nan), np.nan
        kinds = {"mean": np.mean, "variance": np.var, "max": np.max, "min": np.min}
        told = {f"returns/{name}": kind(returns) for name, kind in kinds.items()}
        told["mean/rank"] = np.nan if np.isnan(fitness) else 1 + (returns > fitness).sum()
        told["step/norm"] = draw.uniform(0.2, 0.5)
        if method == "es":
            told["gradient/norm"] = draw.uniform(50, 90)
        else:
            told["loss/critic"] = np.nan if generation < 2 else draw.uniform(0.1, 2)
            told["elites/trained"] = draw.uniform(0, 1)
            told["distribution/std"] = 0.02 + 0.05 * np.exp(-generation / generations)
            told["distribution/noise"] = 1e-3 * 0.95**generation + 1e-5
        if fitness > best["fitness"]:
            best = {"uid": 0, "generation": generation, "fitness": round(float(fitness), 4)}
        steps += int(population * draw.integers(100, 500))
        hyper = {"sigma": 0.05 * decay**generation, "learning_rate": 0.02}
        row = {"generation": generation, "uid": 0, "parent": 0, "parent_generation": generation, "explored": False}
        measured = {"fitness": _null(fitness), "returns_std": None, "episodes": 1, "steps": steps}
        lineage.append(row | measured | {"hyper": hyper})
        seconds = {"train": 0.1, "evaluate": draw.uniform(0.1, 0.2), "evolve": 0.01, "record": 0.001}
        elapsed += sum(seconds.values())
        metrics.append(
            {
                "generation": generation,
                "steps": steps,
                "evaluation_steps": 200 * (generation + 1),
                "fitness": dict.fromkeys(("best", "median", "worst", "mean"), _null(fitness)),
                "champion": best | {"fitness": best["fitness"] if np.isfinite(best["fitness"]) else None},
                "copies": 0,
                "members": {name: [_null(value)] for name, value in told.items()},
                "timing": {"seconds": elapsed, "steps_per_second": 1e5, **seconds},
            }
        )
    agent = "policy" if method == "es" else "td3"
    known = {"env": "CartPole-v1", "method": method, "agent": agent, "population": population}
    known["generations"] = generations
    experiment = known | {"interval": 8192, "hyper": {"sigma": 0.05, "learning_rate": 0.02}, "space": {}}
    (path / "experiment.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))
    write_about(path, method)
    _write_lines(path / "lineage.jsonl", lineage)
    _write_lines(path / "metrics.jsonl", metrics)
    if finished:
        selected = metrics[-1]["champion"]["fitness"]
        champion = {
            "uid": 0,
            "generation": best["generation"],
            "selection_fitness": selected,
            "evaluation": {"mean": (selected or 0.0) - 5, "standard_error": 1.24, "episodes": 100},
            "hyper": lineage[-1]["hyper"],
        }
        totals = {"environment_steps": steps, "evaluation_steps": 200 * generations, "seconds": elapsed}
        result = known | {"status": "done", "champion": champion, "compile_seconds": 0.0} | totals
        (path / "result.json").write_text(json.dumps(result))
    return path


def write_about(run: Path, method: str, **changes: Any) -> None:
    """What the run says of its method, with some of it changed."""
    title, *traits, explanation = ABOUT[method]
    told = dict(zip(("sampled", "copies", "tunes"), traits, strict=True)) | {"shares_evaluation": method == "es"}
    (run / "method.json").write_text(
        json.dumps({"name": method, "title": title, "traits": told, "explanation": explanation} | changes)
    )


def _say(run: Path, more: dict[str, Any]) -> None:
    """Change what the experiment says, and what is said of its method with it."""
    experiment = yaml.safe_load((run / "experiment.yaml").read_text()) | more
    (run / "experiment.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))
    method = more["method"]["name"] if isinstance(more["method"], dict) else more["method"]
    write_about(run, method)
    if (run / "result.json").exists():
        result = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps(result | {"method": method}))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
