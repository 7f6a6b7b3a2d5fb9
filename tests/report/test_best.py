"""The best hyperparameters of a page: a file that trains one agent with them, and where all members ended."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.runs import tiny
from support.synthetic_run import write_run
from test_report import change

from shoal.core.space import Range
from shoal.core.yaml_text import read_yaml
from shoal.experiment.files import differences, dump, from_dict
from shoal.experiment.plan import make_closed_plan
from shoal.report.best import single
from shoal.report.page import render
from shoal.report.run import read_run

METHODS = ("pbt", "successive_halving", "pb2", "independent")


@pytest.mark.parametrize("method", METHODS)
def test_the_block_is_the_experiment_of_one_agent_with_the_champions_values(tmp_path: Path, method: str) -> None:
    """As YAML on the page, and in the link beside it; one agent makes as many steps as the member that made most.

    Rollouts make its intervals of 60 steps 64. In the third generation the members that are left make the steps of all.
    """
    space = {"learning_rate": Range(1e-4, 1e-2, "log"), "entropy_coefficient": Range(0, 0.1)}
    hyper = {"discount": 0.97, "epochs": 2}
    made = make_closed_plan(
        replace(tiny(), method=method, population=4, generations=3, interval=60, space=space, hyper=hyper)
    )
    (tmp_path / "experiment.yaml").write_text(dump(made.experiment))
    lines = [
        {"generation": g, "uid": m, "parent": m, "fitness": 10.0 * m + g, "steps": (64, 128, 256)[g]}
        | {"hyper": {"learning_rate": 1e-3 * (m + 1), "entropy_coefficient": 0.01 * m, "discount": 0.97, "epochs": 2.0}}
        for g in range(3)
        for m in range(4)
    ]
    (tmp_path / "lineage.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = render(read_run(tmp_path))
    text = html.unescape(shown.partition('aria-label="best.yaml">')[2].partition("</pre>")[0])
    assert unquote(html.unescape(shown.partition("charset=utf-8,")[2].partition('"')[0])) == text
    best = make_closed_plan(from_dict(read_yaml(text))).experiment
    assert (
        best.hyper | {"learning_rate": 4e-3, "entropy_coefficient": 0.03, "discount": 0.97, "epochs": 2} == best.hyper
    )
    assert (best.population, best.generations, best.method_name, best.space) == (1, 4, "independent", {})
    changed = {name.partition(".")[0] for name in differences(best, made.experiment)}
    assert changed <= {
        "hyper",
        "population",
        "generations",
        "method",
        "space",
        "seed",
        "shards",
        "run_dir",
        "checkpoint",
    }
    lines_drawn = re.findall(r'<path class="m shade(\d)" data-m="(\d)"', shown)
    assert lines_drawn == [("0", "0"), ("1", "1"), ("2", "2"), ("3", "3")], "the fittest is drawn last, and darkest"


@pytest.mark.parametrize("gpus", [[], [1]])
def test_the_file_keeps_how_trainers_work(tmp_path: Path, gpus: list[int]) -> None:
    """One that needs a GPU gets it with the file too; what is as by default is not said."""
    run = write_run(tmp_path / "run", 4, 5)
    processes = {"count": None, "threads": 1, "gpus": gpus, "timeout": 3600.0}
    change(run, agent="rl_games:task.yaml", processes=processes)
    assert single(read_run(run)).get("processes") == (processes if gpus else None)
