"""The figures of docs/results as SVG, from the CSV files there: the runs of each study, the default method against each
baseline, and the map of tasks. The same files always give the same bytes.

    python benchmarks/figures.py docs/images/results
"""

import argparse
import csv
import itertools
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from shoal.study import statistics

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
INK, GREY, LIGHT, BLUE, ORANGE = "#1f2937", "#6b7280", "#d1d5db", "#2b7a9b", "#d97706"
ROW, PANEL, NAMES, GAP, ACROSS = 20, 230, 200, 24, 2  # pixels, but for the panels side by side

TEN = ("default", "default-lunarlander", "default-halfcheetah")
WITH_OPTIMISERS = ("default-others", *TEN[1:])
FOURTEEN = (*TEN, "fresh", "default-asterix", "default-freeway")
MAP = ("successive halving", "one agent", "random search", "eight defaults")


KEY = {
    True: "blue: a run; orange: the interquartile mean; black: its 95 % interval",
    False: "blue: a run; orange: the mean (all tasks: the interquartile mean); black: its 95 % interval",
}


class Baseline(NamedTuple):
    """One row of the forest plot: an arm of some studies against another."""

    label: str
    studies: Sequence[str]
    theirs: str
    ours: str = "successive halving"


BASELINES = (
    Baseline("eight agents with default hyperparameters", FOURTEEN, "eight defaults"),
    Baseline("random search", FOURTEEN, "random search"),
    Baseline("SMAC", WITH_OPTIMISERS, "smac"),
    Baseline("successive halving as published", WITH_OPTIMISERS, "published halving"),
    Baseline("one agent with all the steps", FOURTEEN, "one agent"),
    Baseline("one agent with all the steps: DQN, TD3, SAC", ("off-policy",), "one agent"),
    Baseline("one agent, at equal time", ("equal-time",), "one agent", "half defaults"),
)


class Comparison(NamedTuple):
    """One arm against another: the probability of improvement, the ends of its interval, and p, both corrected."""

    ahead: float
    low: float
    high: float
    p: float

    def cells(self) -> str:
        """As the tables of docs/results have it."""
        digits = f"{self.p:.0e}".replace("e-0", "e-") if self.p < 1e-4 else f"{self.p:.{2 - (self.p < 1e-3)}g}"
        return f"{100 * self.ahead:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f} %) | {digits}"


def returns(study: str) -> dict[str, dict[str, np.ndarray]]:
    """Scores of every run as they are in the CSV: by arm, by task."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / f"{study}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["arm"]][row["task"]].append(float(row["score"]))
    return {arm: {task: np.array(values) for task, values in tasks.items()} for arm, tasks in found.items()}


def scores(study: str) -> dict[str, np.ndarray]:
    """[S, K] Of every arm, in the scale that the study's file gives to each task."""
    (file,) = ROOT.glob(f"*/studies/{study}.yaml")
    tasks = yaml.safe_load(file.read_text()).get("tasks", {"": {}})
    scaled = {}
    for arm, of in returns(study).items():
        ends = [tasks[task].get("scale", (0.0, 1.0)) for task in of]
        scaled[arm] = np.array([(of[task] - low) / (high - low) for task, (low, high) in zip(of, ends, strict=True)]).T
    return scaled


def together(studies: Sequence[str]) -> dict[str, np.ndarray]:
    """[S, K] The scores of the arms that all of these studies have, on the tasks of all: of each arm the first seeds, as
    many as it has in every study.
    """
    found = [scores(study) for study in studies]
    arms = [arm for arm in found[0] if all(arm in of for of in found)]
    seeds = {arm: min(len(of[arm]) for of in found) for arm in arms}
    return {arm: np.concatenate([of[arm][: seeds[arm]] for of in found], axis=1) for arm in arms}


def comparisons(arms: dict[str, np.ndarray]) -> dict[tuple[str, str], Comparison]:
    """Every arm against every other, corrected for the number of pairs as on the page of a study."""
    pairs = list(itertools.combinations(arms, 2))
    p = statistics.holm(np.array([statistics.p_value(arms[one], arms[other]) for one, other in pairs]))
    made = {}
    for pair, corrected in zip(pairs, p, strict=True):
        for one, other in (pair, pair[::-1]):
            ends = statistics.improvement_interval(arms[one], arms[other], 1 - 0.05 / len(pairs))
            ahead = statistics.improvement(arms[one], arms[other])
            made[one, other] = Comparison(float(ahead), float(ends[0]), float(ends[1]), float(corrected))
    return made


def against(baseline: Baseline) -> tuple[int, Comparison]:
    """The number of tasks, and how the default does against the baseline."""
    arms = together(baseline.studies)
    return arms[baseline.ours].shape[1], comparisons(arms)[baseline.ours, baseline.theirs]


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{more}>{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, colour: str = LIGHT, width: float = 1) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def dots(places: Sequence[float], y: float, size: float, colour: str, opacity: float = 1) -> str:
    """Strokes of no length with round ends, which take the fewest bytes."""
    data = "".join(f"M{x:.1f} {y:.1f}h0" for x in places)
    looks = f'stroke="{colour}" stroke-width="{size}" stroke-linecap="round" stroke-opacity="{opacity}"'
    return f'<path d="{data}" {looks}/>'


def page(width: float, height: float, marks: Sequence[str]) -> str:
    """A drawing on white, so that it is read on a dark page too."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    looks = 'font-family="DejaVu Sans, Verdana, Arial, sans-serif" font-size="12"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {looks}>', ground, *marks, "</svg>\n"])


class Row(NamedTuple):
    """One arm in a panel: its runs, its mean, and the ends of the mean's interval."""

    runs: np.ndarray
    mean: float
    ends: tuple[float, ...] = ()

    @classmethod
    def of_middle(cls, scores: np.ndarray, runs: bool) -> "Row":
        """The interquartile mean with its interval, and the runs where they are shown."""
        mean, *ends = (float(value) for value in statistics.middle(scores))
        return cls(scores.ravel() if runs else np.empty(0), mean, tuple(ends))


def panel(x: float, y: float, wide: float, title: str, rows: Sequence[Row]) -> list[str]:
    """The arms on one task, or on all of them."""
    every = np.concatenate([[*row.runs, row.mean, *row.ends] for row in rows])
    low, high = float(every.min()), float(every.max())

    def place(value: float) -> float:
        return x + 5 + (wide - 10) * ((value - low) / (high - low) if high > low else 0.5)

    bottom = y + ROW * len(rows)
    marks = [text(x, y - 8, title, more=' font-weight="bold"'), line(x, bottom, x + wide, bottom, GREY)]
    marks += [text(x, bottom + 15, number(low), colour=GREY), text(x + wide, bottom + 15, number(high), "end", GREY)]
    for i, row in enumerate(rows):
        middle = y + ROW * (i + 0.5)
        marks.append(line(x, middle, x + wide, middle))
        if len(row.runs):
            marks.append(dots([place(value) for value in row.runs], middle, 6, BLUE, 0.5))
        if row.ends:
            marks.append(line(place(row.ends[0]), middle, place(row.ends[1]), middle, INK, 2))
        marks.append(line(place(row.mean), middle - 6, place(row.mean), middle + 6, ORANGE, 3))
    return marks


def number(value: float) -> str:
    """At most four digits, and 0 where there is hardly anything."""
    return "0" if abs(value) < 1e-4 else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def study_figure(study: str) -> str:
    """Runs of each arm on each task in its own units; on all tasks together the interquartile mean in the study's scale."""
    scaled, found = scores(study), returns(study)
    arms = sorted(scaled, key=lambda arm: -statistics.interquartile_mean(scaled[arm]))
    tasks = list(found[arms[0]])
    single = len(tasks) == 1
    title = "every run" if single else "all tasks, scaled"
    panels = [(title, [Row.of_middle(scaled[arm], runs=single) for arm in arms])]
    if not single:
        panels += [(task, [Row(found[arm][task], float(found[arm][task].mean())) for arm in arms]) for task in tasks]
    height, marks = ROW * len(arms) + 60, []
    for i, (title, rows) in enumerate(panels):
        down, across = divmod(i, ACROSS)
        top = height * down + 30
        if not across:
            marks += [text(NAMES - 10, top + ROW * (row + 0.5) + 4, arm, "end") for row, arm in enumerate(arms)]
        marks += panel(NAMES + (PANEL + GAP) * across, top, 2 * PANEL if single else PANEL, title, rows)
    bottom = height * (1 + (len(panels) - 1) // ACROSS)
    marks.append(text(10, bottom + 6, KEY[single], colour=GREY))
    return page(NAMES + (PANEL + GAP) * ACROSS, bottom + 20, marks)


def forest() -> str:
    """The probability that a run of the default method scores higher than one of each baseline, with its interval."""
    left, plot, top, high = 14, 440, 34, 44
    bottom = top + high * len(BASELINES)
    marks = [text(left, 20, "default behind", colour=GREY), text(left + plot, 20, "default ahead", "end", GREY)]
    grid = {share: left + plot * share / 100 for share in range(0, 101, 25)}
    marks += [text(x, bottom + 16, f"{share} %", "middle", GREY) for share, x in grid.items()]
    for row, baseline in enumerate(BASELINES):
        tasks, found = against(baseline)
        y = top + high * row + 30
        # Beside the interval alone, not through the label above it.
        marks += [line(x, y - 9, x, y + 11, GREY if share == 50 else LIGHT) for share, x in grid.items()]
        colour = GREY if found.p >= 0.05 else BLUE if found.ahead > 0.5 else ORANGE
        marks.append(text(left, y - 14, f"{baseline.label} ({tasks} tasks)"))
        marks.append(line(left + plot * found.low, y, left + plot * found.high, y, colour, 3))
        marks.append(dots([left + plot * found.ahead], y, 12, colour))
        marks.append(text(left + plot + 16, y + 4, f"{100 * found.ahead:.0f} %", more=' font-weight="bold"'))
    return page(left + plot + 64, bottom + 30, marks)


def map_of_tasks() -> str:
    """Mean scores on all fourteen tasks: the darker, the nearer to the best of the row."""
    rows = [
        (task, [float(found[arm][task or ""].mean()) for arm in MAP])
        for study in FOURTEEN
        for found in [returns(study)]
        for task in found[MAP[0]]
    ]
    names = iter([study.removeprefix("default-") for study in FOURTEEN if "" in returns(study)[MAP[0]]])
    left, wide, high, top = 170, 95, 28, 44
    marks = [
        text(left + wide * (i + 0.5), 18 + 15 * row, word, "middle", GREY)
        for i, arm in enumerate(MAP)
        for row, word in enumerate(arm.split())
    ]
    for row, (task, means) in enumerate(rows):
        y = top + high * row
        marks.append(text(left - 12, y + 19, task or next(names), "end"))
        for i, mean in enumerate(means):
            near = (mean - min(means)) / (max(means) - min(means))
            box = f'x="{left + wide * i + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}"'
            marks.append(f'<rect {box} fill="{BLUE}" fill-opacity="{0.75 * near:.2f}"/>')
            marks.append(text(left + wide * (i + 0.5), y + 19, number(mean), "middle"))
    return page(left + wide * len(MAP) + 10, top + high * len(rows) + 10, marks)


def drawn() -> dict[str, str]:
    """All figures by the name of their file."""
    studies = {f"{file.stem}.svg": study_figure(file.stem) for file in sorted(RESULTS.glob("*.csv"))}
    return studies | {"forest.svg": forest(), "tasks.svg": map_of_tasks()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the figures are written")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn().items():
        (folder / name).write_text(figure, encoding="utf-8")


if __name__ == "__main__":
    main()
