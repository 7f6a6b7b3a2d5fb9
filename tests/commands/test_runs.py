"""The list of runs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.mutations import at_most
from support.runs import shoal, tiny
from support.synthetic_run import write_run

from shoal.core.errors import BadInput
from shoal.report.load_run import load_run
from shoal.run.train import train


def listed(folder: Path) -> dict[str, str]:
    """Its lines, by the name of the run."""
    return {line.split()[0]: line for line in shoal("runs", folder).out.splitlines()[1:]}


def test_every_run_has_a_line(tmp_path: Path) -> None:
    result = train(tiny(tmp_path / "runs/one")).summary
    train(tiny(tmp_path / "runs/deep/two", method="independent", generations=1))
    lines = listed(tmp_path / "runs")
    assert [*lines] == ["one", "deep/two"]
    told = result["champion"]["evaluation"]
    score = f"{told['mean']:.4g} ± "
    for word in (
        "gymnax:CartPole-v1",
        "  pbt     ",
        "  ppo  ",
        score,
        f"{result['environment_steps']:,}",
        "done",
        result["provenance"]["date"][:10],
    ):
        assert word in lines["one"]
    assert "  independent  ppo  " in lines["deep/two"]


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


def test_workers_run_while_they_renew_their_leases(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        run = write_run(tmp_path / "w/workers" / name, population=2, generations=2, finished=name == "c")
    for folder in ("slots", "leases"):
        (tmp_path / "w" / folder).mkdir()
    shutil.copy(run / "experiment.yaml", tmp_path / "w")
    (tmp_path / "w/leases/a").write_text("here 1 realm x")

    def statuses() -> dict[str, str]:
        return {name: line.split()[-1] for name, line in listed(tmp_path).items()}

    workers = {"w/workers/b": "stopped", "w/workers/c": "done"}
    assert statuses() == {"w": "running", "w/workers/a": "running"} | workers
    (tmp_path / "w/leases/a").unlink()
    assert statuses() == {"w": "stopped", "w/workers/a": "stopped"} | workers
    for name in "ab":
        (tmp_path / "w/workers" / name / "result.json").write_text('{"status": "done"}')
    assert {*statuses().values()} == {"done"}


def test_workers_together_have_a_score_and_steps(tmp_path: Path) -> None:
    """Also where no command has started them, which would have left a result of all: until they end, the best fitness so
    far; then the return of the champion of the final selection."""
    runs = [
        write_run(tmp_path / "w/workers" / name, population=2, generations=2, seed=i) for i, name in enumerate("ab")
    ]
    for folder in ("slots", "leases"):
        (tmp_path / "w" / folder).mkdir()
    shutil.copy(runs[0] / "experiment.yaml", tmp_path / "w")
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    champions = [result["champion"] for result in results]
    worse = min((0, 1), key=lambda i: champions[i]["evaluation"]["mean"])
    candidates = {name: [champions[i]["uid"], champions[i]["generation"]] for i, name in enumerate("ab")}
    selected = {"worker": "ab"[worse], "candidates": candidates, "steps": 7}
    (tmp_path / "w/final_selection.json").write_text(json.dumps(selected))
    steps = f" {sum(result['environment_steps'] for result in results):,} "
    line = listed(tmp_path)["w"]
    assert f" {champions[worse]['evaluation']['mean']:.4g} ± " in line and steps in line and " done " in line
    (runs[0] / "result.json").unlink()
    so_far = json.loads((runs[0] / "metrics.jsonl").read_text().splitlines()[-1])["champion"]["fitness"]
    line = listed(tmp_path)["w"]
    assert f" {max(so_far, champions[1]['selection_fitness']):.4g} " in line and steps in line and "±" not in line


def test_what_is_no_run_has_a_line_too(tmp_path: Path) -> None:
    for name, text in {"broken": "a: [", "foreign": "name: another program's", "empty": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.yaml").write_text(text)
    lines = listed(tmp_path)
    assert "experiment.yaml is damaged" in lines["broken"]
    assert "experiment.yaml names no env" in lines["foreign"] and "None" not in lines["foreign"]
    assert "experiment.yaml holds no fields" in lines["empty"]
    assert lines["empty"].split()[1:4] == ["–", "–", "–"]


FILES = ("experiment.yaml", "result.json", "metrics.jsonl", "provenance.jsonl", ".lock")
SAYS = {  # of a file that is odd, after its name
    "link": "is a link",
    "pipe": "is a pipe or a device",
    "folder": "is a folder",
    "hole": "has",
    "secret": "Permission denied",
    "broken link": "is a link",
}
LOCKS = {  # what may stand in a lock, and what is said of it
    f"process 1 on {socket.gethostname()}": "running",
    f"process {10**30} on {socket.gethostname()}": ".lock is damaged",
    f"process -1 on {socket.gethostname()}": ".lock is damaged",
    f"process 0 on {socket.gethostname()}": ".lock is damaged",
    f"process 99999999999 on {socket.gethostname()}": ".lock is damaged",
    f"process \u0663 on {socket.gethostname()}": ".lock is damaged",
    "\x1b[2J": ".lock is damaged",
    "": "stopped",
}
LINES = {  # a file, what stands in it, and what is said of it
    "result.json": ("[1]", "{", '{"status": 3}', '{"champion": {"evaluation": {"mean": "x"}}}', "\0" * 99, "[" * 9999),
    "metrics.jsonl": ('{"champion": 3, "steps": {}}', "3", '{"steps": 1e999}', "{"),
    "provenance.jsonl": ('{"date": "99999-01-01"}', '{"date": {"a": 1}}', '{"date": 1e300}', "[]"),
    "experiment.yaml": ("- 1", "a: [", "env: {a: 1}\nmethod: [1]", "env: " + "x" * 9999, "a: &a [*a]", "\x1b[2J"),
}


def odd_runs(place: Path, whole: Path) -> tuple[dict[str, str], set[int]]:
    """A folder of runs each of which somebody has tampered with: what a line must say of each, and the inodes that another
    user can read alone."""
    told, secret = {}, set()

    def copied(name: str, text: str = "") -> Path:
        told[name] = text
        return Path(shutil.copytree(whole, place / name))

    for file, (kind, says) in product(FILES, SAYS.items()):
        path = copied(f"{file.strip('.')}-{kind.replace(' ', '-')}", f"{file}{':' * (kind == 'secret')} {says}") / file
        path.unlink(missing_ok=True)
        match kind:
            case "link":
                path.symlink_to(whole / file if (whole / file).exists() else whole)
            case "broken link":
                path.symlink_to(path)
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case _:
                path.touch()
                os.truncate(path, 2**40 if kind == "hole" else 0)
                if kind == "secret":
                    secret.add(path.stat().st_ino)
    for number, (text, says) in enumerate(LOCKS.items()):
        run = copied(f"lock-{number}", says)
        (run / "result.json").unlink()
        (run / ".lock").write_text(text)
    for file, texts in LINES.items():
        for number, text in enumerate(texts):
            (copied(f"{file}-{number}") / file).write_text(text)
    os.utime(copied("late") / "experiment.yaml", (0, 9e11))
    return told, secret


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """In `tmp_path`: see `odd_runs`; and a whole run."""
    whole = write_run(tmp_path / "whole", population=2, generations=2)
    told, secret = odd_runs(tmp_path, whole)
    real = os.open

    def denied(*arguments: Any, **options: Any) -> int:
        handle = real(*arguments, **options)
        if os.fstat(handle).st_ino in secret:
            os.close(handle)
            raise PermissionError(errno.EACCES, "Permission denied")
        return handle

    def of_others(pid: int, sign: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "open", denied)
    monkeypatch.setattr(os, "kill", of_others)
    return told


def test_no_odd_run_hides_another(tmp_path: Path, odd: dict[str, str]) -> None:
    with at_most(60):
        lines = listed(tmp_path)
    assert lines.keys() == {"whole", *odd} and len(odd) > 30
    for name, says in odd.items():
        assert f"  {says}" in lines[name]
    assert "  done  " in lines["whole"]
    assert max(map(len, lines.values())) < 400


def test_a_folder_as_deep_as_paths_reach(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", population=2, generations=2)
    deep = [tmp_path]
    with suppress(OSError):  # the path is too long
        while len(deep) < 1500:
            deep.append(deep[-1] / "a")
            deep[-1].mkdir()
    assert [*listed(tmp_path)] == ["whole"] and len(deep) > 1000
    for folder in deep[:0:-1]:
        with suppress(OSError):
            folder.rmdir()


@pytest.mark.parametrize("kind", ["pipe", pytest.param("", marks=pytest.mark.slow)])
def test_no_reader_waits_for_an_odd_run_or_shows_a_traceback(tmp_path: Path, odd: dict[str, str], kind: str) -> None:
    """A page is written, or one line says why not; in a workspace and in a study too."""
    (tmp_path / "w/slots").mkdir(parents=True)
    (tmp_path / "w/workers").mkdir()
    (tmp_path / "s/runs/a").mkdir(parents=True)
    (tmp_path / "s/study.yaml").write_text(
        "base: {env: CartPole-v1}\narms: {a: {}, b: {method: independent}}\nseeds: 1\n"
    )
    for name in (name for name in odd if name.endswith(kind)):
        run = tmp_path / name
        with at_most(20):
            outcomes = [
                shoal("report", run),
                shoal("compare", run, tmp_path / "whole", "--out", tmp_path / "page.html"),
            ]
            for place, member in (("w", tmp_path / "w/workers/0"), ("s", tmp_path / "s/runs/a/0")):
                run.rename(member)
                outcomes.append(shoal("report", tmp_path / place))
                member.rename(run)
            with suppress(BadInput, OSError):
                load_run(run).plot()
        for outcome in outcomes:
            assert outcome.code in (0, 1, 2) and outcome.err.count("\n") == (outcome.code > 0), (name, outcome)


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = shoal("runs")
    assert (outcome.code, outcome.err) == (
        2,
        "shoal: there is no folder runs; `shoal train` writes to runs where it is called\n",
    )
