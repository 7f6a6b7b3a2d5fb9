"""Suites of environments by name, and the packages that they need: known without importing any of them, or JAX."""

from __future__ import annotations

import importlib.util

from shoal.core.errors import BadField
from shoal.core.extras import install

# In the order in which a bare name is looked for.
PACKAGES = {
    "gymnax": "gymnax",
    "brax": "brax",
    "jumanji": "jumanji",
    "playground": "mujoco_playground",
    "gym": "gymnasium",
    "envpool": "envpool",
}


def installed(suite: str) -> bool:
    """True where the package of a suite is installed."""
    return importlib.util.find_spec(PACKAGES[suite]) is not None


def check(env: str) -> None:
    """Raise BadInput where the name in front of an id is neither a suite nor a module, or the package is missing."""
    suite, colon, _ = env.partition(":")
    if not colon:
        return
    if suite not in PACKAGES:
        if not _importable(suite):
            problem = f"there is no suite {suite!r}, and no module of this name in the current directory or installed"
            raise BadField("env", problem, f"suites are {', '.join(PACKAGES)}")
    elif not installed(suite):
        raise missing(env, f"the package {PACKAGES[suite]}", suite)


def packages(env: str) -> list[str]:
    """Guess the names, for an installer, of the package that an environment comes with."""
    first, _, rest = env.partition(":")
    module = rest.partition(":")[0] if ":" in rest else ""  # gym:module:Name
    of_suite = [PACKAGES[first], first] if first in PACKAGES else [first]
    return [name.partition(".")[0] for name in (*of_suite, module) if name]


def missing(env: str, needed: str, extra: str) -> BadField:
    return BadField("env", f"{env} needs {needed}: {install(extra)}")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
    except (Exception, SystemExit):  # a parent package fails; the later import says how
        return True
