"""The report of a run whose members copy: what its figures and tables say is what the files say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic_run import write_run
from test_report import SECTIONS, report
from test_report_methods import chart, rows, same

from shoal.commands.output import scored
from shoal.records.words import short, text
from shoal.report.layout import quantile

G, N = 20, 8  # generations and members of the run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", N, G, diverged=0.05)


def lineage(run: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """The lines by generation and member."""
    return {(row["generation"], row["uid"]): row for row in rows(run, "lineage.jsonl")}


def descent(run: Path, uid: int, generation: int) -> list[dict[str, Any]]:
    """The lines of a member and of all whose weights it has, oldest first."""
    lines = lineage(run)
    found = [lines[generation, uid]]
    for before in range(generation - 1, -1, -1):
        found.append(lines[before, lines[before, found[-1]["uid"]]["parent"]])
    return found[::-1]


def champion(run: Path) -> tuple[int, int]:
    told = json.loads((run / "result.json").read_text())["champion"]
    return told["uid"], told["generation"]


def table(run: Path, name: str) -> np.ndarray:
    """[G, N] What the lines say of each member."""
    lines = lineage(run)
    told = [[lines[g, uid] | lines[g, uid]["hyper"] for uid in range(N)] for g in range(G)]
    return np.array([[row[name] for row in rows] for rows in told], float)


def test_fitness_of_the_population(run: Path) -> None:
    _, page = report(run)
    fitness, (uid, _) = table(run, "fitness"), champion(run)
    assert np.isnan(fitness).any()
    lines = chart(page, "Fitness of every member")
    best, middle = np.nanmax(fitness, 1), np.nanmedian(fitness, 1)
    same(lines["best"], list(best))
    same(lines["median"], list(middle))
    same(lines["worst"], list(np.nanmin(fitness, 1)))
    same(lines[f"member {uid}, the champion"], list(fitness[:, uid]))
    went = f"{best[0]:.4g} to {best[-1]:.4g}, the median of the population from {middle[0]:.4g} to {middle[-1]:.4g}."
    assert f"The best member went from {went}" in page.words


def test_what_the_champion_descends_from(run: Path) -> None:
    """Its weights' fitness, and a hyperparameter of whoever had them."""
    _, page = report(run)
    ancestors, (uid, _) = descent(run, *champion(run)), champion(run)
    assert len({row["uid"] for row in ancestors}) > 2
    lines = chart(page, "How the champion learned")
    same(lines["lineage"], [row["fitness"] for row in ancestors])
    same(lines[f"member {uid} itself"], list(table(run, "fitness")[:, uid]))
    rate = table(run, "learning_rate")
    lines = chart(page, "learning_rate")
    same(lines["champion’s lineage"], [row["hyper"]["learning_rate"] for row in ancestors])
    for name, of in (("highest", np.max), ("median", np.median), ("lowest", np.min)):
        same(lines[name], list(of(rate, axis=1)))


def test_the_table_of_members(run: Path) -> None:
    """The fittest first; who copied how often, and who was copied how often, are not the same. Members copy after the
    last generation too."""
    told = rows(run, "lineage.jsonl")
    told[-1]["parent"] = told[-2]["uid"]
    (run / "lineage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    page, _ = report(run)
    shown = page.split('<table class="sortable">')[1].split("</table>")[0]
    heads = re.findall(r'<button type="button">([^<]*)</button>', shown)
    cells = [[float(x) for x in re.findall(r'data-v="([^"]*)"', row)] for row in shown.split("<tr")[2:]]
    assert heads[:6] == ["member", "fitness", "std over episodes", "founder", "copied", "was copied"]
    lines = lineage(run)
    copies = [(row["uid"], row["parent"]) for row in lines.values() if row["parent"] != row["uid"]]
    expected = []
    for row in (lines[G - 1, uid] for uid in range(N)):
        founder = descent(run, row["uid"], G - 1)[0]["uid"]
        took, given = ([pair[k] for pair in copies].count(row["uid"]) for k in (0, 1))
        fitness = np.nan if row["fitness"] is None else row["fitness"]
        tuned = [row["hyper"][name] for name in heads[6:]]
        expected.append([row["uid"], fitness, row["returns_std"], founder, took, given, *tuned])
    order = np.argsort([-np.nan_to_num(row[1], nan=-np.inf) for row in expected], kind="stable")
    assert any(row[4] != row[5] for row in expected)
    np.testing.assert_allclose(cells, np.array(expected)[order])


def test_the_largest_family(run: Path) -> None:
    """It need not be that of the champion, whose line may have died out."""
    founders = [descent(run, uid, G - 1)[0]["uid"] for uid in range(N)]
    largest = max(founders, key=founders.count)
    died_out = next(uid for uid in range(N) if uid not in founders)
    result = json.loads((run / "result.json").read_text())
    result["champion"] |= {"uid": died_out, "generation": 0}
    (run / "result.json").write_text(json.dumps(result))
    _, page = report(run)
    share = 100 * founders.count(largest) / N
    assert f"At the end {share:.0f}% of the members descend from member {largest}." in page.words


def test_levels_to_train_on_and_others(run: Path) -> None:
    """Both lines of both, their gap, and what the champion returned; None where nothing was measured."""
    draw, entries = np.random.default_rng(2), rows(run, "metrics.jsonl")
    known, new = draw.normal(2, 0.5, (G, N)), draw.normal(1, 0.5, (G, N))
    known[3, 2] = np.nan
    measured = {"train": known, "validation": new, "gap": known - new}
    for g, entry in enumerate(entries):
        told = {name: [None if x != x else x for x in values[g].tolist()] for name, values in measured.items()}
        entry["members"] |= {f"levels/{name}": values for name, values in told.items()}
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    result = json.loads((run / "result.json").read_text())
    result["champion"]["levels"] = {"train": {"mean": 2.5, "standard_error": 0.25}, "test": {"mean": 1.5}}
    (run / "result.json").write_text(json.dumps(result))
    _, page = report(run, (SECTIONS[0], "generalisation", *SECTIONS[1:]))
    ancestors = [row["uid"] for row in descent(run, *champion(run))]
    returns, gap = chart(page, "Scores on training and validation levels"), chart(page, "Generalisation gap")
    middle, along = "median of the population", "the champion’s lineage"
    for lines, names in ((returns, {"train": ": train", "validation": ": validation"}), (gap, {"gap": ""})):
        for name, suffix in names.items():
            same(lines[f"{middle}{suffix}"], list(np.nanmedian(measured[name], 1)))
            same(lines[f"{along}{suffix}"], list(measured[name][np.arange(G), ancestors]))
    assert "The champion scored 2.5 ± 0.25 on training levels, 1.5 on test levels." in page.words
    ends = np.nanmedian(measured["gap"], 1)[[0, -1]]
    assert f"It went from {ends[0]:.4g} to {ends[1]:.4g} (median of the population)." in page.words


def test_what_agents_recorded_of_their_learning(run: Path) -> None:
    """Of the champion's descent, and of the middle of all; a metric that is not known has the name it was given."""
    lines, rng = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()],
        np.random.default_rng(3),
    )
    entropy = rng.uniform(0.1, 2, (G, N))
    for line, values in zip(lines, entropy, strict=True):
        line["members"] = {"policy/entropy": values.tolist(), "train/own_loss": (-values).tolist()}
        line["members"] |= {"fitness/noise": values.tolist(), "steps/broken": [0.0] * N}
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text, page = report(run)
    same(chart(page, "train/own_loss")["median of the population"], list(np.median(-entropy, 1)))
    drawn = chart(page, "Entropy")
    same(drawn["median of the population"], list(np.median(entropy, 1)))
    along = {row["generation"]: entropy[row["generation"], row["uid"]] for row in descent(run, *champion(run))}
    same(drawn["the champion’s lineage"], [along.get(g) for g in range(G)])
    first, last = along[0], along[max(along)]
    assert f"For the champion’s lineage it went from {first:.4g} to {last:.4g}." in page.words
    learning = text.partition('id="learning"')[2].partition("</section>")[0]
    assert learning.count("<figure") == 2


@pytest.mark.parametrize(
    ("value", "as_short", "as_text"),
    [
        (999.4, "999", "999.4"),
        (999_499, "999k", "999,499"),
        (999_936, "1M", "999,936"),
        (999.7e6, "1G", "1e9"),
        (9999.4, "10k", "9999"),
        (9999.6, "10k", "10,000"),
        (-9999.6, "-10k", "-10,000"),
    ],
)
def test_numbers_that_round_to_the_next_unit(value: float, as_short: str, as_text: str) -> None:
    """999,936 steps were 1e+03k."""
    assert (short(value), text(value)) == (as_short, as_text)


@pytest.mark.parametrize(
    ("mean", "error", "shown"),
    [
        (-154.68, 8.58, "-154.7 ± 8.6"),
        (12345.6, 123.4, "12,346 ± 123"),
        (9999.6, 99.7, "10,000 ± 100"),
        (0.98765, 0.0123, "0.98765 ± 0.012"),
    ],
)
def test_scores_in_the_terminal(mean: float, error: float, shown: str) -> None:
    """12,346 ± 123 was 1.235e+04 ± 1.2e+02."""
    assert scored({"mean": mean, "standard_error": error}) == f"{shown} (standard error)"


def test_quantiles_of_rows_are_those_of_numpy() -> None:
    draw = np.random.default_rng(0)
    for holes in (0.0, 0.4, 0.9, 1.0):
        values = draw.normal(size=(50, 7)) * 10.0 ** draw.integers(-30, 90, (50, 1))
        values[draw.random(values.shape) < holes] = np.nan
        some = np.isfinite(values).any(axis=1)
        for q in (0, 0.25, 0.5, 0.9, 1):
            found = quantile(values, q)
            assert np.isnan(found[~some]).all()
            assert np.array_equal(found[some], np.nanquantile(values[some], q, axis=1) if some.any() else found[some])
    assert np.isnan(quantile(np.empty((3, 0)), 0.5)).all() and len(quantile(np.empty((0, 3)), 0.5)) == 0
