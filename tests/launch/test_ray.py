"""Workers that are actors of Ray, for real: on two nodes of one machine an actor is killed, and then a node is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import settings

PYTHON = os.environ.get("SHOAL_RAY_PYTHON", sys.executable)
NODES = str(Path(__file__).parents[1] / "support" / "ray_nodes.py")
GENERATIONS = 1_000_000


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None and "SHOAL_RAY_PYTHON" not in os.environ,
    reason="Ray is not installed here, and SHOAL_RAY_PYTHON names no interpreter that has it and Shoal",
)
def test_an_actor_and_a_node_come_back(tmp_path: Path) -> None:
    shoal = [PYTHON, "-m", "shoal", "train", *settings(generations=GENERATIONS), "--workers", "2", "--on", "ray"]
    env = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "300"}
    command = [PYTHON, NODES, *shoal, "--workspace", "w"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 3, told["out"]
    assert told["out"].count(": started again") >= 2  # Ray itself says more of a node that is lost
    assert "interrupted; the same command goes on\n" in told["out"]
    for name in ("w0", "w1"):
        run = tmp_path / "w/workers" / name
        rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
        assert [row["generation"] for row in rows] == [*range(len(rows))] and len(rows) > 5
