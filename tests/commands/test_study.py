"""`shoal study`: all runs are made, once; it can be stopped and shared; the page says what came of it."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.forged import forged, loud
from support.messages import Said
from support.runs import SETTINGS, Signals, shoal, start, tiny
from support.runs import rows as lines

from shoal.core.atomic import read_or_nothing
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed
from shoal.distributed.directory_probe import probe
from shoal.distributed.lease import Lease, realm_here
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import dump
from shoal.experiment.plan import make_plan
from shoal.records.screen import Output
from shoal.run import control
from shoal.study import scheduler
from shoal.study.scheduler import run_study
from shoal.study.study_file import read

ARMS = {"pbt": {}, "control": {"method": "independent"}, "again": {"replay": "pbt"}}
TIMES = ("seconds", "compile_seconds", "date", "command")


def file(folder: Path, **fields: object) -> Path:
    path = folder / "compare.yaml"
    path.write_text(yaml.safe_dump({"base": SETTINGS, "arms": ARMS, "seeds": 1} | fields, sort_keys=False))
    return path


def rows(study: Path) -> list[dict]:
    """study.csv but for the times."""
    with (study / "study.csv").open(newline="") as text:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(text)]


def began(run: Path) -> int:
    """Time of the first checkpoint kept of a run, which a run that begins anew writes once more."""
    return min((run / "checkpoints").glob("[0-9]*")).joinpath("manifest.json").stat().st_mtime_ns


def test_a_study(tmp_path: Path) -> None:
    done = shoal("study", file(tmp_path), "--workspace", tmp_path / "out")
    assert done.code == 0, done.err
    assert "3 of 3 runs" in done.out and "report: open" in done.out
    assert "Too few seeds for any significant difference" in (tmp_path / "out/report.html").read_text()
    assert (tmp_path / "out/runs/again/0/experiment.yaml").read_text().find("seed: 1000000") > 0
    # what is done stays when seeds are added
    before = (tmp_path / "out/runs/pbt/0/result.json").stat().st_mtime_ns
    assert shoal("study", file(tmp_path, seeds=2), "--workspace", tmp_path / "out", "--quiet").code == 0
    assert (tmp_path / "out/runs/pbt/0/result.json").stat().st_mtime_ns == before
    # and has its page, where a kill came between the two; once more, nothing is left to do
    (tmp_path / "out/runs/again/0/report.html").unlink()
    for _ in range(2):
        assert shoal("study", file(tmp_path, seeds=2), "--workspace", tmp_path / "out", "--quiet").code == 0
        assert (tmp_path / "out/runs/pbt/0/result.json").stat().st_mtime_ns == before
    found = rows(tmp_path / "out")
    assert [(r["arm"], r["seed"]) for r in found] == [(a, str(s)) for a in ARMS for s in (0, 1)]
    assert all(r["environment_steps"] == "512" and r["status"] == "done" for r in found)
    times = list(csv.DictReader((tmp_path / "out/study.csv").read_text().splitlines()))
    assert all(0 <= float(r["compile_seconds"]) <= float(r["seconds"]) for r in times)
    page = (tmp_path / "out/report.html").read_text()
    linked = [tmp_path / "out" / link for link in re.findall(r'href="(runs/[^"]*)"', page)]
    assert len(linked) == len(found) and all("<!doctype html>" in path.read_text() for path in linked)
    assert "are not significantly different with 2 seeds" in page and "Performance profiles" in page
    other = shoal("study", file(tmp_path, base=SETTINGS | {"interval": 128}), "--workspace", tmp_path / "out")
    assert other.code == 2 and "holds another study than" in other.err


def test_tasks_that_have_runs_stay_as_they_are(tmp_path: Path, said: Said) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.yaml").write_text(file(tmp_path, tasks={"a": {"env": "Acrobot-v1"}}).read_text())
    (out / "runs/a/pbt/0").mkdir(parents=True)
    other = shoal("study", file(tmp_path, tasks={"a": {"env": "CartPole-v1"}}), "--workspace", out)
    assert other.code == 2
    said(other.err)


def test_a_study_of_one_task_gets_another_one(tmp_path: Path) -> None:
    """With the scale that one task needs not have, which changes no run."""
    out, one = tmp_path / "out", {"a": {"env": "Acrobot-v1"}}
    out.mkdir()
    (out / "study.yaml").write_text(file(tmp_path, tasks=one).read_text())
    (out / "runs/a/pbt/0").mkdir(parents=True)
    path = file(tmp_path, tasks={"a": one["a"] | {"scale": [-500, -100]}, "b": {"scale": [0, 500]}})
    scheduler._write_study(read(path), out, path)
    assert read(out / "study.yaml").scale("a") == (-500, -100)


def test_runs_without_a_task_are_not_left_out_by_tasks_that_are_added(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.yaml").write_text(file(tmp_path).read_text())
    (out / "runs/pbt/0").mkdir(parents=True)
    refused = shoal("study", file(tmp_path, tasks={"a": {"scale": [0, 500]}}), "--workspace", out)
    assert refused.code == 2 and "it has runs of arm pbt that the file does not describe" in refused.err


def test_arms_that_have_runs_stay_as_they_are(tmp_path: Path, said: Said) -> None:
    """They may not be left out either: else they could come back as others."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.yaml").write_text(file(tmp_path).read_text())
    (out / "runs/pbt/0").mkdir(parents=True)
    (study,) = [yaml.safe_load((out / "study.yaml").read_text())]
    for arms in ({**study["arms"], "pbt": {"method": "pb2"}}, {"control": study["arms"]["control"]}):
        refused = shoal("study", file(tmp_path, arms=arms), "--workspace", out)
        assert refused.code == 2
        said(refused.err)
        assert yaml.safe_load((out / "study.yaml").read_text()) == study


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 1e9)  # however slow this machine is
    path, run = file(tmp_path, base=SETTINGS | {"generations": 3}, arms={"pbt": {}}), tmp_path / "out/runs/pbt/0"
    command = ("study", path, "--workspace", tmp_path / "out")
    with monkeypatch.context() as during:
        during.setattr("shoal.study.scheduler.TensorBoard", lambda: Signals(1, "train"))
        stopped = shoal(*command)
    assert (stopped.code, stopped.err) == (3, "")
    assert f"interrupted; continue with: shoal study {path} --workspace {tmp_path / 'out'}\n" in stopped.out
    assert [p.name for p in sorted((run / "checkpoints").glob("[0-9]*"))] == ["00000000", "00000001"]
    before = began(run)
    assert shoal(*command).code == 0
    assert began(run) == before and len(rows(tmp_path / "out")) == 1


def test_a_run_of_another_experiment_is_not_the_studys(tmp_path: Path, said: Said) -> None:
    """Neither is it counted, nor does it go on; what it names is not imported, and it stays as it is."""
    made = make_plan(tiny()).experiment  # as the study would
    path, run = file(tmp_path, arms={"pbt": {}}), forged(tmp_path / "out/runs/pbt/0")
    loud(tmp_path / "evil", heard := tmp_path / "heard")
    (run / "checkpoints/00000000").mkdir(parents=True)
    sys.path.append(str(tmp_path))
    try:
        for fields in (
            {"env": "evil.x:f"},
            {"python": "evil"},
            {"interval": 63},
            {"config": made.config | {"layers": [9]}},
            {"seed": 1},
        ):
            (run / "experiment.yaml").write_text(dump(replace(made, **fields)))
            before = sorted(tmp_path.rglob("*"))
            told = shoal("study", path, "--workspace", tmp_path / "out")
            assert (told.code, told.out) == (2, ""), told
            said(told.err)
            assert set(tmp_path.rglob("*")) - set(before) <= {tmp_path / "out/study.yaml"} and not heard.exists()
    finally:
        sys.path.remove(str(tmp_path))


def test_what_a_study_did_not_make_stays(tmp_path: Path) -> None:
    """In the place of a run too, whether it begins there, or begins anew as it was stopped before its first checkpoint."""
    command, run = (
        ("study", file(tmp_path, arms={"pbt": {}}), "--workspace", tmp_path / "out"),
        tmp_path / "out/runs/pbt/0",
    )
    (run / "mine").mkdir(parents=True)
    (run / "mine/notes").write_text("kept")
    assert shoal(*command).code == 0
    shutil.rmtree(run / "checkpoints")
    before, _ = rows(tmp_path / "out"), (run / "result.json").unlink()
    assert shoal(*command).code == 0
    assert rows(tmp_path / "out") == before and (run / "mine/notes").read_text() == "kept"
    (run / "experiment.yaml").unlink()  # a result without a run is not one of the study's either
    told = shoal(*command)
    assert told.code == 2 and f"{run} holds a result and no experiment" in told.err and (run / "result.json").exists()


@pytest.mark.parametrize("taken", [False, True])
def test_a_signal_while_a_run_is_claimed_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """Although there is no run yet that would stop, and whether or not another process is at it."""

    class Claim(Lease):
        def __init__(self, *arguments: Any):
            signal.raise_signal(signal.SIGINT)
            if taken:
                raise BadField("worker", "it is at work")
            super().__init__(*arguments)

    monkeypatch.setattr("shoal.study.scheduler.Lease", Claim)
    stopped = shoal("study", file(tmp_path), "--workspace", tmp_path / "out")
    assert stopped.code == 3 and "continue with: shoal study" in stopped.out
    assert (
        not [lease for lease in (tmp_path / "out/leases").rglob("*") if lease.is_file()]
        and not (tmp_path / "out/runs").exists()
    )


def test_runs_of_a_process_that_was_killed_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were begun before all others; one that another machine may be at is watched when nothing else is left."""
    begun = []

    def begin(experiment: Experiment, callbacks: object) -> None:
        begun.append(Path(str(experiment.run_dir)).name)
        raise BadInput("not today")

    monkeypatch.setattr(scheduler, "to_the_end", begin)
    monkeypatch.setattr("shoal.distributed.lease.PATIENCE", 0.1)
    with subprocess.Popen(["true"]) as gone:
        pass
    leases = tmp_path / "out/leases/pbt"
    leases.mkdir(parents=True)
    (leases / "0").write_text("node7 4711 another x")
    (leases / "1").write_text(f"here {gone.pid} {realm_here()} x")
    shoal("study", file(tmp_path, arms={"pbt": {}}, seeds=3), "--workspace", tmp_path / "out")
    assert begun == ["1", "2", "0"]


def test_a_run_that_fails_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "out/runs/pbt").mkdir(parents=True)
    (tmp_path / "out/runs/pbt/0").write_text("in the way")
    done = shoal("study", file(tmp_path, arms=ARMS), "--workspace", tmp_path / "out")
    assert done.code == 1
    assert "pbt 0: failed" in done.out and "1 of 3 runs, 00:00:00 left" in done.out
    assert "again 0: not made, for pbt 0, whose schedule it replays, failed" in done.out
    assert len(rows(tmp_path / "out")) == 1
    page = (tmp_path / "out/report.html").read_text()
    assert "2 runs failed (pbt 1, again 1)" in page and "whose schedule it replays" in page
    (tmp_path / "out/runs/pbt/0").unlink()
    assert shoal("study", tmp_path / "compare.yaml", "--workspace", tmp_path / "out").code == 0
    assert len(rows(tmp_path / "out")) == 3 and not list((tmp_path / "out/failures").rglob("*.txt"))


def test_what_fails_in_a_run_is_told_without_resuming_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the study again goes on with all of its runs."""

    def end(experiment: Any, *arguments: Any) -> None:
        raise Failed(Path(experiment.run_dir), RuntimeError("the simulator is gone"))

    monkeypatch.setattr(scheduler, "to_the_end", end)
    done = shoal("study", file(tmp_path, arms={"a": {}}), "--workspace", tmp_path / "out")
    assert done.code == 1
    assert "a 0: failed: the simulator is gone\n" in done.out and "resume" not in done.out


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_place_without_hard_links_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: Said
) -> None:
    def link(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number), *arguments)

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"base": SETTINGS, "arms": {"a": {}}, "seeds": 1}))
    told = shoal("study", tmp_path / "study.yaml", "--workspace", tmp_path / "place", "--quiet")
    assert told.code == 2
    said(told.err)
    ((works, why),) = [found for found in probe(tmp_path) if not found[0]]
    assert "without hard links" in why


def test_refusals_are_one_line(tmp_path: Path, said: Said) -> None:
    for path in (tmp_path / "nothing.yaml", file(tmp_path, arms={"pbt": {}, "x": {"generations": 3}})):
        outcome = shoal("study", path)
        assert outcome.code == 2
        said(outcome.err)


BANDIT = {"env": "none", "agent": "support.trainers:Sound", "population": 4, "generations": 6, "interval": 40}
BANDIT |= {
    "space": {"rate": [1e-4, 1.0, "log"]},
    "fitness": {"episodes": 4},
    "final_episodes": 8,
    "processes": {"count": 1},
}
SEQUENCES = {
    "other": {"tune": {"optimizer": "support.optimizers:Ladder", "trials": 3}},
    "asked": {"tune": {"optimizer": "support.optimizers:Ladder", "trials": 4}},
}


def told(run: Path, name: str = "result.json") -> dict:
    return json.loads((run / name).read_text())


@pytest.mark.slow
def test_arms_that_are_sequences_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, base=BANDIT | {"checkpoint": {"keep": 200}}, arms=SEQUENCES)
    done = shoal("study", path, "--workspace", tmp_path / "out")
    assert done.code == 0, done.out + done.err
    assert {r["environment_steps"] for r in rows(tmp_path / "out")} == {str(4 * 6 * 40)}
    other, asked = (tmp_path / "out/runs" / arm / "0" for arm in SEQUENCES)
    for whole, parts in ((other, [other / str(k) for k in range(3)]), (asked, [asked / str(k) for k in range(4)])):
        best = max(parts, key=lambda r: (told(r)["champion"]["selection_fitness"], r))
        assert told(whole)["run"] == best.name and told(whole)["champion"] == told(best)["champion"]
        curve = [row["steps"] for row in lines(whole / "metrics.jsonl")]
        assert curve == sorted(curve) and curve[-1] == 4 * 6 * 40 == told(whole)["environment_steps"]
    heard = [(told(asked / str(k))["champion"]["selection_fitness"], 10.0 ** -(k + 2)) for k in range(3)]
    rates = [told(asked / str(k))["champion"]["hyper"]["rate"] for k in range(4)]
    assert rates == pytest.approx([1e-2, 1e-3, 1e-4, max(heard)[1]])

    # stopped in the midst of each, and gone on
    before, midst = rows(tmp_path / "out"), (other / "1", asked / "2")
    for run in midst:
        (run.parent / "result.json").unlink()
        (run / "result.json").unlink()
        shutil.rmtree(max((run / "checkpoints").iterdir()))
        shutil.rmtree(run.with_name(str(int(run.name) + 1)))
    times = [began(run) for run in (other / "0", *midst)]
    assert shoal("study", path, "--workspace", tmp_path / "out", "--quiet").code == 0
    assert rows(tmp_path / "out") == before and [began(run) for run in (other / "0", *midst)] == times
    # known again under another path
    monkeypatch.chdir((tmp_path / "out").rename(tmp_path / "moved"))
    times = [began(run) for run in Path().glob("runs/*/0/*") if run.is_dir()]
    assert shoal("study", path, "--workspace", ".", "--quiet").code == 0
    assert times and [began(run) for run in Path().glob("runs/*/0/*") if run.is_dir()] == times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "arms"),
    [
        (SETTINGS, {"pbt": {}, "single": {"population": 1, "method": "independent"}, "again": {"replay": "pbt"}}),
        (BANDIT, SEQUENCES),
    ],
    ids=["runs", "sequences"],
)
def test_every_arm_ends_with_its_budget(tmp_path: Path, base: dict, arms: dict) -> None:
    budget, path = 3000, file(tmp_path, base=base | {"budget": 3000}, arms=arms)
    done = shoal("study", path, "--workspace", tmp_path / "out")
    assert done.code == 0 and "steps of a run, training + evaluation: " in done.out, done.out + done.err
    for row in rows(tmp_path / "out"):
        run = tmp_path / "out/runs" / row["arm"] / row["seed"]
        last = max(run.glob("[0-9]"), default=run)  # of a sequence
        *_, before, end = [{"steps": 0, "evaluation_steps": 0}, *lines(last / "metrics.jsonl")]
        generation = sum(end[name] - before[name] for name in ("steps", "evaluation_steps"))
        parts = run.glob("[0-9]") if last != run else [run]
        champions = [json.loads((part / "result.json").read_text())["champion"] for part in parts]
        selection = sum(champion.get("final_selection", {"steps": 0})["steps"] for champion in champions)
        assert budget <= int(row["all_steps"]) - selection < budget + generation
    before = rows(tmp_path / "out"), sorted((tmp_path / "out/runs").rglob("*"))
    assert shoal("study", path, "--workspace", tmp_path / "out", "--quiet").code == 0
    assert (rows(tmp_path / "out"), sorted((tmp_path / "out/runs").rglob("*"))) == before


@pytest.mark.slow
def test_it_ends_at_the_analysis_in_which_all_pairs_differ_significantly(tmp_path: Path, said: Said) -> None:
    """Stopped before it, it goes on; a process that comes when it has ended makes nothing; the analyses stay as they are."""
    arms = {"learns": {"hyper": {"rate": 0.3}}, "hardly": {"hyper": {"rate": 1e-6}}}
    base = BANDIT | {"space": {}, "method": "independent", "population": 1, "generations": 3, "final_episodes": 200}
    path = file(tmp_path, base=base, arms=arms, seeds=10, interim_analyses=[5, 10])
    command = ("study", path, "--workspace", tmp_path / "out")
    done = shoal(*command)
    assert done.code == 0 and "once arms have two runs this says how many" in done.out, done.out
    assert "learns is significantly better than hardly" in (tmp_path / "out/report.html").read_text()
    assert {r["seed"] for r in rows(tmp_path / "out")} == {*"01234"}, "no run of the second analysis"
    (tmp_path / "out/runs/hardly/4/result.json").unlink()
    (tmp_path / "out/leases/learns/9").touch()  # somebody was there, and is no more
    assert shoal(*command).code == 0 and len(rows(tmp_path / "out")) == 10
    changed = file(tmp_path, base=base, arms=arms, seeds=10, interim_analyses=[5, 7, 10])
    refused = shoal("study", changed, "--workspace", tmp_path / "out")
    assert refused.code == 2
    said(refused.err)


def test_an_optimiser_that_fails_is_told(tmp_path: Path) -> None:
    messages = {
        "Mute": "tune.optimizer: support.optimizers:Mute failed: NotImplementedError",
        "Stray": "its ask gave {'momentum': 1.0}; it must give rate",
        "Ladder": f"it asks for other values than those with which {tmp_path / 'out/runs/Ladder/0/0'} began; let it draw",
    }
    arms = {name: {"tune": {"optimizer": f"support.optimizers:{name}", "trials": 4}} for name in messages}
    begun = tmp_path / "out/runs/Ladder/0/0"  # as one leaves it that does not draw from its seed
    begun.mkdir(parents=True)
    (begun / "experiment.yaml").write_text(
        yaml.safe_dump(BANDIT | {"population": 1, "hyper": {"rate": 0.5}, "space": {}})
    )
    done = shoal("study", file(tmp_path, base=BANDIT, arms=arms), "--workspace", tmp_path / "out")
    assert done.code == 1 and all(message in done.out for message in messages.values()), done.out


def test_an_optimiser_that_cannot_be_imported_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    arms = {
        "search": {"method": "independent"},
        "asked": {"tune": {"optimizer": "support.optimizers:Nobody", "trials": 4}},
    }
    done = shoal("study", file(tmp_path, base=BANDIT, arms=arms), "--workspace", tmp_path / "out")
    assert done.code == 2 and "arms.asked.tune.optimizer: support.optimizers:Nobody cannot be imported" in done.err
    assert len(done.err.splitlines()) == 1 and not (tmp_path / "out").exists()


def at_work(process: subprocess.Popen, study: Path) -> Path:
    """The run that a process is at, as soon as it has written a checkpoint of it."""
    before: dict[Path, int] = {}
    while process.poll() is None:
        for lease in (study / "leases").glob("*/[!.]*"):
            run = study / "runs" / lease.relative_to(study / "leases")
            if read_or_nothing(lease).split()[1:2] == [str(process.pid)]:
                found = len(list((run / "checkpoints").glob("[0-9]*")))
                if found > before.setdefault(run, found):
                    return run
        time.sleep(0.005)
    raise AssertionError(process.communicate())


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_if_nobody_had(tmp_path: Path) -> None:
    """Two processes are killed, each in the midst of a run; then two are at work, one of which is stopped by Ctrl-C."""
    path = file(tmp_path, base=SETTINGS | {"generations": 100, "checkpoint": {"every": 1, "keep": 200}}, arms=ARMS)
    run_study(path, tmp_path / "whole", Output(), quiet=True)
    study, times = tmp_path / "killed", {}
    command = ("study", path, "--workspace", study, "--quiet")
    for _ in range(2):
        process = start(*command)
        run = at_work(process, study)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        times[run] = began(run)
        assert not (run / "result.json").exists()
    other, process = start(*command), start(*command)
    at_work(other, study)
    other.send_signal(signal.SIGINT)
    out, err = other.communicate(timeout=120)
    assert (other.returncode, "continue with: shoal study" in out) == (3, True), out + err
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert shoal(*command).code == 0
    assert shoal("report", tmp_path / "whole").code == 0
    assert rows(study) == rows(tmp_path / "whole")
    assert {run: began(run) for run in times} == times, "each goes on where it was"
