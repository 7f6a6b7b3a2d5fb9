"""The page of a study with levels, from runs that were written by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from shoal.study.page import render, write_page
from shoal.study.results import held, read_results

STUDY = {"base": {"env": "CartPole-v1"}, "arms": {"wide": {}, "narrow": {}, "none": {}}, "seeds": 3}
TESTED = {
    "wide": (0.5, 0.25, 0.25),
    "narrow": (1.0, 0.5, 0.0),
}  # on levels of train, validation, test; + 0.125 per seed


def write_run(run: Path, champion: dict, lines: list[dict]) -> None:
    run.mkdir(parents=True)
    result = {"champion": champion, "fitness": {"0": 0.5}, "status": "done", "environment_steps": 200}
    (run / "result.json").write_text(json.dumps(result))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    for arm, values in TESTED.items():
        for seed in range(3):
            levels = {
                name: {"mean": x + 0.125 * seed}
                for name, x in zip(("train", "validation", "test"), values, strict=True)
            }
            members = {"levels/train": [0.0, 0.5 + seed, 9.0], "levels/validation": [None, 0.25, 0.75]}
            lines = [{"steps": steps, "fitness": {"best": 1.0}, "members": members} for steps in (100, 200)]
            write_run(
                tmp_path / "runs" / arm / str(seed),
                {"evaluation": {"mean": levels["test"]["mean"]}, "levels": levels},
                lines,
            )
    write_run(tmp_path / "runs/none/0", {"evaluation": {"mean": 0.5}}, [{"steps": 100, "members": {}}])
    return tmp_path


def test_champions_and_populations(study: Path) -> None:
    """Of three seeds the interquartile mean is the mean; the middle of a population is that of members with a return."""
    page = write_page(study).read_text()
    with (study / "study.csv").open(newline="") as text:
        rows = {(row["arm"], row["seed"]): row for row in csv.DictReader(text)}
    assert [rows["narrow", "2"][name] for name in ("train", "validation", "test")] == ["1.25", "0.75", "0.25"]
    assert [rows["none", "0"][name] for name in ("train", "validation", "test")] == [""] * 3
    assert "wide has the highest interquartile mean on test levels: 0.375." in page
    for cell in ("0.625 (0.5 to 0.75)", "1.12 (1 to 1.25)", "1 (1 to 1)"):  # wide, narrow and its gap
        assert f"<td>{cell}</td>" in page
    outcome = read_results(study).of("", "narrow")[1]
    np.testing.assert_array_equal(outcome.population, [[100, 1.5, 0.5], [200, 1.5, 0.5]])
    assert "At the end the gap is widest for wide: 1." in page  # 1.5 - 0.5, as in the other arm


def test_what_is_shown_has_the_name_of_the_score(study: Path) -> None:
    """A task whose fitness is an objective said "return" on its axes."""
    base = STUDY["base"] | {"fitness": {"objective": "success"}}  # type: ignore[operator]
    (study / "study.yaml").write_text(yaml.safe_dump(STUDY | {"base": base}, sort_keys=False))
    page = render(read_results(study))
    assert "A score is the mean success of a run’s champion" in page
    for figure in ("Champions on known and new levels", "Populations on known and new levels"):
        assert ">mean success<" in page.partition(figure)[2].partition("</figure>")[0]


def test_an_arm_that_records_no_members_has_no_gap(study: Path) -> None:
    """Such as that of an optimiser: it was the widest, with no number, where it is the first."""
    for seed in range(3):
        (study / f"runs/wide/{seed}/metrics.jsonl").write_text(
            json.dumps({"steps": 200, "fitness": {"best": 1}}) + "\n"
        )
    page = render(read_results(study))
    assert "At the end the gap is widest for narrow: 1." in page
    populations = page.partition("Populations on known and new levels")[2].partition("</figure>")[0]
    assert "narrow: train" in populations and "wide: train" not in populations


@pytest.mark.parametrize(
    ("arms", "finding"),
    [
        (["wide"], "narrow has the highest interquartile mean on test levels: 0.125."),
        (["wide", "narrow"], "No champion has a score on test levels."),
    ],
)
def test_champions_without_a_return_on_levels_of_one_purpose(study: Path, arms: list[str], finding: str) -> None:
    """As the episodes there are broken: the arm, as the first one, was the best with nan (nan to nan)."""
    for result in (file for arm in arms for file in (study / "runs" / arm).glob("*/result.json")):
        told = json.loads(result.read_text())
        told["champion"]["levels"]["test"]["mean"] = None
        result.write_text(json.dumps(told))
    page = render(read_results(study))
    champions = page.partition("Champions on known and new levels")[2].partition("</figure>")[0]
    assert finding in champions and "wide: train" in champions and "wide: test" not in champions
    assert champions.count("<td>–</td>") == 2 * len(arms) and "nan" not in champions


def test_studies_without_levels_say_nothing_of_them(study: Path) -> None:
    for arm in TESTED:
        for result in (study / "runs" / arm).glob("*/result.json"):
            result.write_text(json.dumps(json.loads(result.read_text()) | {"champion": {"evaluation": {"mean": 1.0}}}))
    assert "Champions on known and new levels" not in render(read_results(study))


def test_the_table_says_by_what_runs_were_made(study: Path) -> None:
    file = study / "runs/none/0/result.json"
    told = {
        "date": "2026",
        "host": "=a",
        "devices": 2,
        "commit": ["b"],
        "versions": {"jax": "1", "numpy": 2},
        "clean": False,
        "command": "shoal study a.yaml",
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | {"provenance": told}))
    write_page(study)
    with (study / "study.csv").open(newline="") as text:
        rows = {row["arm"]: row for row in csv.DictReader(text)}
    names = ("date", "host", "device", "devices", "commit", "clean", "versions", "command")
    found = ["2026", "'=a", "", "2", "", "False", "jax 1, numpy 2", "shoal study a.yaml"]
    assert [rows["none"][name] for name in names] == found
    assert rows["narrow"]["versions"] == rows["narrow"]["host"] == ""


def test_what_was_measured_last_holds() -> None:
    curve = np.array([[10.0, 0.5], [20.0, 0.25]])
    np.testing.assert_array_equal(held(curve, np.array([5, 10, 19, 20, 99])), [np.nan, 0.5, 0.5, 0.25, 0.25])
