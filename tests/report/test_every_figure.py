"""Every figure of every page, from one member to a thousand: all that is drawn lies in its plot, and nothing warns."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from support.cases import others_slow
from support.synthetic_run import write_run
from test_workspace import worker

from shoal.report import charts, family_tree
from shoal.report.comparison import write_comparison
from shoal.report.layout import Layout
from shoal.report.page import write_report
from shoal.report.run import read_run
from shoal.study.page import write_page

GENERATIONS = {1: 6, 2: 6, 128: 30, 1000: 8}  # by population; of the larger ones, more copies than are drawn one by one
MOST = 3 * charts.WIDTH  # what lies further outside is cut there


def with_champion(run: Path, copies: int) -> Path:
    """The same, whose champion is one that nobody in the last generation descends from, where there are copies."""
    table, result = read_run(run).lineage, json.loads((run / "result.json").read_text())
    if copies:
        uid, generation = died_out(run)
        champion = result["champion"] | {"uid": uid, "generation": generation}
        (run / "result.json").write_text(json.dumps(result | {"champion": champion}))
    assert table.copied.any() == bool(copies)
    return run


def died_out(run: Path) -> tuple[int, int]:
    table = read_run(run).lineage
    living = table.descent(len(table.generations) - 1)
    row = len(table.generations) // 2
    columns = np.setdiff1d(np.arange(len(table.uids)), living[row])
    return int(table.uids[columns[0]]), int(table.generations[row])


def check_drawn(page: str) -> None:
    """Assert that every stroke, tick and value of a page is a number within reach, and that each figure has its table."""
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    drawn = [figure for figure in figures if re.search(r'class="(plot|heat|bars)"', figure)]
    assert drawn and [figure[:99] for figure in drawn if "<table" not in figure] == []
    strokes = re.findall(r' d="([^"]*)"', page)
    numbers = [float(x) for stroke in strokes for x in re.findall(r"-?[\d.]+(?:e[-+]?\d+)?", stroke)]
    assert numbers and max(map(abs, numbers)) <= MOST
    places = [float(x) for x in re.findall(r'style="(?:left|bottom):([^"%]*)%"', page)]
    assert places and all(-1 <= place <= 101 for place in places)
    shown = re.sub(r'data-v="nan"', "", page)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', shown, re.IGNORECASE)


@pytest.mark.parametrize("members", others_slow([1, 2, 128, 1000], 1, 2))
def test_every_page(tmp_path: Path, members: int) -> None:
    generations, copies = GENERATIONS[members], members // 4
    run = with_champion(write_run(tmp_path / "runs" / "arm" / "0", members, generations), copies)
    check_drawn(write_report(run).read_text())
    write_comparison([run, write_run(tmp_path / "runs" / "arm" / "1", 4, 6)], tmp_path / "comparison.html")
    check_drawn((tmp_path / "comparison.html").read_text())
    study = {"base": {"env": "CartPole-v1"}, "arms": {"arm": {}}, "seeds": 2}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    check_drawn(write_page(tmp_path).read_text())


def test_hostile_names_stay_text_in_comparisons_and_studies(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>\"'&"
    runs = [write_run(tmp_path / "runs" / evil / str(seed), 2, 4, env=evil, agent=evil) for seed in range(2)]
    write_comparison(runs, tmp_path / "comparison.html")
    study = {"base": {"env": "CartPole-v1"}, "arms": {evil: {}, "other": {}}, "seeds": 2}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for page in (tmp_path / "comparison.html", write_page(tmp_path)):
        text = page.read_text()
        assert "<img" not in text and "&lt;img src=x onerror=alert(1)&gt;" in text


@pytest.mark.parametrize("workers", [1, 2, 32, pytest.param(250, marks=pytest.mark.slow)])
def test_the_page_of_a_workspace(tmp_path: Path, workers: int) -> None:
    for slot in range(workers):
        worker(tmp_path, f"worker {slot}", slot, 8)
    check_drawn(write_report(tmp_path).read_text())


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("crowd") / "run", 128, 30)


@pytest.mark.slow
@given(uid=st.integers(0, 127), generation=st.integers(0, 29))
def test_the_line_of_any_champion_is_drawn_to_its_end(crowd: Path, uid: int, generation: int) -> None:
    """With a step from each of its generations to the next."""
    run = replace(cached(crowd), result={"champion": {"uid": uid, "generation": generation}})
    drawn = Markup("").join(family_tree.tree(Layout(run)))
    check_drawn(drawn)
    (line,) = re.findall(r'<path class="champion" d="([^"]*)"', drawn) or [""]
    assert line.count("C") == generation


cached = cache(read_run)
