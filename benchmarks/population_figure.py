"""Scores against the number of members at equal time, from the CSV of `experiments/studies/population.yaml` and of
`benchmarks/studies/population-128.yaml`: a picture with a panel for each task and one for all together, and the first tables
of docs/results/population.md.

    python benchmarks/population_figure.py docs/images/population.svg
"""

import argparse
import re
from pathlib import Path

import matplotlib
import numpy as np
import tables
from figures import returns, scores
from matplotlib import pyplot as plt

from shoal.report.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from shoal.study import statistics

ONE = "one agent"
COLOURS = {
    "pbt": VERMILION,
    "pbt half": ORANGE,
    "random search": BLUE,
    "defaults": "#808080",
    "mf_pbt": GREEN,
    "pb2": PURPLE,
    ONE: SKY,
}
BASELINES = ("random search", "defaults")
ACROSS, SIZE = 4, (3.0, 2.5)  # panels side by side, inches of each


def arm_of(name: str) -> tuple[str, int]:
    """The method and the number of members of an arm such as `pbt half 32`."""
    found = re.fullmatch(r"(.+) (\d+)", name)
    return (found[1], int(found[2])) if found else (name, 1)


def sizes_of(arms: dict[str, np.ndarray]) -> dict[str, list[int]]:
    """The numbers of members of each method."""
    found: dict[str, list[int]] = {}
    for method, members in map(arm_of, arms):
        found.setdefault(method, []).append(members)
    return {method: sorted(members) for method, members in found.items()}


def draw(axes: plt.Axes, title: str, arms: dict[str, np.ndarray]) -> None:
    """A line for each method: the interquartile mean of scores [S, K] with its interval, against the members."""
    middle, low, high = statistics.middle(arms[ONE])
    axes.axhline(middle, color=COLOURS[ONE], linestyle="--")
    axes.axhspan(low, high, color=COLOURS[ONE], alpha=0.15, linewidth=0)
    for i, (method, members) in enumerate(sizes_of(arms).items()):
        if method == ONE:
            continue
        found = np.array([statistics.middle(arms[f"{method} {n}"]) for n in members])
        middles, ends = found[:, 0], found[:, 1:]
        apart = np.array(members) * 1.04 ** (i - 3)  # so that intervals do not lie on one another
        bars = [np.maximum(middles - ends[:, 0], 0), np.maximum(ends[:, 1] - middles, 0)]
        axes.errorbar(apart, middles, bars, marker="o", markersize=4, color=COLOURS[method], capsize=2, linewidth=1.5)
    axes.set_title(title, fontsize=10)
    axes.set_xscale("log", base=2)
    members = sorted({n for of in sizes_of(arms).values() for n in of} - {1})
    axes.set_xticks(members, [str(n) for n in members])
    axes.set_xlim(members[0] / 1.5, members[-1] * 1.5)
    axes.tick_params(labelsize=8)


def figure(path: Path, scaled: dict[str, np.ndarray], found: dict[str, dict[str, np.ndarray]]) -> None:
    tasks = list(found[ONE])
    rows = -(-(len(tasks) + 1) // ACROSS)
    _, panels = plt.subplots(rows, ACROSS, figsize=(ACROSS * SIZE[0], rows * SIZE[1]), layout="constrained")
    draw(panels.flat[0], "all tasks, scaled", scaled)
    for axes, task in zip(panels.flat[1:], tasks, strict=False):
        draw(axes, task, {arm: of[task][:, None] for arm, of in found.items()})
    for axes in panels.flat[len(tasks) + 1 :]:
        axes.set_axis_off()
    for axes in panels[-1]:
        axes.set_xlabel("members", fontsize=9)
    names = list(sizes_of(scaled))
    marks = [plt.Line2D([], [], color=COLOURS[name], linestyle="--" if name == ONE else "-") for name in names]
    panels.flat[0].figure.legend(marks, names, loc="outside lower center", ncols=len(names), fontsize=9)
    plt.savefig(path, metadata={"Date": None})


def against(scaled: dict[str, np.ndarray]) -> list[tuple[str, str]]:
    """The pairs of arms that the page shows: all against one agent, those of as many members against random search and
    agents with default hyperparameters, and more members against fewer of the same method."""
    arms = [arm for arm in scaled if arm != ONE]
    pairs = [(arm, ONE) for arm in arms]
    for arm in arms:
        method, members = arm_of(arm)
        pairs += [(arm, f"{baseline} {members}") for baseline in BASELINES if method not in BASELINES]
        pairs += [(arm, f"{method} {n}") for n in sizes_of(scaled)[method] if n < members]
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    path = parser.parse_args().picture
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = path.name
    scaled, found = scores("population"), returns("population")
    figure(path, scaled | scores("population-128"), found | returns("population-128"))
    tables.arms(scaled)
    tables.pairs(scaled, against(scaled))
    tables.means(found)


if __name__ == "__main__":
    main()
