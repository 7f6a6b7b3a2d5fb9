"""Programs that a compiler once did not get done with: a run of each, with nothing compiled before, within two minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
CASES = {
    "resets of environments, JAX 0.11": "--population 4 --interval 512",
    "episodes of one draw, JAX 0.10": "--method es --population 64 --set fitness.episodes=1",
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_done(case: str, tmp_path: Path) -> None:
    command = f"-m shoal train --env CartPole-v1 --generations 1 --quiet --run-dir run {CASES[case]}"
    env = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    subprocess.run([sys.executable, *command.split()], cwd=tmp_path, env=env, check=True, timeout=120)
