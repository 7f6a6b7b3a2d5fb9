"""Small runs that several tests share, the `shoal` command in this process, and what must be equal in two runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from shoal.cli import main
from shoal.core.atomic import Staging
from shoal.core.candidates import Candidate
from shoal.core.population import PopulationStats
from shoal.distributed.exchange import Exchange
from shoal.distributed.processes import Processes
from shoal.experiment.experiment import Checkpoint, Experiment, Fitness
from shoal.experiment.plan import make_plan
from shoal.records.callback import Callback
from shoal.records.generation import Generation

COMMAND = (sys.executable, "-m", "shoal")  # in a process of its own
OF_PBT = ("select", "explore", "burn_in", "replay")
CONFIG = {"layers": [8], "rollout_length": 16, "num_envs": 2, "num_minibatches": 2}
CONFIG |= {"normalize_rewards": False}  # it uses a discount of its own, which would hide another
SETTINGS = {
    **{"method": "pbt", "population": 4, "generations": 2, "interval": 64, "final_episodes": 8},
    **{"fitness": {"episodes": 2, "step_limit": 60}, "config": CONFIG, "checkpoint": {"every": 1}},
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def tiny(run_dir: Path | None = None, **changes: Any) -> Experiment:
    """A run that takes no time once it is compiled; every test that uses it as it is shares the compiled programs."""
    settings = {
        **SETTINGS,
        "fitness": Fitness(**SETTINGS["fitness"]),
        "checkpoint": Checkpoint(**SETTINGS["checkpoint"]),
        "run_dir": None if run_dir is None else str(run_dir),
    }
    return Experiment(**settings | of_method(changes))


def of_method(changes: dict[str, Any]) -> dict[str, Any]:
    """Options of the method pbt under its name, and a schedule as the method that it is."""
    options = {name: changes[name] for name in OF_PBT if name in changes}
    changes = {name: value for name, value in changes.items() if name not in OF_PBT}
    if options:
        assert "method" not in changes
        changes["method"] = {"name": "pbt"} | options
    if "schedule" in changes:
        changes["method"] = {"name": "schedule", "rows": changes.pop("schedule")}
    return changes


def build_run(experiment: Experiment) -> Any:
    """All that an experiment names, and the shard of its members."""
    plan = make_plan(experiment)
    with Processes(Exchange(), lambda message: None) as processes:
        shard = processes.members(plan, processes.uids(plan), lambda result, done: None, Path()).shard
    parts = {name: getattr(plan.kind, name, None) for name in ("agent", "learner", "environment")}
    return SimpleNamespace(**plan._asdict(), **parts, plan=plan, shard=shard)


def flags(run_dir: Path, *more: str, **changes: Any) -> list[str]:
    """`tiny` on the command line."""
    return ["train", "--run-dir", str(run_dir), *settings(**changes), *more]


def settings(**changes: Any) -> list[str]:
    """The fields of `tiny` as flags."""
    given = (SETTINGS | of_method(changes)).items()
    return [part for name, value in given for part in ("--set", f"{name}={json.dumps(value)}")]


def shoal(*arguments: object) -> Outcome:
    """The command, in this process."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            return Outcome(int(stopped.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the command did not exit")


def start(*arguments: object, cwd: Path | None = None, **environment: object) -> subprocess.Popen:
    """The command, in a process and a process group of its own."""
    command = [*COMMAND, *map(str, arguments)]
    own = os.environ | {"PYTHONUNBUFFERED": "1"} | {k: str(v) for k, v in environment.items()}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, start_new_session=True, cwd=cwd, env=own)


class Signals(Callback):
    """Sends Ctrl-C `count` times when a phase of a generation begins, or is under way."""

    def __init__(self, generation: int, phase: str, count: int = 1, sign: int = signal.SIGINT, under_way: bool = False):
        self._when, self._count, self._sign, self._under_way = (generation, phase), count, sign, under_way
        self.notes: list[str] = []

    def on_progress(self, generation: int, phase: str, fraction: float) -> None:
        if (generation, phase) == self._when and self._under_way == (fraction > 0):
            for _ in range(self._count):
                signal.raise_signal(self._sign)
            self._when = None  # type: ignore[assignment]

    def on_message(self, message: str) -> None:
        self.notes.append(message)


@contextmanager
def at_work(place: Path) -> Iterator[Staging]:
    """A staging, to write in a place what runs write."""
    staging = Staging(place, "test")
    staging.open()
    try:
        yield staging
    finally:
        staging.close()


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ended(
    generation: int,
    fitness: np.ndarray,
    metrics: dict[str, np.ndarray] | None = None,
    hyper: Any = None,
    compiling: float = 0.0,
) -> Generation:
    """What callbacks hear of a generation of members, none of whom copies another."""
    n, same = len(fitness), np.ones(len(fitness))
    stats = PopulationStats(
        np.arange(n), np.full(n, generation), np.full(n, 64), fitness, same, np.full(n, 2), hyper or {}
    )
    numbers: Any = {
        "steps": 64 * n,
        "evaluation_steps": 0,
        "champion": Candidate(),
        "timing": {"steps_per_second": 10.0, "compile": compiling, "seconds": 1.0},
    }
    return Generation(generation, stats, stats, stats.hyper, np.zeros(n, bool), metrics or {}, **numbers)


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What the event files of a run hold, read as they lie there: each scalar's steps, in order, and values."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((run / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, float(make_ndarray(value.tensor))))
    return {tag: sorted(points, key=lambda point: point[0]) for tag, points in found.items()}


def record(run: Path) -> dict[str, Any]:
    """Everything that a run left behind but the time it took and the place where it lies."""
    last = max((run / "checkpoints").iterdir())
    arrays = {f"{part.name} {k}": v for part in (last, run / "champion") for k, v in _arrays(part).items()}
    manifests = [json.loads((part / "manifest.json").read_text()) for part in (last, run / "champion")]
    told = {"result.json", "lineage.jsonl"} & {path.name for path in run.iterdir()}
    result = json.loads((run / "result.json").read_text()) if "result.json" in told else {}
    return {
        "arrays": arrays,
        "manifests": [_without(m, "seconds", "compile_seconds", "manifest_crc32") for m in manifests],
        "lineage": rows(run / "lineage.jsonl"),
        "metrics": [_without(row, "timing") for row in rows(run / "metrics.jsonl")],
        "result": _without(result, "seconds", "compile_seconds", "provenance"),
    }


def same_run(a: Path, b: Path) -> None:
    """Assert that two runs are equal, weights and all, bit for bit."""
    one, other = record(a), record(b)
    assert one["arrays"].keys() == other["arrays"].keys()
    for name, value in one["arrays"].items():
        assert value.dtype == other["arrays"][name].dtype, name
        assert value.tobytes() == other["arrays"][name].tobytes(), f"{name} differs"
    for name in ("manifests", "lineage", "metrics", "result"):
        assert one[name] == other[name], name


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    files = {path.stem: load_file(path) for path in folder.glob("*.safetensors")}
    return {f"{part} {name}": value for part, arrays in files.items() for name, value in arrays.items()}


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k not in names}


def mpiexec(ranks: int, *command: object) -> list[str]:
    """A command line for so many ranks; without a port to an outside that a test machine may not have."""
    return [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), *map(str, command)]
