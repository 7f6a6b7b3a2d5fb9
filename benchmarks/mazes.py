"""What selection does to generalisation: experiments/mazes.yaml, with fitness on levels of validation and of training.

    python benchmarks/mazes.py --seeds 5 --out mazes --picture mazes.png

trains each arm with each seed, in mazes/ARM-SEED, and prints what the champions return on levels of every purpose. Runs
that are there are not repeated. What stands behind `--` goes to `shoal train`.

    validation  members copy those that do better on levels that nobody trains on
    train       members copy those that do better on the levels that they train on, and the champion is chosen so too
    keep        members never copy; the champion is the best of them on validation levels
"""

import argparse
import json
import subprocess
from pathlib import Path

import matplotlib
import numpy as np
from common import SHOAL, table
from scipy import stats

matplotlib.use("Agg")
from matplotlib import pyplot

FILE = Path(__file__).parents[1] / "experiments" / "mazes.yaml"
ARMS = {
    "validation": [],
    "train": ["--set", "fitness.levels=train"],
    "keep": ["--select", "keep", "--explore", "keep"],
}
COLORS = {"validation": "#0072b2", "train": "#d55e00", "keep": "#8a8f98"}
PURPOSES = ("train", "validation", "test")


def trained(arm: str, seed: int, options: argparse.Namespace) -> Path:
    """The directory of a run, made where it is not there."""
    run = options.out / f"{arm}-{seed}"
    if not (run / "result.json").exists():
        command = [*SHOAL, "train", str(FILE), "--quiet", "--seed", str(seed), "--run-dir", str(run), *ARMS[arm]]
        subprocess.run([*command, *options.more], check=True, stdout=subprocess.DEVNULL)
    return run


def champion(run: Path) -> list[float]:
    """What a champion returns on levels of each purpose, and the generation that it is of."""
    told = json.loads((run / "result.json").read_text())["champion"]
    return [*(told["levels"][name]["mean"] for name in PURPOSES), told["generation"]]


def interval(values: np.ndarray) -> str:
    """Mean and 95% interval (Student's t) over seeds."""
    if len(values) < 2:
        return f"{values.mean():.3f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.3f} ± {half:.3f}"


def curves(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """[G] steps of a member, and [2, G] the middle of the population on levels of train and validation."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    members = len(rows[0]["members"]["levels/train"])
    steps = np.array([row["steps"] for row in rows]) / members
    return steps, np.array([[np.median(row["members"][f"levels/{name}"]) for row in rows] for name in PURPOSES[:2]])


def draw(runs: dict[str, list[Path]], file: Path) -> None:
    """Left: the middle of the population, mean over seeds. Right: champions, one dot per seed and purpose."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for place, (arm, paths) in enumerate(runs.items()):
        every = [curves(path) for path in paths]
        for values, style in zip(np.mean([both for _, both in every], 0), ("-", "--"), strict=True):
            left.plot(every[0][0] / 1000, values, style, color=COLORS[arm])
        for x, values in enumerate(np.array([champion(path)[:3] for path in paths]).T):
            right.plot(np.full(len(values), x + 0.2 * (place - 1)), values, "o", color=COLORS[arm], alpha=0.6, mew=0)
            right.plot([x + 0.2 * (place - 1) + d for d in (-0.08, 0.08)], [values.mean()] * 2, color=COLORS[arm], lw=3)
    left.plot([], [], "-", color="k", label="mazes to train on")
    left.plot([], [], "--", color="k", label="new mazes")
    for arm in runs:
        left.plot([], [], "s", color=COLORS[arm], label=arm)
    left.set(xlabel="thousand steps of a member", ylabel="solved", title="middle of the population", ylim=0)
    right.set(xticks=range(3), xticklabels=PURPOSES, ylabel="solved", title="champions", ylim=0)
    left.legend(frameon=False, fontsize=8, ncols=2)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)


def compare(options: argparse.Namespace) -> None:
    runs: dict[str, list[Path]] = {arm: [] for arm in options.arms}
    for seed in range(options.seeds):  # seed by seed, so that what is there is whole when it is stopped
        for arm in options.arms:
            runs[arm].append(trained(arm, seed, options))
    found = {arm: np.array([champion(run) for run in paths]) for arm, paths in runs.items()}
    rows = []
    for arm, values in found.items():
        told = [interval(x) for x in values[:, :3].T] + [interval(values[:, 0] - values[:, 2])]
        rows.append([arm, *told, f"{np.median(values[:, 3]):.0f}"])
    columns = ["fitness", *(f"{name}: solved" for name in PURPOSES), "train − test", "champion of generation"]
    table(f"champions, mean ± 95% interval over {options.seeds} seeds", columns, rows)
    if {"train", "validation"} <= found.keys():
        print("test, validation − train, by seeds:", interval(found["validation"][:, 2] - found["train"][:, 2]))
    if {"keep", "validation"} <= found.keys():
        print("test, validation − keep, by seeds:", interval(found["validation"][:, 2] - found["keep"][:, 2]))
    if options.picture:
        draw(runs, options.picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("mazes"), help="where the runs lie")
    parser.add_argument("--picture", type=Path, help="where to draw them")
    parser.add_argument("more", nargs="*", help="behind --: flags of shoal train")
    compare(parser.parse_args())
