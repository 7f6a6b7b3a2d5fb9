"""What the pages of results say is what their CSV files hold: tables, comparisons and figures."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.study import statistics

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
FIRST = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
ARMS = "| arm | interquartile mean | 95 % interval | mean | seeds |"
PAIRS = "| arm | against | probability of improvement | p |"
TABLE = r"((?:^\|.*\n)+)"


def _figures() -> Any:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = _figures()


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its heading."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


RESULTS = [
    (name, table)
    for text in PAGES.values()
    for name, table in re.findall(r"\((\S+)\.csv\)\.\n\n" + TABLE, text, re.MULTILINE)
    if table.startswith(ARMS)
]


def test_every_result_is_shown_once_with_its_figure() -> None:
    known = sorted(path.stem for path in FOLDER.glob("*.csv"))
    assert sorted(name for name, _ in RESULTS) == known
    shown = re.findall(r"\(\.\./images/results/(\S+)\.svg\)", "".join(PAGES.values()))
    assert sorted(shown) == known


@pytest.mark.parametrize("name, table", RESULTS, ids=[name for name, _ in RESULTS])
def test_results_are_those_of_their_runs(name: str, table: str) -> None:
    """The interquartile mean, without the lowest and the highest quarter, its interval, and the mean, of every arm; of
    several tasks in the scale that the study's file gives to each.
    """
    scores = figures.scores(name)
    assert sorted(row[0] for row in rows(table)) == sorted(scores)
    for arm, middle, interval, mean, seeds in rows(table):
        values = np.sort(scores[arm], axis=None)
        out = len(values) // 4
        assert middle == f"{np.mean(values[out : len(values) - out]):.4g}"
        assert interval == " to ".join(f"{end:.4g}" for end in statistics.interval(scores[arm]))
        assert mean == f"{np.mean(values):.4g}"
        assert int(seeds) == len(scores[arm])


FOUND = [
    (page, found)
    for page, text in PAGES.items()
    for found in re.finditer(r"^\| mean \|.*\n" + TABLE, text, re.MULTILINE)
]


@pytest.mark.parametrize("page, found", FOUND, ids=[page for page, _ in FOUND])
def test_means_of_tasks_are_those_of_their_runs(page: str, found: re.Match[str]) -> None:
    (name,) = re.findall(r"\((\S+)\.csv\)\.\n", PAGES[page][: found.start()])[-1:]
    returns, (_, *tasks) = (
        figures.returns(name),
        [cell.strip() for cell in found[0].splitlines()[0].strip("|").split("|")],
    )
    assert sorted(row[0] for row in rows(found[0])) == sorted(returns)
    for arm, *means in rows(found[0]):
        assert means == [f"{returns[arm][task].mean():.4g}" for task in tasks]


COMPARED = [
    (page, re.findall(r"^Every run: (.*)\.$", text[: found.start()], re.MULTILINE)[-1], found[0])
    for page, text in PAGES.items()
    for found in re.finditer(re.escape(PAIRS) + r"\n" + TABLE, text, re.MULTILINE)
]


@pytest.mark.parametrize("page, runs, table", COMPARED, ids=[page for page, *_ in COMPARED])
def test_comparisons_are_those_of_their_runs(page: str, runs: str, table: str) -> None:
    """Corrected for the number of pairs of the arms that all the files have which are linked before the table."""
    known = figures.comparisons(figures.together(re.findall(r"\((\S+)\.csv\)", runs)))
    for arm, other, *cells in rows(table):
        assert " | ".join(cells) == known[arm, other].cells()


def test_probabilities_with_an_interval_stand_in_tables_that_are_tested() -> None:
    share = r"\d+ %(?: of pairs)?\s\(\d+ to \d+ %"
    for page, text in PAGES.items():
        assert len(re.findall(share, text)) == sum(len(rows(table)) for of, _, table in COMPARED if of == page)


def test_the_default_is_held_against_each_baseline() -> None:
    found = re.search(r"^\| baseline .*\n" + TABLE, FIRST, re.MULTILINE)
    assert found
    known = [(b.label, *figures.against(b)) for b in figures.BASELINES]
    assert [" | ".join(row) for row in rows(found[0])] == [f"{label} | {n} | {c.cells()}" for label, n, c in known]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_answers_its_question_and_has_its_parts_in_one_order(page: str) -> None:
    title, answer, *_ = PAGES[page].split("\n\n")
    assert title.startswith("# ") and title.endswith("?") and re.match(r"[\w`*]", answer)
    headings = re.findall(r"^## (.*)$", PAGES[page], re.MULTILINE)
    order = ["Setup", "Comparison", "Scores", "Findings", "Limitations"]
    assert [h for h in headings if h in order] == [h for h in order if h in headings]


def test_every_page_is_found_by_its_question() -> None:
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in PAGES.items()}
    asked = {name: words for words, name in re.findall(r"^- \[(.*\?)\]\(results/(\S+\.md)\)$", FIRST, re.MULTILINE)}
    assert (
        asked == {name: title for name, title in titles.items() if name != "tried.md"} and "(results/tried.md)" in FIRST
    )


def test_figures_are_drawn_from_the_runs() -> None:
    """`python benchmarks/figures.py docs/images/results` draws them anew."""
    folder = ROOT / "docs" / "images" / "results"
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == figures.drawn()
