"""The list of runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from support.runs import shoal, tiny

from shoal.run.loop import train

pytestmark = pytest.mark.usefixtures("shared_programs")


def listed(folder: Path) -> dict[str, str]:
    """Its lines, by the name of the run."""
    return {line.split()[0]: line for line in shoal("runs", folder).out.splitlines()[1:]}


def test_every_run_has_a_line(tmp_path: Path) -> None:
    result = train(tiny(tmp_path / "runs/one")).summary
    train(tiny(tmp_path / "runs/deep/two", method="seeds", generations=1))
    lines = listed(tmp_path / "runs")
    assert [*lines] == ["one", "deep/two"]
    told = result["champion"]["evaluation"]
    score = f"{told['mean']:.4g} ± "
    for word in (
        "gymnax:CartPole-v1",
        "pbt, ppo",
        score,
        f"{result['environment_steps']:,}",
        "done",
        result["provenance"]["date"][:10],
    ):
        assert word in lines["one"]
    assert "seeds, ppo" in lines["deep/two"]


def test_what_did_not_end_goes_on_or_was_stopped(tmp_path: Path) -> None:
    train(tiny(tmp_path / "a"))
    fitness = json.loads((tmp_path / "a/metrics.jsonl").read_text().splitlines()[-1])["champion"]["fitness"]
    (tmp_path / "a/result.json").unlink()
    for name in "bcd":
        shutil.copytree(tmp_path / "a", tmp_path / name)
    (tmp_path / "b/.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    (tmp_path / "c/.lock").write_text("process 7 on node17")
    (tmp_path / "d/.lock").write_text(f"process {2**22 + 1} on {socket.gethostname()}")
    lines = listed(tmp_path)
    assert f"{fitness:.4g}" in lines["a"]
    for name, status in {"a": "stopped", "b": "running", "c": "running on node17", "d": "stopped"}.items():
        assert f"  {status}  " in lines[name]


def test_what_is_no_run_is_passed_over_with_a_word(tmp_path: Path) -> None:
    for name, text in {"broken": "a: [", "foreign": "name: another program's"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.yaml").write_text(text)
    outcome = shoal("runs", tmp_path)
    assert outcome.code == 0 and outcome.out.splitlines()[0] == f"no runs below {tmp_path}"
    assert [line.rpartition("/")[2] for line in outcome.out.splitlines()[1:]] == ["broken", "foreign"]
    train(tiny(tmp_path / "damaged", generations=1))
    for name in ("result.json", "metrics.jsonl", "provenance.jsonl"):
        (tmp_path / "damaged" / name).write_text('{"a": "\x1b[2J')
    assert "damaged" in listed(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = shoal("runs")
    assert (outcome.code, outcome.err) == (
        2,
        "shoal: there is no folder runs; `shoal train` writes to runs where it is called\n",
    )
