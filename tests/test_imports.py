"""Imports run one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import shoal

ROOT = Path(shoal.__file__).parent

# The layers, from the ground up. What a package may import at most, itself aside; functions and type checks included.
LAYERS: dict[str, set[str]] = {
    "core": set(),
    "rl": {"core"},
    "environments": {"core"},
    "trainers": {"core"},
    "agents": {"core", "rl"},
    "methods": {"core", "rl", "agents"},
    "testing": {"core", "methods", "trainers"},
    "members": {"core", "rl", "environments", "trainers"},
    "experiment": {"core", "environments", "methods", "members", "trainers"},
    "distributed": {"core", "members", "experiment", "trainers"},
    "records": {"core", "methods", "experiment"},
    "report": {"core", "experiment", "records", "run"},
    "study": {"core", "methods", "members", "experiment", "trainers", "distributed", "records", "report", "run"},
    "launch": {"core", "distributed", "records", "report"},
    "export": {"core", "rl", "environments", "experiment", "run"},
    "run": {"core", "environments", "trainers", "members", "experiment", "distributed", "records"},
}
ABOVE = {"__init__", "__main__", "cli", "commands"}  # may import everything below, and nothing below imports them


@cache
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
    """The packages of shoal that a file imports."""
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("shoal.")}


def modules_of(path: Path) -> set[str]:
    """The modules of shoal that a file imports, by their paths."""
    found = set()
    for name in imports_of(path):
        parts = name.split(".")[1:] if name.startswith("shoal.") else []
        for end in (len(parts), len(parts) - 1):
            if end > 0 and (file := ROOT.joinpath(*parts[:end]).with_suffix(".py")).is_file():
                found.add(file)
    return found


@pytest.mark.parametrize("part", LAYERS)
def test_a_layer_imports_only_what_lies_below_it(part):
    for path in files_of(part):
        above = parts_of(path) - LAYERS[part] - {part}
        assert not above, f"{path.relative_to(ROOT)} imports {', '.join(sorted(above))}"


def test_everything_has_a_layer():
    there = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there == set(LAYERS) | ABOVE


def test_no_circle_among_files():
    below = {path: modules_of(path) - {path} for path in ROOT.rglob("*.py") if path.name != "__init__.py"}
    while below:
        free = {path for path, imported in below.items() if not imported & set(below)}
        assert free, f"a circle among {sorted(str(path.relative_to(ROOT)) for path in below)}"
        below = {path: imported for path, imported in below.items() if path not in free}


def test_nothing_imports_the_command():
    for path in ROOT.rglob("*.py"):
        assert path.stem in ("cli", "__main__") or "cli" not in parts_of(path), path


def test_no_agent_imports_an_agent():
    """But the registry, which declares it."""
    for path in files_of("agents"):
        assert not re.findall(r"shoal\.agents\.(?!registry)", " ".join(imports_of(path))), path


def test_evolvers_know_no_jax():
    """Every method decides where JAX cannot be imported; only their learners need it."""
    statement = """
import sys
sys.modules |= dict.fromkeys(("jax", "flax", "optax", "scipy"))
import numpy as np
from shoal.core.population import PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.methods.components import make_method
from shoal.methods import METHODS
given = {"schedule": {"rows": [{"a": 1}]}, "mf_pbt": {"periods": [1, 2]}}
uid, space = np.arange(4), {"a": Range(0.0, 1.0)}
for name, kind in METHODS.items():
    start = {"sigma": 0.1, "learning_rate": 0.1} | ({} if kind.tunes else {"a": 0.5})
    method = make_method({"name": name} | given.get(name, {}))
    evolver = method.evolver(SearchSpace(space if kind.tunes else {}, {}, start), 8)
    state, hyper = evolver.init((0,), uid)
    for generation in range(4):
        fitness, now = np.sin(uid + generation), np.full(4, generation)
        stats = PopulationStats(uid, now, 100 * (now + 1), fitness, fitness**2, now, hyper)
        state, decision = evolver.decide((0, generation), state, stats, uid)
        hyper = decision.hyper
"""
    modules_after(statement)


def test_exchanges_know_nothing_of_selection_or_learning():
    """Rows of numbers and bytes; how they travel is all they know."""
    for path in (
        ROOT / "distributed" / f"{name}.py" for name in ("exchange", "mpi", "directory", "lease", "returns", "rows")
    ):
        outside = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names
        assert outside <= {"shoal", "numpy", "mpi4py"}, path
        assert not re.search(r"select|fitness\b.*[<>]|reward|agent|argmax|argsort", code_of(path)), path


def test_only_its_exchange_knows_mpi():
    for path in ROOT.rglob("*.py"):
        assert path == ROOT / "distributed" / "mpi.py" or "mpi4py" not in "".join(imports_of(path)), path


def code_of(path: Path) -> str:
    """A file without its comments and docstrings."""
    return ast.unparse(ast.parse(re.sub(r"\"\"\".*?\"\"\"", "0", path.read_text(), flags=re.DOTALL)))


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement", ["import shoal", "import shoal.cli", "import shoal.methods, shoal.experiment.experiment"]
)
def test_light_imports(statement):
    heavy = {"jax", "flax", "optax", "gymnax", "gymnasium", "brax", "matplotlib", "tensorboard", "scipy", "mujoco"}
    assert not modules_after(statement) & heavy


WRONG = [
    *(["train", "--env", "foo:bar"], ["train", "--env", "gym:CartPol-v1"], ["doctor", "--agent", "a2c"]),
    *(["train", "--method", "x"], ["resume", "nope"], ["train", "--set", "layers=[8]"]),
    *(["train", "--set", "hyper.learning_rat=1"], ["train", "--set", "space.x=[0, 1]"]),
    *(["train", "--set", "config.x=1"], ["train", "--method", "cem_rl", "--set", "hyper.exploration_noise=1"]),
]


def test_errors_in_names_do_not_wait_for_jax():
    """Importing it takes seconds."""
    statement = f"""
import sys
from shoal.cli import main
for given in {WRONG}:
    try:
        main(given)
    except SystemExit as end:
        assert end.code == 2, given
    assert "jax" not in sys.modules, given
"""
    assert "jax" not in modules_after(statement)


def test_training_without_what_it_does_not_use():
    loaded = modules_after("import shoal.run.train, shoal.experiment.plan")
    assert not loaded & {"brax", "mujoco", "matplotlib", "imageio", "gymnax", "gymnasium", "mpi4py"}


@pytest.mark.slow
def test_environments_without_what_they_draw_with():
    """seaborn, and with it scipy.stats and pandas, take longer to import than all else; loaded when it is used."""
    loaded = modules_after("from shoal.environments import registry; registry.make('gymnax:CartPole-v1', {})")
    assert {"gymnax.environments.misc.pong", "seaborn", "matplotlib.pyplot"} <= loaded
    assert not loaded & {"scipy.stats", "pandas", "matplotlib.figure", "seaborn.palettes"}
    used = "import_gymnax(); import seaborn as s, matplotlib.pyplot as p; s.color_palette; p.figure, s.__version__"
    assert {"pandas", "seaborn.palettes"} <= modules_after(
        f"from shoal.environments.gymnax import import_gymnax; {used}"
    )
