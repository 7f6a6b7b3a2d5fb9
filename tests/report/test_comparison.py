"""Several runs on one page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.messages import Said
from support.runs import shoal
from support.synthetic_run import write_run

from shoal import load_run
from shoal.report.comparison import write_comparison


def run(path: Path, **changes: Any) -> Path:
    return write_run(path, 4, 6, **changes)


def cells(page: str, section: str) -> list[list[str]]:
    """The rows of the table in a section."""
    text = re.search(rf'<section id="{section}">(.*?)</section>', page, re.DOTALL)[1]  # type: ignore[index]
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]


def test_runs_are_told_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences, the champions with their intervals, and a line for each on the same axes."""
    monkeypatch.chdir(tmp_path)
    run(Path("one"))
    run(Path("two"), seed=1, interval=16384)
    run(Path("three"), seed=2, finished=False)
    told = shoal("compare", "one", "two", "three", "--out", "page.html")
    assert (told.code, told.err) == (0, "") and told.out.endswith("open page.html\n")
    page = Path("page.html").read_text()
    differing = {row[0]: row[1:] for row in cells(page, "differences")[1:]}
    assert differing["interval"] == ["32768", "16384", "32768"]
    assert "env" not in differing and "run_dir" not in differing
    result = json.loads(Path("one/result.json").read_text())
    mean, error = (result["champion"]["evaluation"][name] for name in ("mean", "standard_error"))
    rows = {row[0]: row for row in cells(page, "champions")[1:]}
    assert float(rows["one"][4]) == pytest.approx(mean, rel=1e-3)
    low, high = (float(end) for end in rows["one"][6].split(" to "))
    assert low == pytest.approx(mean - 1.96 * error, rel=1e-2) and high == pytest.approx(mean + 1.96 * error, rel=1e-2)
    assert rows["three"][4] == "–" and rows["three"][-1] == "no result yet"
    curves = re.findall(r'<path class="curve c(\d)"', page)
    assert sorted(curves) == ["0", "0", "1", "1", "2", "2"], "two figures, each with a line for every run"
    assert re.findall(r'<path class="area faint c(\d)"', page) == ["0", "1", "2"], "a band over the members of each"
    assert "<h1>one, two, three</h1>" in page
    values = {row[0]: row[1:] for row in cells(page, "hyperparameters")}
    assert values["hyperparameter"] == ["one", "two", "three"]
    ended = result["champion"]["hyper"]["learning_rate"]
    assert float(values["learning_rate"][0]) == pytest.approx(ended, rel=5e-3)
    assert [line.split()[0] for line in told.out.splitlines()[1:4]] == ["one", "two", "three"]


def test_scores_of_games_have_no_error(tmp_path: Path) -> None:
    """Exploitability is exact: the list of runs said ± 0, and the page an interval from a score to itself."""
    for place in (run(tmp_path / "one"), run(tmp_path / "two")):
        experiment = yaml.safe_load((place / "experiment.yaml").read_text()) | {"fitness": {"source": "exploitability"}}
        (place / "experiment.yaml").write_text(yaml.safe_dump(experiment))
        result = json.loads((place / "result.json").read_text())
        result["champion"]["evaluation"] = {"mean": -0.25, "standard_error": 0.0, "episodes": 2, "exact": True}
        (place / "result.json").write_text(json.dumps(result))
    assert shoal("compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "page.html").code == 0
    for row in cells((tmp_path / "page.html").read_text(), "champions")[1:]:
        assert row[4:7] == ["-0.25", "–", "–"]
    listed = shoal("runs", tmp_path).out
    assert listed.count("-0.25") == 2 and "±" not in listed


@pytest.mark.parametrize(
    ("fitness", "words"),
    [
        (({}, {}), "the mean return of"),
        (({"objective": "success"}, {"objective": "success"}), "the mean success of"),
        (({}, {"objective": "cost", "direction": "minimize"}), "the mean return or negative mean cost of"),
    ],
)
def test_the_page_names_the_score(tmp_path: Path, fitness: tuple[dict, dict], words: str) -> None:
    places = [run(tmp_path / name) for name in ("one", "two")]
    for place, changed in zip(places, fitness, strict=True):
        experiment = yaml.safe_load((place / "experiment.yaml").read_text()) | {"fitness": changed}
        (place / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    write_comparison(places, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"A score is {words} a run’s champion on held-out episodes, on which nothing was selected." in page


def test_what_is_not_known_of_a_run_is_left_out(tmp_path: Path) -> None:
    """Method and agent each have a column: a run without method.json was compared as ", ppo"."""
    for name, file in {"one": "method.json", "two": "experiment.yaml"}.items():
        (run(tmp_path / name) / file).unlink()
    assert shoal("compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "page.html").code == 0
    rows = {row[0]: row[1:4] for row in cells((tmp_path / "page.html").read_text(), "champions")[1:]}
    assert (rows["one"][1:], rows["two"]) == (["–", "ppo"], ["–", "pbt", "–"])
    assert repr(load_run(tmp_path / "one")).endswith("one: 6 generations>")


def test_alike_runs_differ_in_nothing(tmp_path: Path) -> None:
    one, two = run(tmp_path / "one"), run(tmp_path / "two")
    assert shoal("compare", one, two, "--out", tmp_path / "page.html").code == 0
    assert "Only the run directories differ." in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("names", [["one"], ["one", "one"], ["one", "none"], ["one", "new"]], ids=" ".join)
def test_what_cannot_be_compared(tmp_path: Path, names: list[str], said: Said) -> None:
    run(tmp_path / "one")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/experiment.yaml").write_text("env: CartPole-v1\n")
    told = shoal("compare", *(tmp_path / name for name in names), "--out", tmp_path / "page.html")
    assert told.code == 2 and not (tmp_path / "page.html").exists()
    said(told.err)
