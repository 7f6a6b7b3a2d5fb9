"""The page of a study: which arm is better, by how much, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np

from shoal.core.atomic import write_file
from shoal.core.escape import escape
from shoal.records.jsonl import read_text
from shoal.records.words import many, text
from shoal.report.page import Section
from shoal.report.rendering import Block, Figure, Markup, parts, prose, rendered
from shoal.study.compare import LEVEL, Comparison, seeds_summary
from shoal.study.cost import costs, unlike
from shoal.study.figures import IntervalRow, curves, levels, looks_of, profile, rows_drawn
from shoal.study.overview import overview
from shoal.study.results import FILE, Results, read_results, write_runs
from shoal.study.study_file import RunKey

LISTED = 6  # pairs that are a table; of more the table is folded behind a map
FEW = 8  # seeds, below which an interval is too narrow (docs/reference/studies.md)


def write_page(path: Path) -> Path:
    """Write STUDY/report.html and STUDY/study.csv. Raises BadInput."""
    results = read_results(path)
    write_runs(results)
    target = path / "report.html"
    write_file(target, render(results).encode())
    return target


def render(results: Results) -> str:
    """The page as text."""
    comparison, name = Comparison(results), escape(results.path.resolve().name)
    head, sections = overview(comparison, name), [*_sections(comparison)]
    return rendered("page.html", title=f"{name}: a study", header=head, sections=sections, footer=f"Study “{name}”.")


def _sections(c: Comparison) -> Iterator[Section]:
    outcomes = c.results.outcomes.items()
    names = c.results.score_names(key for key, outcome in outcomes if not outcome.exact)
    exact = any(outcome.exact for _, outcome in outcomes)
    few = FEW if c.scores and min(map(len, c.scores.values())) < FEW else 0
    intro = prose("study_scores_intro", few=few, names=names, exact=exact)
    yield Section("scores", "Scores", intro, _scores(c))
    yield Section(
        "pairs",
        "Pairs of arms",
        "Probability of improvement of every arm over every other, with p corrected for their number.",
        [_pairs(c)],
    )
    intro = "Environment steps of a run, without its champion’s final evaluation."
    yield Section("cost", "Cost", intro, [_cost(c.results)])
    drawn = [curves(c.results, task) for task in c.results.study.all_tasks]
    yield Section("curves", "Curves", "Learning curves of all arms.", drawn)
    if any(o.on_levels for o in c.results.outcomes.values()):
        intro = "Generalisation gap: training against validation and test levels."
        yield Section("levels", "Levels", intro, levels(c.results))
    intro = "Performance profiles: the share of runs above each score."
    yield Section("profile", "Performance profiles", intro, [profile(c.results, c.reached)])
    intro = "All runs; study.csv in the same folder has those that are done."
    yield Section("runs", "Runs", intro, _runs(c.results))
    intro = "The study file, with which shoal study repeats the runs."
    yield Section("study", "Study", intro, [parts.pre(read_text(c.results.path / FILE), FILE)])


def _scores(c: Comparison) -> list[Block]:
    seeds = {arm: f"{len(c.results.seeds(arm))} of {c.results.study.seeds}" for arm in c.results.study.arms}
    left_out = ", ".join(f"{arm} ({seeds[arm]})" for arm in seeds if arm not in c.scores)
    left_out = f"Not compared, with fewer than two seeds done on every task: {left_out}." if left_out else ""
    if not c.scores:
        return [parts.empty(f"No arm has two runs. {left_out}")]
    rows = []
    for arm in c.ranked:
        cells = ["–", "–", "–"]
        if arm in c.middles:
            middle, low, high = (text(x) for x in c.middles[arm])
            cells = [middle, f"{low} to {high}", text(float(c.scores[arm].mean()))]
        rows.append([arm, *cells, seeds[arm], c.without[arm]])
    placed = [IntervalRow(arm, looks_of(c.results, arm), c.reached[arm].ravel(), *x) for arm, x in c.middles.items()]
    drawn = rows_drawn(placed, "score", "Scores of the arms") if placed else ""
    heads = ["arm", "interquartile mean", "95 % interval", "mean", "seeds done", "runs without a champion"]
    reading = prose("study_scores", left_out=left_out, missing=any(c.without.values()))
    finding = "No arm has champions."
    if c.middles:
        best, (middle, *_) = next(iter(c.middles.items()))
        finding = f"{best} has the highest interquartile mean: {text(middle)}."
    listed = parts.folded(parts.table(heads, rows, "Scores of the arms"))
    whole = Figure("Every run of each arm", finding, reading, drawn, listed)
    return [whole, *([_by_task(c)] if len(c.results.study.all_tasks) > 1 else [])]


def _by_task(c: Comparison) -> Figure:
    """A map of the mean scores of the arms on each task."""
    tasks = c.results.study.all_tasks
    runs = [[np.array([o.score for o in c.results.of(task, arm)]) for arm in c.ranked] for task in tasks]
    means = np.array([[_mean(x, c.results.worst(task)) for x in row] for task, row in zip(tasks, runs, strict=True)])
    low, high = np.fmin.reduce(means, 1, keepdims=True), np.fmax.reduce(means, 1, keepdims=True)
    shades = (means - low) / np.where(high > low, high - low, 1) + (high == low)
    words = [[text(mean) for mean in row] for row in means.tolist()]
    best = Counter(c.ranked[int(row.argmax())] for row in means == high if row.sum() == 1)
    ahead = ", ".join(f"{arm} on {n}" for arm, n in best.most_common()) or "no arm on any"
    titles = [
        [f"{arm} on {task}: {', '.join(map(text, np.sort(x)))}" for arm, x in zip(c.ranked, row, strict=True)]
        for task, row in zip(tasks, runs, strict=True)
    ]
    finding = f"Ahead: {ahead} of {many(len(tasks), 'task')}."
    drawn = parts.heat(shades, tasks, c.ranked, titles, "Mean scores of the arms on each task.", words)
    cells = [[task, *row] for task, row in zip(tasks, words, strict=True)]
    listed = parts.folded(parts.table(["task", *c.ranked], cells, "Task by task"))
    return Figure("Task by task", finding, prose("study_tasks"), drawn, listed)


def _mean(scores: np.ndarray, worst: float) -> float:
    """The mean of scores on a task, of which those that are missing count as the worst; NaN where all are."""
    known = np.isfinite(scores)
    return float(np.where(known, scores, worst).mean()) if known.any() else np.nan


def _pairs(c: Comparison) -> Block:
    if not c.pairs:
        return parts.empty(f"No two arms are compared yet. {_analyses(c) or 'That takes two runs of each.'}")
    title = "Every arm against every other"
    rows = [
        [p.one, p.other, f"{p.improvement:.2f}", f"{p.low:.2f} to {p.high:.2f}", f"{p.p:.2g}", p.summary]
        for p in c.pairs
    ]
    heads = ["arm", "against", "probability of improvement", "95 % interval", "p (Holm)", "in words"]
    apart = sum(p.p < LEVEL for p in c.pairs)
    notes = " ".join(filter(None, (_analyses(c), seeds_summary(c.results))))
    finding = f"{apart} of {many(len(c.pairs), 'pair')} {'is' if apart == 1 else 'are'} significantly different."
    if all(p.least >= LEVEL for p in c.pairs):
        finding += " With so few seeds no difference is significant, however large."
    mapped = len(c.pairs) > LISTED
    listed = parts.table(heads, rows, "Pairs of arms", "bounds")
    content = [_against(c), parts.folded(listed, "Every pair in words")] if mapped else [listed]
    return Figure(title, finding, prose("study_pairs", notes=notes, mapped=mapped), *content)


def _analyses(c: Comparison) -> str:
    """The times of the interim analyses, where there are any."""
    if not (analyses := c.results.study.interim_analyses):
        return ""
    done = c.analyses[-1] if c.analyses else 0
    return prose("study_analyses", analyses=analyses, done=done)


def _against(c: Comparison) -> Markup:
    """A map of the probabilities of improvement of all pairs: the darker, the further from a draw."""
    found = {(p.one, p.other): (p.improvement, p) for p in c.pairs}
    found |= {(p.other, p.one): (1 - p.improvement, p) for p in c.pairs}
    cells = [[found.get((row, column), (np.nan, None)) for column in c.ranked] for row in c.ranked]
    chances = np.array([[chance for chance, _ in row] for row in cells])
    titles = [[pair.summary if pair else "" for _, pair in row] for row in cells]
    words = [[f"{chance:.2f}{' ★' if pair and pair.p < LEVEL else ''}" for chance, pair in row] for row in cells]
    names, numbers = [f"{at} {arm}" for at, arm in enumerate(c.ranked, 1)], [str(at + 1) for at in range(len(cells))]
    summary = "Probabilities of improvement of arms against each other."
    return parts.heat(np.abs(2 * chances - 1), names, numbers, titles, summary, words)


def _cost(results: Results) -> Block:
    if not (found := costs(results)):
        return parts.empty("No run records it.")
    title, heads = "What each arm cost", ["arm", "task", "training steps", "evaluation steps", "all steps"]
    rows = [
        [x.arm, task, *(f"{steps:,.0f}" for steps in (x.training, x.evaluation, x.all))]
        for task, mine in found.items()
        for x in mine
    ]
    finding = " ".join(unlike(found)) or "All arms cost the same, evaluation included."
    return Figure(title, finding, prose("study_cost"), parts.table(heads, rows, title))


def _runs(results: Results) -> list[Block]:
    heads = ["arm", "task", "seed", "score", "standard error", "when selected"]
    heads += ["training steps", "all steps", "seconds", "of them compiling"]
    rows = [
        [
            _arm(results, key), o.row["task"], o.row["seed"], o.score, o.row["standard_error"], o.row["selection_fitness"],
            f"{o.row['environment_steps'] or 0:,}", f"{o.row['all_steps'] or 0:,}",
            o.row["seconds"], o.row["compile_seconds"],
        ]
        for key, o in results.outcomes.items()
    ]  # fmt: skip
    if not results.failures:
        return [parts.table(heads, rows, "All runs", "sortable")]
    failures = [[arm, task, seed, why] for (task, arm, seed), why in results.failures.items()]
    failed = parts.table(["arm", "task", "seed", "why it failed"], failures, "Runs that failed", "bounds")
    done = parts.table(heads, rows, "Runs that are done", "sortable")
    return [parts.heading("Failed"), failed, parts.heading("Done"), done]


def _arm(results: Results, key: RunKey) -> str:
    """The arm of a run, which leads to the run's own page where there is one."""
    page = key.place / "report.html"
    if not (results.path / page).is_file():
        return key.arm
    return parts.link(quote(str(page)), key.arm)
