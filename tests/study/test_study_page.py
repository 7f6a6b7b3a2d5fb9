"""The page of a study of many arms, from runs that were written by hand."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import norm

from shoal.study.compare import Comparison, seeds_summary, stopped
from shoal.study.page import render
from shoal.study.results import read_results, write_runs

SCORES = {  # of ten seeds; every run of the first is significantly better than every one of the last, the others are alike
    "high": range(30, 40),
    **{f"alike {k}": range(10, 20) for k in range(8)},
    "low": range(10),
}


def write(path: Path, place: str, score: float | None, **more: Any) -> None:
    """A run that is done; without a champion where there is no score. more: of its evaluation"""
    run = path / "runs" / place
    run.mkdir(parents=True, exist_ok=True)
    champion = None if score is None else {"evaluation": {"mean": score} | more}
    (run / "result.json").write_text(json.dumps({"champion": champion, "status": "done", "environment_steps": 1}))
    (run / "metrics.jsonl").write_text(json.dumps({"steps": 1, "fitness": {"best": score}}) + "\n")


def page(path: Path, arms: list[str]) -> str:
    study = {"base": {"env": "CartPole-v1"}, "arms": {arm: {} for arm in arms}, "seeds": 10}
    (path / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    for arm in arms:
        for seed, score in enumerate(SCORES[arm]):
            write(path, f"{arm}/{seed}", score)
    return render(read_results(path))


def test_tasks_are_put_together_in_their_scales(tmp_path: Path) -> None:
    """A run without a champion has the worst score of all arms on its task; a seed counts when all its tasks are done."""
    scores = {  # by task and arm, of each seed
        "easy": {"a": [10, 80, 90], "b": [20, None]},
        "hard": {"a": [-300, -100], "b": [-500, -400]},
    }
    tasks = {"easy": {"scale": [0, 100]}, "hard": {"env": "Acrobot-v1", "scale": [-500, -100]}}
    study = {"base": {"env": "CartPole-v1"}, "arms": {"a": {}, "b": {}}, "tasks": tasks, "seeds": 3}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for task, arms in scores.items():
        for arm, given in arms.items():
            for seed, score in enumerate(given):
                write(tmp_path, f"{task}/{arm}/{seed}", score)
    results = read_results(tmp_path)
    np.testing.assert_allclose(results.scores("a"), [[0.1, 0.5], [0.8, 1.0]])
    np.testing.assert_allclose(results.scores("b"), [[0.2, 0.0], [np.nan, 0.25]])
    np.testing.assert_allclose(results.counted("b"), [[0.2, 0.0], [0.1, 0.25]])
    shown = render(results)
    assert "a has the highest interquartile mean: 0.65." in shown  # of 0.5 and 0.8
    assert "<td>a</td><td>b</td><td>0.81</td>" in shown  # 2.5 of 4 pairs of the easy task, 4 of 4 of the hard one
    by_task = shown.partition("Task by task")[2].partition("</figure>")[0]
    assert "Ahead: a on 2 of 2 tasks." in by_task
    cells = re.findall(r'<b style="--v:(\d+)%" title="([^"]*)">([^<]*)</b>', by_task)
    assert cells == [
        ("100", "a on easy: 10, 80, 90", "60"),
        ("0", "b on easy: 20, –", "15"),
        ("100", "a on hard: -300, -100", "-200"),
        ("0", "b on hard: -500, -400", "-450"),
    ]
    assert "<td>easy</td><td>60</td><td>15</td>" in by_task


def test_an_arm_is_not_ahead_by_the_runs_that_did_not_diverge(tmp_path: Path) -> None:
    """Its others count as the worst run of the task, as they do where arms are compared."""
    study: dict = {"base": {"env": "CartPole-v1"}, "arms": {"a": {}, "b": {}}, "seeds": 3}
    study["tasks"] = {task: {"scale": [0, 1]} for task in ("easy", "hard")}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for task in study["tasks"]:
        for seed, (one, other) in enumerate(zip((50, None, None), (20, 45, 45), strict=True)):
            write(tmp_path, f"{task}/a/{seed}", one)
            write(tmp_path, f"{task}/b/{seed}", other)
    shown = render(read_results(tmp_path))
    assert "Ahead: b on 2 of 2 tasks." in shown and "<td>hard</td><td>36.67</td><td>30</td>" in shown


@pytest.mark.parametrize("games", [["kuhn", "leduc"], ["kuhn"], []])
def test_scores_of_games_are_told_as_minus_exploitability(tmp_path: Path, games: list[str]) -> None:
    """A study of games alone, of one game beside an environment, and of none."""
    tasks = {
        name: {"env": f"game:{name}" if name in games else "CartPole-v1", "scale": [-2, 0]}
        for name in ("kuhn", "leduc")
    }
    study = {"base": {}, "arms": {"a": {}, "b": {}}, "tasks": tasks, "seeds": 2}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for task, arm, seed in itertools.product(tasks, "ab", range(2)):
        write(tmp_path, f"{task}/{arm}/{seed}", -seed - 0.5, **{"exact": True} if task in games else {})
    shown = render(read_results(tmp_path))
    assert ("exploitability" in shown) == bool(games)
    assert ("held-out" in shown) == (len(games) < 2)
    assert shown.count("many noisy scores") == 2 - len(games)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ({"easy": (500, 500), "hard": (-90, -80)}, "Ahead: b on 1 of 2 tasks."),
        ({"easy": (500, 500), "hard": (-90, -90)}, "Ahead: no arm on any of 2 tasks."),
        ({"easy": (None, None), "hard": (-90, None)}, "Ahead: a on 1 of 2 tasks."),
    ],
)
def test_arms_that_are_level_on_a_task_are_not_ahead_there(tmp_path: Path, scores: dict, told: str) -> None:
    """Nor is one where no run has a champion."""
    study: dict = {"base": {"env": "CartPole-v1"}, "arms": {"a": {}, "b": {}}, "seeds": 2}
    study["tasks"] = {task: {"scale": [0, 1]} for task in scores}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for task, each in scores.items():
        for arm, score in zip("ab", each, strict=True):
            for seed in range(2):
                write(tmp_path, f"{task}/{arm}/{seed}", score)
    assert told in render(read_results(tmp_path))


def test_many_arms_are_a_map_in_the_order_of_their_middles(tmp_path: Path) -> None:
    shown = page(tmp_path, list(SCORES)[::-1])
    found = re.findall(r"<i>([^<]*)</i>|<b [^>]*>([^<]*)</b>", shown[shown.index('class="heat"') :])
    rows = [[word for _, word in found[11 * k + 1 : 11 * k + 11]] for k in range(1, 11)]
    assert [found[11 * k][0] for k in range(1, 11)] == [
        "1 high",
        *(f"{k + 2} alike {7 - k}" for k in range(8)),
        "10 low",
    ]
    assert rows[0] == ["", *["1.00 ★"] * 9] and rows[9] == [*["0.00 ★"] * 9, ""]
    assert rows[4] == ["0.00 ★", *["0.50"] * 3, "", *["0.50"] * 4, "1.00 ★"]
    assert shown.count("better than") > 17 and "Every pair in words" in shown
    looks = set(re.findall(r'"key curve (c\d(?: d2)?)(?: on\d)?"', shown))
    assert len(looks) == 10, "no two arms look the same"


def test_few_arms_are_a_table(tmp_path: Path) -> None:
    shown = page(tmp_path, ["low", "high"])
    assert 'class="heat"' not in shown and "high is significantly better than low" in shown
    assert "1 of 1 pair is significantly different." in shown and "At the end high is ahead: 34.5." in shown


def test_runs_can_be_sorted_and_lead_to_their_own_pages(tmp_path: Path) -> None:
    """By numbers, whatever they look like; where a run has no page, its arm is a word."""
    page(tmp_path, ["low", "high"])
    told = {"champion": {"evaluation": {"mean": 31.5}}, "status": "done", "environment_steps": 1234567}
    (tmp_path / "runs/high/3/result.json").write_text(json.dumps(told))
    (tmp_path / "runs/high/3/report.html").write_text("")
    shown = render(read_results(tmp_path)).partition('id="runs"')[2]
    assert 'class="sortable"' in shown and '<td data-v="1234567">1,234,567</td>' in shown
    assert re.findall(r'<a href="([^"]*)">([^<]*)</a>', shown) == [("runs/high/3/report.html", "high")]


def test_bands_lie_below_all_lines(tmp_path: Path) -> None:
    shown = page(tmp_path, ["low", "high"])
    strokes = shown.partition('id="curves"')[2].partition("</svg>")[0]
    kinds = re.findall(r'<path class="(area faint|curve) c\d"', strokes)
    assert kinds == ["area faint", "area faint", "curve", "curve"]


def looks(path: Path, arms: list[str], **fields: object) -> None:
    """A study of ten seeds, of which there are looks after five and all."""
    page(path, arms)
    study = yaml.safe_load((path / "study.yaml").read_text())
    (path / "study.yaml").write_text(yaml.safe_dump(study | {"interim_analyses": [5, 10]} | fields, sort_keys=False))


def undo(path: Path, arm: str, seeds: range) -> None:
    for seed in seeds:
        (path / "runs" / arm / str(seed) / "result.json").unlink()


def test_arms_are_compared_at_looks_alone(tmp_path: Path) -> None:
    """The second half of the error is for the second look; what is done in between changes nothing."""
    looks(tmp_path, ["low", "high", "alike 0"], pairs=[["low", "high"], ["high", "alike 0"]])
    undo(tmp_path, "low", range(4, 10))
    assert compared(tmp_path) == {} and stopped(read_results(tmp_path)) is None, "the first is to come"
    write(tmp_path, "low/4", 4)
    least = 2 / math.comb(10, 5)
    for seed, score in ((None, None), (5, 100.0), (6, 100.0)):
        if seed is not None:
            write(tmp_path, f"low/{seed}", score)
        assert compared(tmp_path) == pytest.approx({("low", "high"): 4 * least, ("high", "alike 0"): 4 * least})
        assert stopped(read_results(tmp_path)) == 5
    shown = render(read_results(tmp_path))
    assert "5 seeds of at most 10" in shown and "finished" in shown
    assert "after 5, 10 seeds and never in between; the latest was after 5 seeds" in shown


def test_it_goes_on_until_all_that_is_asked_is_told_apart(tmp_path: Path) -> None:
    looks(tmp_path, ["low", "high", "alike 0", "alike 1"])
    assert stopped(read_results(tmp_path)) is None
    found = compared(tmp_path)
    assert found["alike 0", "alike 1"] == 1
    assert found["low", "high"] == pytest.approx(6 * 2 * 2 / math.comb(20, 10)), "the better of the two looks"
    looks(tmp_path, ["low", "high", "alike 0", "alike 1"], pairs=[["low", "alike 1"]])
    assert stopped(read_results(tmp_path)) == 5


def test_an_analysis_that_found_the_opposite_is_no_evidence(tmp_path: Path) -> None:
    """After six seeds a is ahead of b, and significantly so; after twenty b is ahead, and not significantly."""
    more = {"interim_analyses": [6, 20], "pairs": [["a", "b"], ["a", "c"]]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"arms": {"a": {}, "b": {}, "c": {}}, "seeds": 20} | more))
    for seed in range(20):
        write(tmp_path, f"a/{seed}", 10 + seed if seed < 6 else 80 + 2 * seed)
        write(tmp_path, f"b/{seed}", seed if seed < 6 else 89 + 2 * seed)
        write(tmp_path, f"c/{seed}", 10 + seed)
        if seed == 5:
            assert Comparison(read_results(tmp_path)).pairs[0].summary.startswith("a is significantly better than b")
    pair = Comparison(read_results(tmp_path)).pairs[0]
    assert pair.improvement < 0.5 and pair.p > 0.05, pair.summary


def test_runs_after_the_look_that_ended_a_study_are_not_among_the_planned(tmp_path: Path) -> None:
    """Another process may have begun them before; the page said that 30 of 15 were done."""
    looks(tmp_path, ["low", "high", "alike 0"], pairs=[["low", "high"]])
    assert stopped(read_results(tmp_path)) == 5
    assert "15 of 15 planned runs done" in render(read_results(tmp_path))


def test_arms_that_wait_for_their_first_look_are_several(tmp_path: Path) -> None:
    """They are neither one arm alone, nor without two runs each."""
    looks(tmp_path, ["low", "high"], interim_analyses=[7, 10])
    undo(tmp_path, "low", range(6, 10))
    assert compared(tmp_path) == {}
    shown = render(read_results(tmp_path))
    assert shown.count("No two arms are compared yet.") == 2 and "none has taken place yet" in shown
    assert "one arm alone" not in shown and "two runs each" not in shown


def test_an_arm_with_few_runs_says_nothing_of_the_others(tmp_path: Path) -> None:
    """With ten seeds of two arms a difference could be significant, however few the third has."""
    page(tmp_path, ["alike 0", "alike 1", "low"])
    undo(tmp_path, "low", range(1, 10))
    shown = render(read_results(tmp_path))
    assert "No two arms are significantly different with 10 seeds." in shown and "Too few seeds" not in shown
    write(tmp_path, "low/1", 11.5)
    shown = render(read_results(tmp_path))
    assert "No two arms are significantly different with 2 seeds." in shown and "Too few seeds" not in shown


def compared(path: Path) -> dict[tuple[str, str], float]:
    return {(pair.one, pair.other): pair.p for pair in Comparison(read_results(path)).pairs}


def test_how_many_seeds_it_takes(tmp_path: Path) -> None:
    """Two arms of equal standard deviation: the formula of Noether by hand, for a difference of 5 % of the scale."""
    study = {"base": {"env": "a"}, "arms": {"a": {}, "b": {}}, "seeds": 6, "tasks": {"x": {"scale": [0, 200]}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    summary = seeds_summary(read_results(tmp_path))
    assert (
        "6 seeds of each arm detect a difference" in summary and "once arms have two runs this says how many" in summary
    )
    for arm, shift in (("a", 0), ("b", 60)):
        for seed, score in enumerate((0, 10, 20)):
            write(tmp_path, f"x/{arm}/{seed}", score + shift)  # a standard deviation of 10: the difference that matters
    ahead = norm.cdf(1 / math.sqrt(2)) - 0.5
    needed = math.ceil((norm.ppf(0.975) + norm.ppf(0.8)) ** 2 / (6 * ahead**2))
    assert f"A difference of 5% of the scale takes about {needed} seeds" in seeds_summary(read_results(tmp_path))
    assert seeds_summary(read_results(tmp_path)) in told_in(render(read_results(tmp_path)), "pairs")


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("arms: {a: {}, b: {}}\nseeds: 1")
    assert seeds_summary(read_results(tmp_path)).startswith(
        "1 seed of each arm is too few for any significant difference"
    )


def test_nobody_is_ahead_of_an_equal(tmp_path: Path) -> None:
    shown = page(tmp_path, ["low", "alike 0", "alike 1"])
    assert (
        "At the end alike 0, alike 1 are on par: 14.5." in shown
        and "2 of 3 pairs are significantly different." in shown
    )


def test_runs_without_any_fitness_have_no_curve(tmp_path: Path) -> None:
    page(tmp_path, ["low", "high"])
    write(tmp_path, "low/0", None)
    write(tmp_path, "high/0", None)
    shown = render(read_results(tmp_path))
    assert "At the end high is ahead: 35" in shown  # of 31 to 39
    for arm in ("low", "high"):
        for seed in range(10):
            write(tmp_path, f"{arm}/{seed}", None)
    assert "In no run did a member have a finite fitness." in render(read_results(tmp_path))


def test_a_task_without_curves_is_named(tmp_path: Path) -> None:
    tasks = {name: {"env": "CartPole-v1", "scale": [0, 1]} for name in ("easy", "hard", "new")}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"arms": {"a": {}}, "tasks": tasks, "seeds": 1}))
    for task, score in (("easy", 1), ("hard", None)):
        write(tmp_path, f"{task}/a/0", score)
    curves = render(read_results(tmp_path)).partition('id="curves"')[2].partition("</section>")[0]
    found = re.findall(r'<h3>(.*?)</h3>.*?<p class="finding">(.*?)</p>', curves)
    assert found[1:] == [("hard", "In no run did a member have a finite fitness."), ("new", "No run is done yet.")]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(900, 100), (900, 109), (600, 404)], "All arms cost the same"),
        (
            [(900, 100), (900, 250), (900, 211)],
            "low 15%, alike 0 11% more steps than high, evaluation included, although they train for equally many.",
        ),
        (
            [(900, 100), (1400, 100), (900, 100)],
            "low 50% more steps than high, evaluation included, and do not train for equally many.",
        ),
    ],
)
def test_what_arms_cost(tmp_path: Path, steps: list[tuple[int, int]], words: str) -> None:
    """Of each run in the table, of each arm on the page; an arm of which nothing is told is left out."""
    arms = ["high", "low", "alike 0", "alike 1"]
    page(tmp_path, arms)
    for arm, (training, evaluation) in zip(arms, steps, strict=False):
        for seed in range(10):
            at = tmp_path / "runs" / arm / str(seed) / "result.json"
            own = {"environment_steps": training + (-1) ** seed, "evaluation_steps": evaluation - (-1) ** seed}
            at.write_text(json.dumps(json.loads(at.read_text()) | own))
    results = read_results(tmp_path)
    shown = told_in(render(results), "cost")
    assert words in shown and "|alike 1|" not in shown
    for arm, (training, evaluation) in zip(arms, steps, strict=False):
        assert f"|{arm}||||{training:,}||{evaluation:,}||{training + evaluation:,}|" in shown
    head = render(results).split("<section")[0]
    assert ("do not cost the same" in head) == ("do not cost the same" in shown) == ("more" in words)
    with write_runs(results).open(newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["arm"] == "low"]
    assert {row["all_steps"] for row in rows} == {str(sum(steps[1]))}


def told_in(shown: str, section: str) -> str:
    """The words of a section."""
    return re.sub(r"<[^>]*>", "|", shown[shown.index(f'<section id="{section}"') :].split("</section>")[0])


def fail(path: Path, place: str, why: str) -> None:
    """A run that has failed, and left nothing else."""
    (path / "runs" / place / "result.json").unlink()
    (path / "failures" / place).parent.mkdir(parents=True, exist_ok=True)
    (path / "failures" / f"{place}.txt").write_text(f"{why}\n")


def test_an_arm_without_champions_has_no_score_of_its_own(tmp_path: Path) -> None:
    """The worst run of the others stands for its runs where arms are compared, and nowhere else."""
    page(tmp_path, ["low", "high", "alike 0"])
    for seed in range(10):
        write(tmp_path, f"alike 0/{seed}", None)
    write(tmp_path, "low/9", None)
    shown = render(read_results(tmp_path))
    rows = {row[0]: row[1:] for row in re.findall(6 * r"<td>([^<]*)</td>" + "</tr>", shown.split('id="pairs"')[0])}
    assert {arm: [row[0], *row[2:]] for arm, row in rows.items()} == {
        "high": ["34.5", "34.5", "10 of 10", "0"],
        "low": ["3.5", "3.6", "10 of 10", "1"],  # 9 is gone: the middle six of 0, 0, 1, ..., 8
        "alike 0": ["–", "–", "10 of 10", "10"],
    }
    assert "high is significantly better than alike 0" in shown
    for arm in ("low", "high"):
        for seed in range(10):
            write(tmp_path, f"{arm}/{seed}", None)
    assert "No arm has champions." in render(read_results(tmp_path))


def test_runs_that_failed_are_counted_and_told(tmp_path: Path) -> None:
    page(tmp_path, ["low", "high"])
    fail(tmp_path, "low/3", "the environment <broke>")
    fail(tmp_path, "low/5", "no memory")
    shown = render(read_results(tmp_path))
    head = re.sub(r"<[^>]*>", "|", shown.split("<section")[0])
    assert "|finished|" in head and "18 of 20 planned runs done · 2 failed" in head
    assert "2 runs failed (low 2), and are in no comparison: an arm that fails where it is hard looks better" in head
    runs = told_in(shown, "runs")
    assert "|low||||3||the environment &lt;broke&gt;|" in runs and "|low||||5||no memory|" in runs
    assert "|8 of 10|" in told_in(shown, "scores") and "|10 of 10|" in told_in(shown, "scores")
    for seed in range(9):
        if seed not in (3, 5):
            fail(tmp_path, f"low/{seed}", "no memory")
    shown = render(read_results(tmp_path))
    assert "Not compared, with fewer than two seeds done on every task: low (1 of 10)." in shown
    assert "Too few seeds for any significant difference: 4 of each arm are needed, 1 done." in shown


def test_a_replay_whose_source_failed_is_told_and_waited_for_no_longer(tmp_path: Path) -> None:
    study = {"base": {"env": "CartPole-v1"}, "arms": {"pbt": {}, "again": {"replay": "pbt"}}, "seeds": 2}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    for place in ("pbt/0", "pbt/1", "again/0"):
        write(tmp_path, place, 1.0)
    assert "|in progress|" in re.sub(r"<[^>]*>", "|", render(read_results(tmp_path)))
    fail(tmp_path, "pbt/1", "no memory")
    shown = re.sub(r"<[^>]*>", "|", render(read_results(tmp_path)))
    assert "|finished|" in shown and "2 of 4 planned runs done · 2 failed" in shown
    assert "2 runs failed (pbt 1, again 1)" in shown
    assert "|again||||1||not made, for pbt 1, whose schedule it replays, failed|" in shown


@pytest.mark.parametrize("forged", ["many", [1], {"a": 1}, None, True, -1, 2**62, 10**30, 10**400, math.nan, math.inf])
def test_a_result_in_which_numbers_are_something_else(tmp_path: Path, forged: Any) -> None:
    """The page and the table are made, and what is no number is not in them."""
    page(tmp_path, ["high", "low"])
    run = tmp_path / "runs/high/0"
    steps, seconds = ("environment_steps", "evaluation_steps"), ("seconds", "compile_seconds")
    names = (*steps, *seconds, "status", "fitness", "population", "generations")
    champion = {
        "evaluation": dict.fromkeys(("mean", "standard_error", "episodes"), forged),
        "selection_fitness": forged,
    }
    (run / "result.json").write_text(json.dumps(dict.fromkeys(names, forged) | {"champion": champion}))
    (run / "metrics.jsonl").write_text(json.dumps({"steps": forged, "fitness": {"best": forged}}) + "\n")
    results = read_results(tmp_path)
    render(results)
    (row,) = (
        x
        for x in csv.DictReader(write_runs(results).read_text().splitlines())
        if (x["arm"], x["seed"]) == ("high", "0")
    )
    assert not row["environment_steps"] and not row["evaluation_steps"] and not row["episodes"]


def test_a_page_begins_with_its_result(tmp_path: Path) -> None:
    """A row for each arm, against the first; of two lines that are one the upper is dashed."""
    shown = page(tmp_path, ["high", "low", "alike 0", "alike 1"])
    head = re.sub(r"<[^>]*>", "|", shown.split("<section")[0].split("</style>")[1])
    assert "high is significantly better than low: probability of improvement 100%" in head
    assert "In all, 5 of 6 pairs of arms differ significantly." in head
    assert "probability of improvement over high" in head and "|high||" in head and "|baseline|" in head
    numbers = r"\|4\.5\| \|2\.167 to 6\.833\|[|\s]*\|0\.00\| \|0\.00 to 0\.42\|[|\s]*6\.5e-05 ★\|"
    assert re.search(numbers, head.split("|low|")[1])
    assert '<path class="curve c3 on1"' in shown and '<path class="curve c1"' in shown


@pytest.mark.parametrize(("arms", "least"), [(2, 4), (3, 5), (10, 7)])
def test_too_few_seeds_are_told_with_how_many_it_takes(tmp_path: Path, arms: int, least: int) -> None:
    """The smallest number by which the corrected test can be significant: 2 / C(2n, n) is below 5 % of the pairs."""
    pairs = arms * (arms - 1) / 2
    assert 2 / math.comb(2 * least, least) < 0.05 / pairs <= 2 / math.comb(2 * least - 2, least - 1)
    study = {"base": {"env": "a"}, "arms": {str(k): {} for k in range(arms)}, "seeds": 3}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    for arm, seed in itertools.product(range(arms), range(2)):
        write(tmp_path, f"{arm}/{seed}", 7.0)
    shown = render(read_results(tmp_path))
    told = f"Too few seeds for any significant difference: {least} of each arm are needed, 2 done, 3 are planned."
    assert (
        told in shown
        and f"3 seeds of each arm are too few for any significant difference, which takes {least}" in shown
    )
    assert "So far nothing varies: all runs of a task have the same score." in shown
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study | {"seeds": 1}))
    assert seeds_summary(read_results(tmp_path)).startswith("1 seed of each arm is too few for any significant")
