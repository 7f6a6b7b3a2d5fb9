"""The head of a study's page: its result, in a sentence and in a table of the arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from shoal.records.words import many, text
from shoal.report.charts import Axis
from shoal.report.rendering import Markup, parts, prose, rendered
from shoal.study.compare import LEVEL, Comparison, asked, least_seeds, stopped
from shoal.study.cost import costs, dearest
from shoal.study.study_file import Study

SENTENCES = 3  # on significant differences, at most


def overview(c: Comparison, name: str) -> Markup:
    """The result, the size of the study, and what the reader must know to trust it."""
    results, study = c.results, c.results.study
    seeds, failed = stopped(results) or study.seeds, len(results.failures)
    done = sum(key.seed < seeds for key in results.outcomes)  # another process may have begun later ones before the end
    planned = len(study.arms) * len(study.all_tasks) * seeds
    most = f" of at most {study.seeds}" if study.interim_analyses else ""
    facts = [
        many(len(study.arms), "arm"), many(len(study.all_tasks), "task"), f"{many(seeds, 'seed')}{most}",
        f"{done:,} of {many(planned, 'planned run')} done", *([f"{failed:,} failed"] if failed else []),
    ]  # fmt: skip
    notices = [(_missing(c), "runs", "Which and why")] if failed else []
    if unequal := dearest(costs(results)):
        notices.append((unequal, "cost", "How many"))
    return rendered(
        "study_header.html", state="finished" if done + failed >= planned else "in progress", name=name,
        notices=notices, abstract=_abstract(c), result=_result(c), facts=" · ".join(facts),
    )  # fmt: skip


def _abstract(c: Comparison) -> str:
    """The answer of the study in a few sentences: the significant differences, or why there are none."""
    study, against = c.results.study, _baseline(c.results.study)
    better = [pair for pair in c.pairs if pair.p < LEVEL]
    first = [pair for pair in better if against in (pair.one, pair.other)]
    summary = " ".join(pair.summary for pair in (first or better)[:SENTENCES])
    if better:
        if len(better) <= SENTENCES and len(first or better) == len(better):
            return summary
        return f"{summary} In all, {len(better)} of {many(len(c.pairs), 'pair')} of arms differ significantly."
    if not asked(study):
        return "There is one arm alone."
    able = any(pair.least < LEVEL for pair in c.pairs)  # although another arm may have fewer runs
    least, done = least_seeds(study), min(len(c.results.seeds(arm)) for pair in asked(study) for arm in pair)
    if min(done, study.seeds) < least and not able:
        planned = f", {study.seeds} are planned" if study.seeds < least else ""
        return f"Too few seeds for any significant difference: {least} of each arm are needed, {done} done{planned}."
    if not c.pairs:
        return "No two arms are compared yet."
    return f"No two arms are significantly different with {many(min(pair.seeds for pair in c.pairs), 'seed')}."


def _baseline(study: Study) -> str:
    """The arm that the others are compared with: that of most pairs, of several the first."""
    pairs = Counter(arm for pair in asked(study) for arm in pair)
    return max(study.arms, key=lambda arm: pairs[arm])


def _result(c: Comparison) -> Markup:
    """A row for each arm: its score, and how probably a run of it is better than one of the baseline."""
    against = _baseline(c.results.study)
    found = {p.one: (p.improvement, p.low, p.high, p.p) for p in c.pairs if p.other == against}
    found |= {p.other: (1 - p.improvement, 1 - p.high, 1 - p.low, p.p) for p in c.pairs if p.one == against}
    axis, rows = Axis.over([*c.middles.values()], pad=0.05), []
    for arm in c.ranked:
        cells: list[object] = ["–", "baseline" if arm == against else "–", "–"]
        if arm in c.middles:
            cells[0] = _interval(axis, c.middles[arm], text)
        if arm in found:
            *values, p = found[arm]
            cells[1:] = _interval(Axis(0, 1), values, "{:.2f}".format, "half"), f"{p:.2g}{' ★' if p < LEVEL else ''}"
        rows.append([arm, *cells])
    heads = ["arm", "interquartile mean", f"probability of improvement over {against}", "p (Holm)"]
    return parts.table(heads, rows, "The result", "result") if rows else Markup("")


def _interval(axis: Axis, values: Collection[float], word: Callable[[float], str], kind: str = "") -> Markup:
    """A value with its interval, in numbers and as a bar."""
    middle, low, high = map(word, values)
    return parts.interval(middle, f"{low} to {high}", *(100 * place for place in axis.place([*values]).tolist()), kind)


def _missing(c: Comparison) -> str:
    """The number of failed runs of each arm, and what that means for the comparison."""
    arms = Counter(arm for _, arm, _ in c.results.failures)
    return prose("study_missing", failed=arms.total(), arms=arms.items(), several=len(c.results.study.all_tasks) > 1)
