"""Every script in benchmarks/ still works: at its smallest settings, without the peers that it can be held against."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PEERS = {
    "brax_ppo",
    "compiled_peers",
    "evosax_es",
    "pgx_games",
    "process_es",
    "ray_tune",
    "ray_tune_workers",
    "sb3_bare",
    "sb3_mpi",
    "sb3_off_policy",
    "torch_agents",
    "torch_cem_rl",
    "pixels_shoal",
    "torch_pixels",
}
SHARED = {"common", "cell", "own_past", "smac_arm"}
CELL = {"agent": "sac", "steps": 1, "method": "sequential", "population": 1, "calls": 5, "seconds": 0}
BRIEFLY = "--seconds 0"

CASES = {
    "cem_rl": f"--actors 1 --steps 1 --calls 5 {BRIEFLY}",
    "deciding": "--members 8 --repeats 1",
    "evolution_strategies": f"--populations 2 --command {BRIEFLY}",
    "exchange": "--ranks 2 --populations 8 --networks mlp --generations 1",
    "games": f"--only kuhn --batches 2 --repeats 1 {BRIEFLY}",
    "gpu": "--small --only device smoke free ppo memory study largest",
    "host_environments": f"--only Hopper-v5 gym:Hopper-v5 --repeats 1 {BRIEFLY}",
    "final_selection": "--tasks reacher --members 2 --seeds 1 --generations 2",
    "figures": "figures",
    "external_trainers": "--trainer trainers:Sound --members 2 --intervals 2 --steps 8",
    "interim_analyses": "--studies 2 --analyses 4 8 --naive",
    "launcher": "--workers 2 --population 2 --interval 64",
    "luck_of_fitness": "",
    "off_policy_training": "--agents td3 --populations 2 --repeats 1 --interval 50 --generations 1 --rollouts 1 "
    "--learning-starts 50",
    "pixels": f"--networks nature_cnn --populations 1 --environments 2 --rollout 8 --repeats 1 {BRIEFLY}",
    "population_figure": "population.svg",
    "ppo_population": "--repeats 1 --generations 1 --interval 2048 --copies 8 --target 0 --population 2",
    "ppo_step": f"--populations 2 --sizes 2 {BRIEFLY}",
    "robots": "--env gymnax:Pendulum-v1 --populations 1 --environments 4 --unroll 8 --minibatches 1 --epochs 1 --updates 1 "
    f"--episodes 1 {BRIEFLY}",
    "scaling": "--generations 1 --interval 512 --repeats 1",
    "startup": "--repeats 1 --generations 8 --interval 1024",
    "study_runs": "--envs CartPole-v1 --runs 1",
    "suggestions": "--methods pb2 --seeds 1 --population 4 --generations 16",
    "tables": "population-128",
    "update_cell": f"--cell {json.dumps(CELL, separators=(',', ':'))}",
    "update_step": f"--agents td3 --steps 1 --populations 1 --methods parallel vectorised --calls 5 {BRIEFLY}",
    "baselines/matrix_rate": f"--threads 1 {BRIEFLY}",
    "baselines/same_losses": "--agents sac --part export shoal.npz",
}


def test_every_script_has_its_case() -> None:
    scripts = {str(path.relative_to(BENCHMARKS).with_suffix("")) for path in BENCHMARKS.rglob("*.py")}
    assert {name for name in scripts if Path(name).name not in PEERS | SHARED} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *CASES[name].split()]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "support")}  # whose trainer needs no packages
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout
    assert "…" not in done.stdout, "a figure is cut"


def test_a_script_that_is_stopped_leaves_nothing_at_work() -> None:
    code = "import common; common.shoal_until(['--population', '2'], lambda rows: False)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=BENCHMARKS) as script:
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children")
        while not (started := children.read_text().split()):
            assert script.poll() is None
            time.sleep(0.01)
        time.sleep(0.5)  # while a process is being started nobody knows it yet
        script.terminate()
        assert script.wait(timeout=60) == 143
    assert not [child for child in started if Path(f"/proc/{child}").exists()]
