"""By what a run is made: versions, machine, command, commit; a line of provenance.jsonl for each process that trains it."""

from __future__ import annotations

import platform
import re
import shlex
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax

from shoal.core.cores import usable_cores
from shoal.core.errors import shortened
from shoal.environments.registry import packages
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan
from shoal.experiment.trust import PLACES, code_at

FILE = "provenance.jsonl"
PACKAGES = ("shoal", "jax", "jaxlib", "flax", "optax", "numpy")
WORDS = r"(?:key|token|secret|passw\w*|credential)\w*"
SECRET = re.compile(rf"(?i)({WORDS}[\"']?\s*[=:]\s*).+|(//)[^/@\s]+(?=@)|\b[0-9a-f]{{40,}}\b|\bwandb_v\d\w+")
ASKS = re.compile(rf"(?i)--?[\w-]*{WORDS}")  # a flag that a secret follows


def provenance(plan: Plan, devices: int, generation: int, trusted: bool) -> dict[str, Any]:
    """By what a run is trained from a generation on. trusted: git may be asked; it runs what a repository names."""
    e = plan.experiment
    versions = {name: _version(name) for name in (*PACKAGES, *packages(e.env_name))}
    return {
        "generation": generation,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(sys.argv or [""]),
        "host": socket.gethostname(),
        "cores": len(usable_cores()),
        "device": jax.devices()[0].device_kind if plan.kind.compiled else "process",
        "devices": devices,
        "versions": {"python": platform.python_version()}
        | {name: version for name, version in versions.items() if version},
    } | (_git(_folder(e)) if trusted else {})


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What is told of both and differs, in words; when they were is no difference."""
    told, names = [], ("host", "cores", "device", "devices", "versions", "commit", "clean")
    earlier, later = (_flat({name: line[name] for name in names if name in line}) for line in (before, now))
    for name, value in later.items():
        if name in earlier and earlier[name] != value:
            told.append(f"{name} {earlier[name]} → {value}")
    return shortened(", ".join(told))


def command(arguments: list[str]) -> str:
    """A command line as a shell takes it, without its folder and with *** in place of what may be a secret."""
    path = Path(arguments[0])
    shown = [path.parent.name if path.name == "__main__.py" else path.name]
    for before, argument in pairwise(arguments):
        shown.append("***" if ASKS.fullmatch(before) else SECRET.sub(r"\1\2***", argument))
    return shlex.join(shown)


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    versions = line.pop("versions", None)
    return line | (versions if isinstance(versions, dict) else {})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _folder(experiment: Experiment) -> Path:
    """Where the user's own code lies, else where the command was called."""
    named = [name.rpartition(":")[0].rpartition(":")[2] for place in PLACES for name in code_at(experiment, place)]
    files = [getattr(sys.modules.get(module), "__file__", None) for module in named]
    return next((Path(file).parent for file in files if file), Path.cwd())


def _git(folder: Path) -> dict[str, Any]:
    """The commit that is checked out, and whether the files that it knows are unchanged; nothing where there is none."""
    ask = ("git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        return {}
    return {"commit": said.removesuffix("-dirty"), "clean": not said.endswith("-dirty")}
