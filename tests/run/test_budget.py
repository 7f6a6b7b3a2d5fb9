"""`budget`: a run ends with the generation in which all its steps, evaluations included, have come to so many."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.messages import Said
from support.runs import mpiexec, rows, shoal, tiny

from shoal.core.errors import BadInput
from shoal.experiment.plan import make_plan
from shoal.run.loop import resume, train

pytestmark = pytest.mark.usefixtures("trace_cache")


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
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from support.runs import tiny; from pathlib import Path; from shoal import train\n"
        f"train(tiny(Path({str(tmp_path / 'run')!r}), budget={spent[2] + 1}, exchange='mpi'))"
    )
    done = subprocess.run(mpiexec(2, sys.executable, "-c", code), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert generations(tmp_path / "run") == 4


def test_workers_of_a_directory_have_none(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        make_plan(tiny(budget=100, exchange={"name": "directory", "workspace": str(tmp_path)}))
    said(error.value)
