"""Workers of a shared directory that Ray runs: one that is killed comes back, and continues."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = os.environ.get("SHOAL_RAY_PYTHON", sys.executable)
EXAMPLES = str(Path(__file__).parents[2] / "examples")
GENERATIONS = 12
# Kills the first worker's process in the midst of its run; prints its ids before and after, and its lineage at that time.
DRIVER = f"""
import json, os, signal, time
from pathlib import Path
import ray, ray_workers

ray.init(num_cpus=2, include_dashboard=False)
settings = ray_workers.SETTINGS | {{"generations": {GENERATIONS}, "interval": 1024}}
workers = [ray_workers.Worker.remote() for _ in range(2)]
pid = lambda: ray.get(workers[0].__ray_call__.remote(lambda self: os.getpid()))
before = pid()
results = [worker.train.remote(f"w{{i}}", settings) for i, worker in enumerate(workers)]
metrics = Path("runs/ray/workers/w0/metrics.jsonl")
while not metrics.exists() or metrics.read_text().count("\\n") < 3:
    time.sleep(0.01)
os.kill(before, signal.SIGKILL)
lineage = metrics.with_name("lineage.jsonl").read_text()
returns = ray.get(results)
print(json.dumps({{"before": before, "after": pid(), "lineage": lineage, "returns": returns}}))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None and "SHOAL_RAY_PYTHON" not in os.environ,
    reason="Ray is not installed here, and SHOAL_RAY_PYTHON names no interpreter that has it and Shoal",
)
def test_a_worker_that_is_killed_comes_back(tmp_path: Path) -> None:
    path = os.pathsep.join([EXAMPLES, os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path, "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([PYTHON, "-c", DRIVER], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert told["before"] != told["after"] and len(told["returns"]) == 2
    for name in ("w0", "w1"):
        run = tmp_path / "runs" / "ray" / "workers" / name
        lines = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
        assert len({line["uid"] for line in lines}) == 4
        assert [line["generation"] for line in lines] == [g for g in range(GENERATIONS) for _ in range(4)]
        assert json.loads((run / "result.json").read_text())["status"] == "done"
    trained = json.loads(told["lineage"].splitlines()[-1])["generation"]
    assert 2 <= trained < GENERATIONS - 1  # else it was not killed in the midst of its run
    first = (tmp_path / "runs" / "ray" / "workers" / "w0" / "lineage.jsonl").read_text()
    assert first.startswith("".join(told["lineage"].splitlines(keepends=True)[:4]))  # it did not begin anew
