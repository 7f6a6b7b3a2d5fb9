"""The report of methods whose members copy nobody: what its figures draw is what the files say."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import every_slow
from support.synthetic_run import write_about, write_dvd, write_independent, write_run, write_sampled
from test_report import SECTIONS, Page, report
from test_workspace import worker

from shoal.report.charts import Axis
from shoal.report.over_time import smoothed
from shoal.report.page import write_report

SAMPLED = ("fitness", "steps", "hyperparameters", "throughput", "experiment")
DVD = ("fitness", "behaviour", "hyperparameters", "throughput", "members", "experiment")
SEEDS = ("fitness", "best", "hyperparameters", "throughput", "members", "experiment")
OF_COPYING = re.compile(r"cop(y|ied|ies|ying)\b|lineage|founder|family|perturbed|population of 1", re.I)


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def metric(run: Path, name: str) -> list[float | None]:
    """One number of each generation, as the file says it."""
    return [row["members"][name][0] for row in rows(run, "metrics.jsonl")]


def chart(page: Page, title: str) -> dict[str, list[float | None]]:
    """The lines of a plot by name."""
    (found,) = [a for _, a in page.tags if "data-chart" in a and a.get("aria-label") == title and "hidden" not in a]
    data = json.loads(found["data-chart"] or "")
    return dict(zip(data["names"], data["lines"], strict=True))


def same(drawn: list[float | None], told: list[Any]) -> None:
    """Equal but for the digits that the page leaves out; None where None."""
    expected = [np.nan if value is None else float(value) for value in told]
    assert [np.nan if x is None else x for x in drawn] == pytest.approx(expected, rel=1e-4, nan_ok=True)


def path_of(text: str, title: str, kind: str) -> np.ndarray:
    """The points of the one line of a kind in a plot, in units of the drawing."""
    svg = text.split(f"<title>{title}</title>", 1)[1].split("</svg>", 1)[0]
    (data,) = re.findall(rf'<path class="{kind}" d="M([^"]*)"', svg)
    steps = [[int(x) for x in part.split()] for part in data.split("l")]
    return np.cumsum(steps, axis=0)


@pytest.mark.parametrize("method", ["es", "cem_rl"])
@pytest.mark.parametrize("diverged", [0.0, 0.3])
def test_drawn_numbers_are_those_of_the_files(tmp_path: Path, method: str, diverged: float) -> None:
    run = write_sampled(tmp_path / "run", method, diverged=diverged)
    text, page = report(run, SAMPLED)
    lines = chart(page, "Fitness of the mean and of the members")
    same(lines["the mean"], [row["fitness"] for row in rows(run, "lineage.jsonl")])
    for name, kind in (("members: best", "max"), ("average", "mean"), ("worst", "min")):
        same(lines[name], metric(run, f"returns/{kind}"))
    variance = [np.nan if x is None else x for x in metric(run, "returns/variance")]
    same(lines["standard deviation"], list(np.sqrt(variance)))
    ranks = metric(run, "mean/rank")
    same(chart(page, "Rank of the mean")["rank"], ranks)
    known = [x for x in ranks if x is not None]
    first = f"ranked first in {known.count(1.0)} of {len(known)} generations; its median rank is"
    assert f"{first} {np.median(known):g} of 33" in page.words
    assert "there is nothing left to gain" in page.words
    same(chart(page, "Steps of the mean")["Steps of the mean"], metric(run, "step/norm"))
    if method == "es":
        same(chart(page, "Gradient")["Gradient"], metric(run, "gradient/norm"))
        return
    same(
        chart(page, "Standard deviation of the distribution")["standard deviation"],
        metric(run, "distribution/std"),
    )
    noise = np.sqrt([x or np.nan for x in metric(run, "distribution/noise")])
    same(chart(page, "Standard deviation of the distribution")["of the added noise"], list(noise))
    title = "Elites that gradient steps produced"  # of generations in which there were any
    same(chart(page, title)[title], [None, None, *metric(run, "elites/trained")[2:]])


def test_what_is_drawn_lies_where_it_should(tmp_path: Path) -> None:
    """The line of ranks: the first on top, the last of 33 at the bottom, along the steps of all members."""
    run = write_sampled(tmp_path / "run", "es", 32, 20)
    text, _ = report(run, SAMPLED)
    points = path_of(text, "Rank of the mean", "median")
    steps = np.array([row["steps"] for row in rows(run, "lineage.jsonl")])
    ranks = np.array(metric(run, "mean/rank"), float)
    assert points[:, 0] == pytest.approx(2000 * steps / steps[-1], abs=1)
    assert points[:, 1] == pytest.approx(1000 * (ranks - 1) / 32, abs=1)


def test_the_bands(tmp_path: Path) -> None:
    """From worst to best, and a standard deviation around the average that does not leave it."""
    run = write_sampled(tmp_path / "run", "es", 32, 5)
    text, page = report(run, SAMPLED)
    plot = next(a for _, a in page.tags if a.get("aria-label") == "Fitness of the mean and of the members")
    data = json.loads(plot["data-chart"] or "")
    low, high, average, variance = (
        np.array(metric(run, f"returns/{name}"), float) for name in ("min", "max", "mean", "variance")
    )
    ends = {
        "band": (low, high),
        "inner": (np.maximum(average - variance**0.5, low), np.minimum(average + variance**0.5, high)),
    }
    for kind, (bottom, top) in ends.items():
        svg = text.split("<title>Fitness of the mean and of the members</title>", 1)[1]
        outline = re.findall(rf'<path class="{kind}" d="M([^"]*)Z"', svg)[0].split("L")
        y = 1 - np.array([int(point.split()[1]) for point in outline]) / 1000
        values = data["low"] + y * (data["high"] - data["low"])
        near = 2e-3 * (data["high"] - data["low"])
        assert values == pytest.approx(np.r_[top, bottom[::-1]], abs=near)


@pytest.mark.parametrize(
    ("method", "population", "generations", "more"),
    [
        ("es", 32, 20, {"finished": False}),
        ("cem_rl", 10, 1, {}),
        ("es", 2, 1, {"finished": False}),
        ("cem_rl", 4, 6, {"diverged": 1.0}),
        ("es", 1024, 2500, {"decay": 0.999, "diverged": 0.01}),
    ],
)  # fmt: skip
def test_any_sampled_run_has_a_page(
    tmp_path: Path, method: str, population: int, generations: int, more: dict[str, Any]
) -> None:
    text, page = report(write_sampled(tmp_path / "run", method, population, generations, **more), SAMPLED)
    assert not OF_COPYING.search(page.words.split("env: CartPole")[0])
    assert f"Training run · {method}" in page.words
    assert f"{population * generations:,} members sampled in all" in page.words
    assert f"{population:,} members were sampled around it" in page.words
    assert ("No fitness yet" in page.words) == (more.get("diverged") == 1.0)
    assert ("Bold lines are means over" in page.words) == (generations > 200)
    assert len(text) < 1_500_000
    assert text.count("<title>") == text.count("<svg role=") + 1 == text.count("<desc>") + 1


def test_hyperparameters_that_decay(tmp_path: Path) -> None:
    run = write_sampled(tmp_path / "run", "es", decay=0.9)
    _, page = report(run, SAMPLED)
    same(chart(page, "sigma")["sigma"], [row["hyper"]["sigma"] for row in rows(run, "lineage.jsonl")])
    assert "It went from 0.05 to 0.006754." in page.words and "Not tuned: learning_rate 0.02." in page.words


def test_nobody_learned_by_gradient(tmp_path: Path) -> None:
    """Before the memory is full enough, and where nobody is trained at all, no share of theirs is told."""
    run = write_sampled(tmp_path / "run", "cem_rl", 10, 2)
    write_about(run, "cem_rl", explanation="")
    _, page = report(run, SAMPLED)
    assert "gradient steps" not in page.words and "10 members were sampled around it" in page.words


@pytest.mark.parametrize("window", [3, 5])
def test_smoothing(window: int) -> None:
    values = np.array([1.0, 4.0, np.nan, 2.0, 8.0, 0.0])
    half = window // 2
    expected = [np.nanmean(values[max(at - half, 0) : at + half + 1]) for at in range(len(values))]
    expected[2] = np.nan
    assert smoothed(values, window) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_diversity_is_that_of_the_files(tmp_path: Path, missing: float) -> None:
    run = write_dvd(tmp_path / "run", missing=missing)
    text, page = report(run, DVD)
    assert not OF_COPYING.search(page.words.split("env: CartPole")[0])
    same(chart(page, "Diversity of the population")["determinant"], metric(run, "diversity/determinant"))
    chosen = [row["hyper"]["diversity"] for row in rows(run, "lineage.jsonl")[::5]]
    same(chart(page, "Weight of diversity")["diversity"], chosen)
    assert f"0 in {chosen.count(0.0)}, 0.5 in {chosen.count(0.5)} of 12 generations." in page.words


@pytest.mark.parametrize(
    ("population", "generations", "more"),
    [
        (2, 1, {}),
        (5, 3, {"missing": 1.0}),
        pytest.param(40, 700, {}, marks=pytest.mark.slow),
        (100, 2, {}),
        (4, 6, {"arms": (0.3,)}),
    ],
)
def test_any_diverse_run_has_a_page(tmp_path: Path, population: int, generations: int, more: dict[str, Any]) -> None:
    text, page = report(write_dvd(tmp_path / "run", population, generations, **more), DVD)
    assert ("Diversity of the population" in page.words) == ("missing" not in more)
    assert ("0.3 in 6 of 6 generations." in page.words) == ("arms" in more)
    assert len(text) < 2_000_000


def test_determinants_that_float32_does_not_hold(tmp_path: Path) -> None:
    run = write_dvd(tmp_path / "run", 30, 4)
    entries = rows(run, "metrics.jsonl")
    for entry in entries:
        entry["members"]["diversity/determinant"] = [0.0] * 30
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    _, page = report(run, DVD)
    same(
        chart(page, "Diversity of the population")["determinant"],
        list(np.exp(metric(run, "diversity/log_determinant"))),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("finished", [True, False])
def test_the_control(tmp_path: Path, finished: bool) -> None:
    _, page = report(write_independent(tmp_path / "run", finished=finished), SEEDS)
    assert "This is the control" in page.words and "learned by ppo" in page.words
    words = page.words.split("env: CartPole")[0]
    assert not OF_COPYING.search(words), OF_COPYING.search(words)


def test_a_workspace_of_the_control(tmp_path: Path) -> None:
    for slot, name in enumerate(("a", "b")):
        run = worker(tmp_path, name, slot, 4, copying=False)
        write_about(run, "independent")
    _, page = report(tmp_path, (*SEEDS[:-1], "workers", SEEDS[-1]))
    assert "8 agents learned side by side" in page.words and "This is the control" in page.words
    words = page.words.split("env: CartPole")[0]
    assert not OF_COPYING.search(words), OF_COPYING.search(words)


def test_the_usual_method_is_said_too(tmp_path: Path) -> None:
    _, page = report(write_run(tmp_path / "run", 4, 3), SECTIONS)
    assert "Training run · pbt" in page.words


ODD: list[Any] = [float("nan"), "text", [None], None, [], {}, [1, 2, 3], [{}], -1, True]


@pytest.mark.parametrize(("value",), every_slow(zip(ODD, strict=True), 3))
@pytest.mark.parametrize("write", [write_sampled, write_dvd, write_independent])
def test_odd_values_anywhere(tmp_path: Path, write: Any, value: object) -> None:
    run = write(tmp_path / "run", population=4, generations=4)
    entries = rows(run, "metrics.jsonl")
    for at, entry in enumerate(entries[:3]):
        for field in list(entry["members"])[at % 2 :: 2]:
            entry["members"][field] = value
    entries[3]["members"] = value
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    write_report(run)
    traits = {"sampled": value, "copies": value, "tunes": value}
    every = dict.fromkeys(("name", "title", "traits", "explanation", "metric_descriptions"), value)
    for about in (value, every, {"traits": traits}, {"metric_descriptions": {"episode/return": value}}):
        (run / "method.json").write_text(json.dumps(about))
        write_report(run)
    for method in (
        value,
        {"name": value},
        {"name": "cem_rl", "gradient_members": value},
        {"name": "dvd", "arms": value},
    ):
        (run / "result.json").write_text(json.dumps({"method": value, "population": value}))
        (run / "experiment.yaml").write_text(f"method: {json.dumps(method)}\npopulation: {json.dumps(value)}")
        write_report(run)


def test_traits_not_names_make_the_page(tmp_path: Path) -> None:
    """A method by any name has the page of its traits, and tells its own explanation; nothing recorded is no figure."""
    own = {"name": "lab:Nearby", "title": "a search nearby", "explanation": "The best became the mean."}
    run = write_sampled(tmp_path / "sampled", "es", 8, 3)
    write_about(run, "es", **own)
    entries = rows(run, "metrics.jsonl")
    for entry in entries:
        entry["members"] = {k: v for k, v in entry["members"].items() if k.startswith(("returns", "mean"))}
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    _, page = report(run, SAMPLED)
    for words in (
        "Training run · lab:Nearby",
        "learned by a search nearby",
        own["explanation"],
        "No steps",
        "Rank of the mean",
    ):
        assert words in page.words
    assert "8 members were sampled around it" in page.words and "Champion: the mean after" in page.words
    run = write_dvd(tmp_path / "diverse")
    write_about(run, "dvd", **own)
    assert own["explanation"] in report(run, DVD)[1].words
    run = write_run(tmp_path / "copying", 4, 5)
    write_about(run, "pbt", **own)
    assert "learned by ppo" in (words := report(run, SECTIONS)[1].words) and own["explanation"] in words


def test_decisions_are_told_in_the_words_of_the_method(tmp_path: Path) -> None:
    """Each change where there are few; nothing of what has no words, or was not recorded."""
    run = write_run(tmp_path / "run", 4, 12)
    said = {"own/pace": "generations <between> copyings", "own/noise": "noise", "own/always": "what never changes"}
    write_about(run, "pbt", metric_descriptions=said | {"own/missing": "nowhere", "own/odd": 3})
    entries = rows(run, "metrics.jsonl")
    noise = [None, *np.linspace(0, 1, 11).tolist()]
    for g, entry in enumerate(entries):
        pace = 1 if g < 3 else 2 if g < 7 else 4
        own = {"own/pace": pace, "own/noise": noise[g], "own/always": 0.5, "own/odd": g, "other": g}
        entry["members"] |= {name: [x] * 4 for name, x in own.items()}
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    text, page = report(run, (SECTIONS[0], "decisions", *SECTIONS[1:]))
    for words in (
        "Generations <between> copyings",
        "It was 1 at first, then 2 after generation 4, 4 after generation 8.",
        "It changed 10 times, between 0 and 1; the median is 0.5.",
        "It was 0.5 throughout.",
        "Decided after each generation; recorded as own/always.",
    ):
        assert words in page.words
    decisions = text.partition('id="decisions"')[2].partition("</section>")[0]
    assert decisions.count("<figure") == 3 and "nowhere" not in page.words
    same(chart(page, "Noise")["noise"], noise)


def test_what_nothing_is_said_of_is_taken_for_copying(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 4, 3)
    (run / "method.json").unlink()
    _, page = report(run, SECTIONS)
    assert "Training run finished" in page.words


def test_hostile_method_names_stay_text(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>\"'"
    run = write_run(tmp_path / "run", 4, 3)
    write_about(run, "pbt", name=evil)
    text, page = report(run)
    assert evil in page.words and "img" not in {tag for tag, _ in page.tags} and evil in unescape(text)


def test_an_axis_may_run_down() -> None:
    assert Axis(33, 1).place([1, 17, 33]) == pytest.approx([1, 0.5, 0])
