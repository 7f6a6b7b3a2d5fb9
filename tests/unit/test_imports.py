"""Imports run one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shoal

ROOT = Path(shoal.__file__).parent

# What each part may import at most, itself aside; functions included. Parts are modules or packages of `shoal`.
VOCABULARY = {"types", "names", "keys", "settings", "tree"}
ALLOWED: dict[str, set[str]] = {
    "names": set(),
    "types": {"names"},
    "keys": {"types"},
    "tree": {"types"},
    "settings": {"types", "names"},
    "compiled": {"atomic"},
    "devices": {"types", "lift", "compiled"},
    "atomic": set(),
    "workshop": {"atomic"},
    "checkpoint": {"types", "atomic", "workshop"},
    "networks": VOCABULARY,
    "lift": VOCABULARY,
    "rl": VOCABULARY | {"lift"},
    "agents": VOCABULARY | {"networks", "rl", "lift"},
    "learners": VOCABULARY | {"networks", "rl", "lift", "agents"},
    "evolvers": VOCABULARY - {"tree"},
    "environments": VOCABULARY,
    "collect": VOCABULARY | {"environments", "devices"},
    "exchanges": {"types", "atomic", "workshop"},
    "islands": VOCABULARY | {"environments", "devices", "collect", "learners", "exchanges"},
    "methods": VOCABULARY | {"evolvers", "learners"},
    "components": VOCABULARY | {"evolvers", "methods"},
    "experiment": VOCABULARY | {"evolvers", "components"},
    "toy": VOCABULARY | {"evolvers"},
}


def imports_of(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it; names taken from a package count as modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files_of(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py")) if (ROOT / part).is_dir() else [ROOT / f"{part}.py"]


def parts_of(path: Path) -> set[str]:
    """The parts of shoal that a file imports."""
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("shoal.")}


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_lies_below_it(part):
    for path in files_of(part):
        above = parts_of(path) - ALLOWED[part] - {part}
        assert not above, f"{path.relative_to(ROOT)} imports {', '.join(sorted(above))}"


def test_every_directory_has_a_place_in_the_order():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"__pycache__", "record"}
    assert folders <= set(ALLOWED)


def test_the_order_has_no_circle():
    order: list[str] = []
    while len(order) < len(ALLOWED):
        free = [p for p in ALLOWED if p not in order and ALLOWED[p] - {p} <= set(order)]
        assert free, f"a circle among {set(ALLOWED) - set(order)}"
        order += free


def test_nothing_imports_the_command():
    for path in ROOT.rglob("*.py"):
        assert path in (ROOT / "cli.py", ROOT / "__main__.py") or "cli" not in parts_of(path), path


def test_no_agent_imports_an_agent():
    for path in files_of("agents"):
        assert not any(name.startswith("shoal.agents.") for name in imports_of(path)), path


def test_evolvers_know_no_jax():
    for path in files_of("evolvers"):
        assert not {name.split(".")[0] for name in imports_of(path)} & {"jax", "flax", "optax"}, path


def test_exchanges_know_nothing_of_selection_or_learning():
    """Rows of numbers and bytes; how they travel is all they know."""
    for path in files_of("exchanges"):
        outside = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names
        assert outside <= {"shoal", "numpy", "mpi4py"}, path
        assert not re.search(r"select|fitness\b.*[<>]|reward|agent|argmax|argsort", code_of(path)), path


def test_only_its_exchange_knows_mpi():
    for path in ROOT.rglob("*.py"):
        assert path == ROOT / "exchanges" / "mpi.py" or "mpi4py" not in "".join(imports_of(path)), path


def code_of(path: Path) -> str:
    """A file without its comments and docstrings."""
    return ast.unparse(ast.parse(re.sub(r"\"\"\".*?\"\"\"", "0", path.read_text(), flags=re.DOTALL)))


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement", ["import shoal", "import shoal.cli", "import shoal.evolvers.pbt, shoal.experiment"]
)
def test_light_imports(statement):
    heavy = {"jax", "flax", "optax", "gymnax", "gymnasium", "brax", "matplotlib", "tensorboard", "scipy", "mujoco"}
    assert not modules_after(statement) & heavy


def test_training_without_what_it_does_not_use():
    loaded = modules_after("import shoal.loop, shoal.build")
    assert not loaded & {"brax", "mujoco", "matplotlib", "imageio", "gymnax", "gymnasium", "mpi4py"}


def test_environments_without_what_they_draw_with():
    """seaborn, and with it scipy.stats and pandas, take longer to import than all else; loaded when it is used."""
    loaded = modules_after("from shoal.environments import registry; registry.make('gymnax:CartPole-v1', {})")
    assert {"gymnax.environments.misc.pong", "seaborn", "matplotlib.pyplot"} <= loaded
    assert not loaded & {"scipy.stats", "pandas", "matplotlib.figure", "seaborn.palettes"}
    used = "import_gymnax(); import seaborn as s, matplotlib.pyplot as p; s.color_palette; p.figure, s.__version__"
    assert {"pandas", "seaborn.palettes"} <= modules_after(
        f"from shoal.environments.device import import_gymnax; {used}"
    )
