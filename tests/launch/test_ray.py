"""Workers that are actors of Ray: for real, where on two nodes of one machine an actor is killed, and then a node is lost;
and with a stand-in for Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from support.messages import Said
from support.runs import settings, shoal

from shoal.launch.launcher import LOST, Crew

PYTHON = os.environ.get("SHOAL_RAY_PYTHON", sys.executable)
NODES = str(Path(__file__).parents[1] / "support" / "ray_nodes.py")
GENERATIONS = 1_000_000


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None and "SHOAL_RAY_PYTHON" not in os.environ,
    reason="Ray is not installed here, and SHOAL_RAY_PYTHON names no interpreter that has it and Shoal",
)
def test_an_actor_and_a_node_come_back(tmp_path: Path) -> None:
    shoal = [PYTHON, "-m", "shoal", "train", *settings(generations=GENERATIONS), "--workers", "2", "--launcher", "ray"]
    env = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "300"}
    command = [PYTHON, NODES, *shoal, "--workspace", "w"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 3, told["out"]
    assert told["out"].count(": started again") >= 2  # Ray itself says more of a node that is lost
    assert "interrupted; run the same command to continue\n" in told["out"]
    for name in ("w0", "w1"):
        run = tmp_path / "w/workers" / name
        rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
        assert [row["generation"] for row in rows] == [*range(len(rows))] and len(rows) > 5


class RayError(Exception):
    """As Ray's: of an actor that died."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A stand-in for Ray, which is in no interpreter with the other tests."""
    stand_in = MagicMock(__spec__=importlib.util.spec_from_loader("ray", None))
    stand_in.exceptions.RayError = RayError
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.delitem(sys.modules, "shoal.launch.ray_actors", raising=False)
    return stand_in


def actors(crew: Crew) -> Any:
    from shoal.launch.ray_actors import RayActors

    return RayActors(crew, print)


def test_a_cluster_that_cannot_be_had(ray: MagicMock, tmp_path: Path, said: Said) -> None:
    """Ray says so by exceptions of every kind."""
    ray.init.side_effect = RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.55.0")
    outcome = shoal("train", "cartpole", "--workers", 1, "--launcher", "ray", "--workspace", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    said(outcome.err)


def test_an_address_where_nothing_answers(
    ray: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Ray tries for a minute or more, says nothing meanwhile, and may end the process. What it finds by itself it may."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            monkeypatch.setenv("RAY_ADDRESS", address)
            outcome = shoal("train", "cartpole", "--workers", 1, "--launcher", "ray", "--workspace", tmp_path)
            assert outcome.code == 2 and not ray.init.called
            for text in (outcome.out, outcome.err):
                said(text.replace(str(port), "PORT"))
        closed.listen()
        for address in (f"127.0.0.1:{port}", "auto", "local"):
            monkeypatch.setenv("RAY_ADDRESS", address)
            actors(Crew(tmp_path, 1, ()))
        assert ray.init.call_count == 3


def test_the_log_says_what_ray_knows_of_a_death(ray: MagicMock, tmp_path: Path) -> None:
    """Such as that the node had no memory left: the worker itself could print nothing."""
    crew = Crew(tmp_path, 1, ())
    crew.log("w0").parent.mkdir()
    ray.wait.return_value = [["reference"], []]
    ray.get.side_effect = RayError("The node was running low on memory.")
    (place := actors(crew)).start("w0")
    assert place.ended("w0") == LOST
    assert crew.log("w0").read_text() == "The node was running low on memory.\n"


def test_a_cluster_that_is_lost(ray: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """Ray would end the process after a minute. A worker that died meanwhile is not started where nobody answers, and no
    actor is killed, for which Ray would wait."""
    import shoal.launch.ray_actors as place

    monkeypatch.setattr(place, "CHECK", 0.05)
    monkeypatch.setattr(place, "LOST_AFTER", 0.3)
    monkeypatch.setenv("RAY_ADDRESS", "")
    ray.get.side_effect = RayError("The actor died.")
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        port = head.getsockname()[1]
        ray.get_runtime_context.return_value.gcs_address = f"127.0.0.1:{port}"

        def ended(references: list, timeout: float) -> tuple[list, list]:
            head.close()
            return references, []

        ray.wait.side_effect = ended
        outcome = shoal("train", "cartpole", "--workers", 1, "--launcher", "ray", "--workspace", tmp_path, "--quiet")
    assert (outcome.code, outcome.out) == (1, "")
    said(outcome.err.replace(str(port), "PORT"))
    started = ray.remote.return_value.return_value.options.return_value.remote
    assert ray.kill.call_count == started.call_count == 1


def test_a_successor_that_waits_for_its_place_never_begins(ray: MagicMock, tmp_path: Path) -> None:
    """The lease that is there was left by the worker that was killed."""
    (tmp_path / "leases").mkdir()
    for name in ("w0", "w1"):
        (tmp_path / "leases" / name).write_text("node7 4711 realm x")
    waits, works, new = (MagicMock() for _ in range(3))
    ray.remote.return_value.return_value.options.return_value.remote.side_effect = [waits, works, new]
    place = actors(Crew(tmp_path, 3, ()))
    for name in ("w0", "w1", "w2"):
        place.start(name)
    (tmp_path / "leases/w1").write_text("node8 4712 realm y")
    place.stop()
    assert [call.args for call in ray.kill.call_args_list] == [(waits,), (new,)]


def test_workers_that_share_a_gpu_share_its_memory(
    ray: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first one takes three quarters of it."""
    share = "XLA_PYTHON_CLIENT_MEM_FRACTION"

    def given(gpus: float) -> str | None:
        actors(Crew(tmp_path, 2, (), gpus=gpus))
        return ray.remote.call_args.kwargs["runtime_env"]["env_vars"].get(share)

    assert [given(gpus) for gpus in (0, 0.5, 1)] == [None, "0.450", None]
    monkeypatch.setenv(share, "0.3")
    assert given(0.5) == "0.3"
