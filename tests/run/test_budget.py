"""`budget` and `time_limit`: a run ends with the generation in which its steps, or seconds, have come to so many."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.messages import Said, shown
from support.runs import flags, mpiexec, rows, same_run, shoal, tiny

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.core.trend import Trend
from shoal.core.types import RunProgress
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_closed_plan, make_plan
from shoal.records.callback import Callback
from shoal.run.context import State
from shoal.run.train import resume, train


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """All steps of a run so far, after each of six generations."""
    train(tiny(run := tmp_path_factory.mktemp("six") / "run", generations=6))
    return [row["steps"] + row["evaluation_steps"] for row in rows(run / "metrics.jsonl")]


def generations(run: Path) -> int:
    """How many a run has done, to its end."""
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "done" and len(rows(run / "metrics.jsonl")) == result["generations"]
    return result["generations"]


def test_it_ends_with_the_generation_that_reaches_it(spent: list[int], tmp_path: Path) -> None:
    for name, budget, done in (("exact", spent[2], 3), ("more", spent[2] + 1, 4), ("little", 1, 1)):
        train(tiny(tmp_path / name, generations=2, budget=budget))
        assert generations(tmp_path / name) == done
    whole, first = ((tmp_path / name / "lineage.jsonl").read_text() for name in ("more", "exact"))
    assert whole.startswith(first), "nothing else changes"


def test_it_goes_on_and_can_be_raised(spent: list[int], tmp_path: Path, said: Said) -> None:
    run, straight = tmp_path / "run", tmp_path / "straight"
    train(tiny(straight, budget=spent[4]))
    train(tiny(run, budget=spent[2]))
    before = json.loads((run / "result.json").read_text())["champion"]
    assert resume(run).already
    for more in (("--set", f"budget={spent[0]}"), ("--generations", 6)):
        outcome = shoal("resume", run, *more)
        assert outcome.code == 2
        said(outcome.err)
    (run / "result.json").unlink()  # killed before its end was written
    resume(run)
    assert generations(run) == 3 and json.loads((run / "result.json").read_text())["champion"] == before
    (run / "result.json").unlink()
    shutil.rmtree(max((run / "checkpoints").iterdir()))  # killed before its last generation
    resume(run)
    assert generations(run) == 3
    assert shoal("resume", run, "--set", f"budget={spent[4]}").code == 0
    assert generations(run) == 5
    assert (run / "lineage.jsonl").read_text() == (straight / "lineage.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["es", "cem_rl"])
def test_of_a_mean(method: str, tmp_path: Path) -> None:
    """Its steps are those of the episodes that members learn from, and the mean's."""
    env, config = "gymnax:Pendulum-v1", {"layers": [8]}
    train(tiny(tmp_path / "run", env=env, method=method, config=config, budget=1))
    (line,) = rows(tmp_path / "run/metrics.jsonl")
    each = line["steps"] + line["evaluation_steps"]
    resume(tmp_path / "run", budget=2 * each + 1)
    assert generations(tmp_path / "run") == 3


@pytest.mark.slow
def test_all_ranks_of_mpi_end_together(spent: list[int], tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    place = f"Path({str(tmp_path)!r})"
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from support.runs import tiny; from pathlib import Path; from shoal import train\n"
        f"train(tiny({place} / 'budget', budget={spent[2] + 1}, exchange='mpi'))\n"
        f"train(tiny({place} / 'stop', stop={{'fitness': -1}}, exchange='mpi'))"
    )
    done = subprocess.run(mpiexec(2, sys.executable, "-c", code), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [generations(tmp_path / name) for name in ("budget", "stop")] == [4, 1]


def test_workers_of_a_directory_have_none(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        make_plan(tiny(budget=100, exchange={"name": "directory", "workspace": str(tmp_path)}))
    said(error.value)


# --------------------------------------------------------------------------------------- time_limit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generation takes ten seconds, and has been measured after five of them."""
    monkeypatch.setattr(State, "seconds", property(lambda state: 10.0 * state.done + 5))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5 h", 5400), ("1d", 86_400), ("90", 90), (90, 90), (0.5, 0.5)],
)
def test_units_of_time(given: str | float, seconds: float) -> None:
    assert Experiment(time_limit=given).time_limit == seconds


@pytest.mark.parametrize("given", ["soon", "2x", "1h30", "-1h", "0s", 0, -1, "1e999", "nan", True, [2]], ids=shown)
def test_what_is_no_time(given: object, tmp_path: Path, said: Said) -> None:
    for name, outcome in (
        ("train", shoal("train", "--run-dir", tmp_path / "r", "--set", f"time_limit={json.dumps(given)}")),
        ("doctor", shoal("doctor", f"--time-limit={given}")),
    ):
        assert outcome.code == 2 and outcome.err.count("\n") == 1, name
    said(outcome.err)


@pytest.mark.usefixtures("clock")
def test_a_run_ends_by_the_clock_and_goes_on_with_more(tmp_path: Path, said: Said) -> None:
    """Whatever its generations, and bit for bit as the run that had more from the start."""
    run, straight = tmp_path / "run", tmp_path / "straight"
    for path, limit, done in ((run, "25s", 3), (straight, "36s", 5), (tmp_path / "little", "1s", 1)):
        assert shoal(*flags(path, "--time-limit", limit, "--quiet", generations=2)).code == 0
        assert generations(path) == done
    assert resume(run).already
    for more in (("--time-limit", "30s"), ("--generations", 6)):
        outcome = shoal("resume", run, *more)
        assert outcome.code == 2
        said(outcome.err)
    assert shoal("resume", run, "--time-limit", "36s", "--quiet").code == 0
    assert generations(run) == 5
    same_run(run, straight)


@pytest.mark.usefixtures("clock")
def test_the_first_of_two_limits_ends_it(spent: list[int], tmp_path: Path) -> None:
    for name, limits, done in (("time", {"time_limit": 15}, 2), ("steps", {"time_limit": 1e6}, 3)):
        train(tiny(tmp_path / name, budget=spent[2], **limits))
        assert generations(tmp_path / name) == done


@pytest.mark.usefixtures("clock")
def test_a_run_of_generations_gets_time(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run"))
    resume(tmp_path / "run", time_limit=35)
    assert generations(tmp_path / "run") == 4


class Enough(Callback):
    """Ends a run after its first generation."""

    def on_generation_end(self, event: object) -> bool:
        return False


@pytest.mark.usefixtures("clock")
def test_what_a_callback_ends_is_stopped(tmp_path: Path) -> None:
    assert train(tiny(tmp_path / "run", time_limit=20), [Enough()]).summary["status"] == "stopped"
    resume(tmp_path / "run")
    assert generations(tmp_path / "run") == 3


def test_schedules_follow_the_clock() -> None:
    """From generation to generation: how many updates will fit into the time is not known."""
    plan = make_closed_plan(tiny(time_limit=100))
    assert plan.progress_before(3, 4, 10**9, 25.0) == RunProgress(0.25, 0.0, 1.0)  # type: ignore[arg-type]
    assert make_closed_plan(tiny(time_limit=100, budget=1000)).progress_before(1, 4, 500, 25.0).done == 0.5


def test_schedules_follow_the_budget_where_fewer_members_train_for_longer() -> None:
    """A generation has as many steps as ever: schedules have come as far at its end, and go on from there."""
    plan = make_closed_plan(tiny(population=8, method="successive_halving", interval=128, budget=8 * 128 * 10))
    for generation, members in enumerate([8, 4, 4, 2, 2, 2, 1, 1, 1, 1]):
        made = generation * 8 * plan.steps
        progress = plan.progress_before(generation, members, made, 0.0)
        iterations = plan.length(generation, members, made)
        assert float(progress.done + progress.per_iteration * iterations) == made + 8 * plan.steps
    everybody = make_closed_plan(tiny(population=8, interval=128, budget=8 * 128 * 10))
    half, whole = (everybody.progress_before(1, members, 0, 0.0) for members in (4, 8))
    assert half == whole, "half of the members are of this process"


def test_each_worker_of_a_directory_has_its_own(tmp_path: Path) -> None:
    """By the clock on the wall, on which each generation is too late."""
    exchange = {"name": "directory", "workspace": str(tmp_path / "w")}
    for limit in ({"time_limit": 0.001}, {"time_limit": 0.002}, {"stop": {"fitness": -1}}):
        done = train(tiny(**limit, exchange=exchange)).run_dir
        assert generations(done) == 1


@pytest.mark.slow
def test_on_the_host(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", env="gym:CartPole-v1", time_limit=0.001))
    assert generations(tmp_path / "run") == 1


@pytest.mark.slow
def test_all_ranks_end_by_the_same_clock(tmp_path: Path) -> None:
    """The clocks of ranks differ: that of rank 1 would let it go on for ever."""
    pytest.importorskip("mpi4py")
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from support.runs import tiny; from pathlib import Path; from shoal import train\n"
        "from shoal.run.context import State; from mpi4py import MPI\n"
        "State.seconds = property(lambda state: 0.0 if MPI.COMM_WORLD.rank else 10.0 * state.done + 5)\n"
        f"train(tiny(Path({str(tmp_path / 'run')!r}), time_limit=25, exchange='mpi'))"
    )
    done = subprocess.run(mpiexec(2, sys.executable, "-c", code), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert generations(tmp_path / "run") == 3


# --------------------------------------------------------------------------------------------- stop


def test_improvement_is_one_of_the_mean_of_four() -> None:
    """The first is that of the first four; a generation without a fitness improves nothing."""
    trend, since = Trend(), []
    for best in (90.0, 1.0, -math.inf, 1.0, 1.0, 2.0, 87.0, 3.0, 1.0, -math.inf, 4.0, 85.0, 5.0):
        trend = trend.after(best)
        since.append(trend.since)
    assert since == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 1, 2]
    trend = Trend()
    for k in range(40):
        trend = trend.after((0.1, 0.3, 0.7, 1.1)[k % 4])
    assert trend.since == 36, "a sum in another order is no improvement"


def test_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    course = [10.0, 20.0, 30.0, 20.0, 20.0, 10.0]
    monkeypatch.setattr(PopulationStats, "best", property(lambda stats: course[stats.generation[0]]))
    outcome = shoal(*flags(run := tmp_path / "run", "--stop-patience", "1", generations=7))
    assert outcome.code == 0 and generations(run) == 6
    first, *lines = outcome.out.splitlines()
    said(first.partition(", ")[2].partition(" of ")[0])
    said(*[line for line in lines if line.startswith("the run ends")])


@pytest.mark.parametrize(
    "given", ["475", "{fitness: high}", "{fitness: .nan}", "{patience: 0}", "{reward: 475}"], ids=shown
)
def test_what_is_no_stop(given: str, said: Said) -> None:
    outcome = shoal("doctor", "--set", f"stop={given}")
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    said(outcome.err)
