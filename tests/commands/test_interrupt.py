"""Ctrl-C is heard at every instant, said in one line, and told by the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cases import others_slow
from support.runs import flags, shoal, start
from support.whole_run import write_whole_run

from shoal.core.interrupts import interruptible

# Sends a signal from a callback of the garbage collector, where an exception would be swallowed.
WHEN_COLLECTING = """
import gc, os, signal, sys

def collecting(phase, info):
    if MODULE in sys.modules:
        os.kill(os.getpid(), signal.SIGINT)

gc.callbacks.append(collecting)
"""
AT_EXIT = """
import atexit, os, signal
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
"""

COMPILING_FOR_EVER = """
import os, signal, threading, time
from shoal.members import devices

def compiling(program, traced):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(1000)

devices.Program._compile = compiling  # no public name, as programs compile by themselves
"""
BEFORE_CHECKPOINT = "interrupted before its first checkpoint; start over"
AFTER = {  # on the streams of output and of errors
    "train": ("stopping: this generation is abandoned\ninterrupted; start it again\n", ""),
    "evaluate": ("", "shoal: interrupted\n"),
}

# A run that stops, with signals when it is over and when its command returns.
LATE = """
from pathlib import Path
import shoal.cli
from shoal.core.interrupts import Interrupted
import shoal.run.train

def train(experiment, callbacks=()):
    for callback in callbacks:
        callback.on_training_end(None)
    exec(AGAIN)
    raise Interrupted(Path("RUN"), agreed=True)

show = shoal.cli.show
def shown(*arguments, **named):
    code = show(*arguments, **named)
    exec(AGAIN)
    return code

shoal.run.train.train = train
shoal.cli.show = shown
"""


def command(before: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, in a process that runs some code first."""
    code = f"{before}\nfrom shoal.__main__ import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("module", ["tyro", "jax"])
def test_heard_while_packages_are_imported(tmp_path: Path, module: str) -> None:
    """Unheard, it would train."""
    arguments = (
        "train",
        "--env",
        "gymnax:CartPole-v1",
        "--generations",
        1,
        "--interval",
        64,
        "--run-dir",
        tmp_path / "run",
    )
    process = command(WHEN_COLLECTING.replace("MODULE", repr(module)), *arguments)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "shoal: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", others_slow(["train", "evaluate"], "train"))
def test_heard_while_a_program_is_compiled(tmp_path: Path, name: str) -> None:
    """One that never ends: nobody waits for it, and of a new run nothing is left."""
    run = tmp_path / "run"
    arguments = flags(run, "--quiet", generations=1)
    if name == "evaluate":
        arguments = ["evaluate", str(write_whole_run(run))]
    process = command(COMPILING_FOR_EVER, *arguments)
    assert process.returncode == 130 and (process.stdout, process.stderr) == AFTER[name]
    assert run.exists() == (name == "evaluate")


def test_too_late_to_change_how_it_ended(tmp_path: Path) -> None:
    process = command(AT_EXIT, "schedule", tmp_path)
    assert process.returncode == 2
    assert process.stderr.startswith("shoal: ") and process.stderr.count("\n") == 1


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_second_signal_while_the_command_ends(tmp_path: Path, sign: signal.Signals) -> None:
    """After the run has stopped, and again when all is said: it can be resumed all the same, and the command says how."""
    again = f"import os\nos.kill(os.getpid(), {int(sign)})"
    process = command(LATE.replace("AGAIN", repr(again)), "train", "--quiet", "--run-dir", tmp_path / "run")
    assert (process.returncode, process.stdout) == (3, f"{BEFORE_CHECKPOINT} with: shoal resume RUN\n")
    assert process.stderr == "shoal: interrupted\n"  # when nothing but the exit code is left


def test_a_command_that_is_no_run_tells_which_signal_it_was() -> None:
    """The first of several."""
    with pytest.raises(KeyboardInterrupt) as ended, interruptible() as attend:
        attend()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        attend()
    assert ended.value.args == (signal.SIGTERM,)


@pytest.mark.parametrize(("heard", "code"), [((signal.SIGTERM,), 143), ((signal.SIGINT,), 130), ((), 130)])
def test_and_so_does_its_exit_code(monkeypatch: pytest.MonkeyPatch, heard: tuple[int, ...], code: int) -> None:
    def called(*given: object) -> int:
        raise KeyboardInterrupt(*heard)

    monkeypatch.setattr("shoal.cli.call", called)
    assert shoal("schedule", "RUN").code == code


def catches(pid: int, sign: int) -> bool:
    """True if a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (sign - 1) & 1)


@pytest.mark.slow
def test_at_many_instants(tmp_path: Path) -> None:
    """While nothing exists the command ends at once; from then on the run can be resumed."""
    codes = []
    for i, sign in enumerate([signal.SIGINT, signal.SIGTERM] * 3):
        run = tmp_path / str(i)
        with start(*flags(run, "--quiet", generations=500)) as process:
            while not catches(process.pid, signal.SIGUSR1):  # until then it is Python that begins
                time.sleep(0.01)
            time.sleep(0.5 * i)
            os.killpg(process.pid, sign)
            out, err = process.communicate(timeout=100)
        codes.append(process.returncode)
        if process.returncode == 3:
            *before, last = out.splitlines()
            how = "interrupted; continue" if (run / "checkpoints").exists() else BEFORE_CHECKPOINT
            assert (last, err) == (f"{how} with: shoal resume {run}", "")
            assert all(line.startswith("stopping: ") for line in before)
            assert (run / "experiment.yaml").exists()
        else:
            assert process.returncode == 128 + sign and not run.exists()
            assert (out, err) in (("", "shoal: interrupted\n"), AFTER["train"])
    assert codes[0] == 128 + signal.SIGINT
