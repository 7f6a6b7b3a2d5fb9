"""Every example runs by itself, from a directory of its own, and comes to what it says."""

from __future__ import annotations

import ast
import importlib.util
import os
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
    "ask_and_tell": lambda said: said.count(" copies ") >= 8 and 1.1 < float(said.split()[-3]) <= 1.2,
    "train_from_python": lambda said: last_number(said) > 150,
    "in_a_notebook": lambda said: "stopped after" in said and last_number(said) > 150,
    "own_device_environment": lambda said: float(said.split()[2]) < 0.5,
    "push_a_puck": lambda said: last_number(said) > 60,
    "own_gymnasium_environment": lambda said: ">>>>>>>" in said,
    "own_agent": lambda said: float(said.split()[1]) > 150,
    "own_selector": lambda said: float(said.split()[-3]) > 150,
    "own_trainer": lambda said: last_number(said) > 150,
    "own_optimizer": lambda said: said.count("0 runs failed") == 1 and last_number(said) > 50,
    "asymmetric_actor_critic": lambda said: float(said.splitlines()[0].split()[-1]) > 0.95 > 0.9 > last_number(said),
    "parameter_sharing": lambda said: last_number(said) > -4,  # at random: about -13
}
# How many it leaves, where that is not one; of sequences of runs, each has three or four, and one of all.
RUNS = {"asymmetric_actor_critic": 2, "ask_and_tell": 0, "own_trainer": 0, "own_optimizer": 2 * (1 + 4 + 5)}
# Packages that Shoal does not bring along, and the variable that names an interpreter which has them.
NEEDS = {
    "own_trainer": ("torch", "SHOAL_TRAINERS_PYTHON"),
    "own_optimizer": ("optuna", "SHOAL_OPTUNA_PYTHON"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in NEEDS else pytest.mark.slow)
        for name in sorted(path.stem for path in EXAMPLES.glob("*.py"))
    ],
)
def test_example(name: str, tmp_path: Path) -> None:
    package, variable = NEEDS.get(name, ("shoal", ""))
    if variable not in os.environ and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed here, and {variable} names no interpreter that has it")
    python = os.environ.get(variable, sys.executable)
    command = [python, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name](done.stdout), done.stdout
    assert len(list(tmp_path.glob("runs/**/result.json"))) == RUNS.get(name, 1)


def test_what_makes_a_script_a_member_is_as_short_as_the_readme_says() -> None:
    source = (EXAMPLES / "own_trainer.py").read_text(encoding="utf-8")
    (part,) = [x for x in ast.parse(source).body if isinstance(x, ast.ClassDef) and x.name == "OwnPpo"]
    code = [line.strip() for line in source.splitlines()[part.lineno : part.end_lineno]]
    assert 40 < sum(bool(line) and not line.startswith(("#", '"""')) for line in code) <= 60
