"""Every example runs by itself, from a directory of its own, and comes to what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def last_number(text: str) -> float:
    return float(re.findall(r"-?\d+(?:\.\d+)?", text)[-1])


# What each must print; the numbers are far below what it reaches.
EXPECTED: dict[str, Callable[[str], bool]] = {
    "train_from_python": lambda said: last_number(said) > 150,
    "in_a_notebook": lambda said: "stopped after" in said and last_number(said) > 150,
    "own_device_environment": lambda said: float(said.split()[2]) < 0.5,
    "own_gymnasium_environment": lambda said: ">>>>>>>" in said,
    "own_agent": lambda said: float(said.split()[1]) > 150,
    "own_selector": lambda said: float(said.split()[-3]) > 150,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name](done.stdout), done.stdout
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1
