"""Trainers' processes: started, called, and noticed when they end, hang or fail."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.runs import shoal
from support.trainees import member

from shoal.core.errors import BadField
from shoal.trainers import process as processes
from shoal.trainers import recipe, wire
from shoal.trainers.process import Died, Raised, Recipe, limited

TESTS = Path(__file__).parents[1]
SUPPORT = str(TESTS / "support")
ROOT = Path(processes.__file__).parent


@pytest.fixture
def start(process_of):
    """Processes of a trainer of tests/support/trainers.py."""

    def start(name="Sound", python=sys.executable, timeout=30.0, env=None, trainer=None, **config):
        recipe = Recipe(trainer or f"trainers:{name}", "", config=config, path=(SUPPORT, str(TESTS)))
        return process_of(python, recipe, timeout, **(env or {}))

    return start


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for_text(path, text):
    wait_for(lambda: text in path.read_text())


# ---------------------------------------------------------------------------------------------- calls


def test_description(start):
    described = start(arms=5, rate=0.25).description
    assert described["hyper"] == {"rate": 0.25, "momentum": 0.5, "greed": 1.0}
    assert described["space"]["rate"] == {"low": 1e-3, "high": 1.0, "scale": "log"}
    assert described["limits"]["rate"] == [0.0, float("inf")]
    assert described["spec"]["action"] == {"kind": "discrete", "n": 5}
    assert described["fixed"] == {"arms": "5", "envs": "4"}
    assert described["act"] and not described["export"]


LISTED = """
class Listed:
    hyper = {"rate": 0.1, "greed": 1.0, "epochs": 4.0}
    space = {"rate": [1e-3, 1, "log"], "epochs": {"choices": [2, 4]}}
    fixed = {"arms": 3, "loss": None}

    def __init__(self, env, env_options):
        self.space = {"rate": {"low": 1.0}} if env == "half" else self.space
"""


def test_what_can_change_and_what_is_fixed_is_listed(tmp_path, monkeypatch):
    (tmp_path / "listed.py").write_text(LISTED)
    monkeypatch.syspath_prepend(tmp_path)
    listed = shoal("agents", "listed:Listed")
    assert (listed.code, listed.err) == (0, "")
    change, fixed = ([line.split() for line in part.splitlines()] for part in listed.out.split("\nfixed in a run"))
    assert change[4:] == [["rate", "0.1", "0.001", "to", "1,", "log"], ["greed", "1"], ["epochs", "4", "2", "or", "4"]]
    assert fixed[2:] == [["arms", "3"], ["loss"]]
    half = shoal("agents", "listed:Listed", "--env", "half")
    assert half.code == 2 and half.err == "shoal: space.rate: give both bounds, low and high, or else choices\n"


def test_an_interval(start):
    trained = member(start())
    result = trained.train(2, 10)
    assert result.report.steps == 12 == len(result.report.returns)
    assert result.report.metrics == {"updates": 3} and result.finite and result.diverged == ""
    assert trained.state.learned["w"].shape == (2, 3) and trained.state.learned["w"].dtype == np.float64
    assert trained.evaluate([1, 2]).shape == (2,)
    obs = np.random.default_rng(0).normal(size=(7, 2))
    np.testing.assert_array_equal(trained.act(obs), (obs @ trained.state.learned["w"]).argmax(1))


def test_a_state_travels_only_where_it_is_not(start, monkeypatch):
    process, sent = start(), []
    real = wire.send
    monkeypatch.setattr(wire, "send", lambda peer, data, x: (sent.append("with_state" in data), real(peer, data, x)))
    a, b = member(process), member(process, uid=1)
    a.train(2, 10)
    a.train(3, 10)
    a.evaluate([1])
    assert sent == [False] * 4  # the first one describes
    b.state = a.state
    b.train(4, 10)
    assert sent[4:] == [False, True]
    a.process = b.process = start()
    a.train(4, 10)
    assert sent[-3:] == [False, False, True]
    assert a.state.learned["w"].tobytes() == b.state.learned["w"].tobytes()


def test_a_member_that_begins_anew(start):
    trained = member(start())
    trained.train(2, 10)
    first = trained.state
    trained.state = None
    trained.train(2, 10)
    assert trained.state.learned["w"].tobytes() == first.learned["w"].tobytes()


def test_weights_that_are_not_finite_are_a_result(start):
    trained = member(start())
    trained.train(2, 10)
    trained.state = trained.state._replace(learned={**trained.state.learned, "w": np.full((2, 3), np.nan)})
    assert np.isnan(trained.evaluate([1, 2])).all()
    result = trained.train(3, 10)
    assert not result.finite and result.diverged.startswith("ValueError: ") and result.report.steps == 0


def test_what_it_sees(start):
    process = start("Seeing", env={"CUDA_VISIBLE_DEVICES": "7"})
    seen = member(process).train(2, 10).report.metrics
    assert seen == {"threads": 1, "path": True, "shoal": False, "gpus": 7}


def test_gpus():
    assert limited(2)["OMP_NUM_THREADS"] == "2" and "CUDA_VISIBLE_DEVICES" not in limited(2)
    assert limited(2, [0, 3])["CUDA_VISIBLE_DEVICES"] == "0,3" and limited(2, [])["CUDA_VISIBLE_DEVICES"] == ""


# ------------------------------------------------------------------------------------- what goes wrong


def test_a_process_that_is_killed_costs_one_call(start, said):
    process = start()
    trained, undisturbed = member(process), member(process, uid=1)
    for seed in (2, 3):
        undisturbed.train(seed, 10)
    trained.train(2, 10)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(Died) as error:
        trained.train(3, 10)
    said(error.value)
    assert process.pid is None
    trained.train(3, 10)
    assert trained.state.learned["w"].tobytes() == undisturbed.state.learned["w"].tobytes()


def test_a_crash_shows_the_end_of_the_log(start, tmp_path, said):
    (tmp_path / "log").write_text("of an earlier run\n")
    with pytest.raises(Died) as caught:
        member(start("Crashing")).train(2, 10)
    said(caught.value)
    assert (tmp_path / "log").read_text() == "of an earlier run\nabout to crash\nnow\n"


def test_a_signal_without_a_name(start, said):
    with pytest.raises(Died) as error:
        member(start(trainer="support.wrong_trainers:Killed")).train(2, 10)
    said(error.value)


def test_what_is_no_answer_ends_the_process(start, said):
    process = start(trainer="support.wrong_trainers:Talkative")
    one = member(process)
    with pytest.raises(Died) as error:
        one.train(2, 10)
    said(error.value)
    assert process.pid is None and one.state is None
    assert one.evaluate([1]).shape == (1,)  # by the next process


def test_silence(start, tmp_path, monkeypatch):
    """It counts from when it has fallen asleep: a busy machine may need longer to start it."""
    receive, process = wire.receive, start("Sleeping", timeout=0.5)
    monkeypatch.setattr(wire, "receive", lambda peer: select.select([peer], [], [], 60) and receive(peer))
    trained = member(process)
    with (
        monkeypatch.context() as patch,
        pytest.raises(Died, match=r"gave no answer for 0\.5 s; its log ends with: falling asleep"),
    ):
        patch.setattr(wire, "receive", lambda peer: wait_for_text(tmp_path / "log", "falling asleep") or receive(peer))
        trained.train(2, 10)
    assert process.pid is None
    assert trained.evaluate([1]).shape == (1,)  # by the next process


def test_an_error_of_the_trainer(start, tmp_path, said):
    process = start("Failing")
    trained = member(process)
    with pytest.raises(Raised) as caught:
        trained.train(2, 10)
    said(caught.value)
    assert (tmp_path / "log").read_text().startswith("Traceback (most") and trained.state is None
    pid = process.pid
    assert trained.train(2, 10).report.steps == 12 and process.pid == pid


def test_an_error_of_the_trainer_is_not_hidden_by_the_next_one(start):
    with pytest.raises(Raised, match="RuntimeError: the simulator is gone"):
        member(start("Speechless")).train(2, 10)


def test_a_state_that_cannot_be_sent(start, said):
    with pytest.raises(Raised) as error:
        member(start("Wordy")).train(2, 10)
    said(error.value)


def test_kill_ends_a_call(start):
    process = start("Sleeping")
    trained = member(process)
    threading.Timer(0.3, process.kill).start()
    with pytest.raises(Died, match="killed by SIGKILL"):
        trained.train(2, 10)


def test_an_interrupted_call_is_not_answered_later(start, monkeypatch):
    process = start()
    trained = member(process)
    with monkeypatch.context() as patch:
        patch.setattr(wire, "receive", lambda peer: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trained.evaluate([1, 2, 3])
    assert trained.train(2, 10).report.steps == 12


def test_a_script_that_starts_the_interpreter(start, tmp_path):
    """As simulators bring one: the trainer's process is then not the one that was started, and ends with it all the same."""
    script = tmp_path / "python.sh"
    script.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\nexit $?\n')
    script.chmod(0o755)
    process = start(python=str(script))
    one = member(process)
    assert one.train(1, 4).report.steps == 4
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.kill()
    wait_for(lambda: not alive(int(children[0])))


def test_ctrl_c_does_not_reach_it(start):
    process = start()
    trained = member(process)
    assert os.getsid(process.pid) == process.pid  # it is in no terminal's group
    os.kill(process.pid, signal.SIGINT)
    assert trained.train(2, 10).report.steps == 12


def test_nothing_is_left_of_what_it_started(start):
    process = start("Parental")
    member(process).train(2, 10)
    pid = process.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: process.pid is None)
    with pytest.raises(ProcessLookupError):
        wait_for(lambda: os.killpg(pid, 0))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.parametrize("how", ["closed", "killed", "ended"])
def test_nothing_is_left_of_what_has_begun_a_session_of_its_own(start, tmp_path, how):
    process = start(trainer="support.wrong_trainers:Deserted", place=str(tmp_path / "pid"))
    member(process).train(2, 10)
    child = int((tmp_path / "pid").read_text())
    assert os.getsid(child) == child != process.pid
    if how == "closed":
        assert process.close()["processes"]
    elif how == "ended":
        process.end()
    else:
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: process.pid is None)
    wait_for(lambda: not alive(child))


def test_it_ends_with_its_host_even_while_it_trains(tmp_path):
    code = f"""
from pathlib import Path
from shoal.trainers.process import Recipe, TrainerProcess
from shoal.trainers.remote import RemoteTrainer
recipe = Recipe("trainers:Sleeping", "", path=[{SUPPORT!r}])
process = TrainerProcess({sys.executable!r}, recipe, Path({str(tmp_path / "log")!r}))
member = RemoteTrainer(process, 0, process.description["hyper"], 1)
print(process.pid, flush=True)
member.train(1, 10)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        pid = int(host.stdout.readline())
        wait_for_text(tmp_path / "log", "falling asleep")
        assert alive(pid)
        host.kill()
    wait_for(lambda: not alive(pid))


# ----------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "Sond"}, "agent: 'Sond' does not exist; did you mean Sound?"),
        ({"trainer": "trainrs:Sound"}, "agent: there is no module trainrs"),
        ({"trainer": "trainers"}, "agent: '' does not exist; choose from"),
        ({"arms": 1}, "config: arms = 1, but one can only choose between two or more"),
        ({"arm": 2}, "config: trainers:Sound does not take it: got an unexpected keyword argument 'arm'"),
        (
            {"trainer": "needy:Needy"},
            "python = {python}: lacks a package: No module named 'no_such_package'; "
            "install it there, or name an interpreter that has it: --python PATH",
        ),
        ({"trainer": "broken:Broken"}, "agent: ZeroDivisionError: division by zero (broken.py, line 1)"),
        ({"python": "/no/such/python"}, "python = /no/such/python: cannot be started: No such file or directory"),
        (
            {"python": "true"},
            "python = true: does not start as an interpreter with NumPy: the process of trainers:Sound",
        ),
    ],
)
def test_bad_input_gets_one_line(start, tmp_path, arguments, message):
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    process = start(**arguments)
    object.__setattr__(process.recipe, "path", (SUPPORT, str(tmp_path)))
    with pytest.raises(BadField) as caught:
        process.description  # noqa: B018
    assert str(caught.value).startswith(message.format(python=sys.executable))
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------ their side


@pytest.mark.parametrize("name", ["server", "recipe", "returned", "descendants", "wire", "trainer", "live"])
def test_their_side_needs_little(name):
    """It is read by old interpreters, which have NumPy and nothing else."""
    tree = ast.parse((ROOT / f"{name}.py").read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in imported} <= sys.stdlib_module_names | {"numpy", "shoal_trainers"}


def test_the_host_imports_no_library_of_trainers():
    code = "import shoal.trainers.remote, shoal.testing.checks, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & {"torch", "stable_baselines3", "gymnasium", "pytest", "jax"}


def test_adapters_are_files():
    for name in recipe.ADAPTERS:
        assert (ROOT / f"{name}.py").is_file()
