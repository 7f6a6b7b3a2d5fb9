"""The provenance of a run: versions, machine, command, commit; a line of provenance.jsonl for each process."""

from __future__ import annotations

import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax

from shoal.core import run_files
from shoal.core.cores import usable_cores
from shoal.core.errors import BadInput, shortened
from shoal.environments.suites import packages
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan
from shoal.experiment.trust import PLACES, code_at
from shoal.records.jsonl import last_line

PACKAGES = ("shoal", "jax", "jaxlib", "flax", "optax", "numpy")
OF_STATES = PACKAGES[:3]  # on which it depends what the states of members are
WORDS = r"(?:key|token|secret|passw\w*|credential)\w*"
SECRET = re.compile(rf"(?i)({WORDS}[\"']?\s*[=:]\s*).+|(//)[^/@\s]+(?=@)|\b[0-9a-f]{{40,}}\b|\bwandb_v\d\w+")
ASKS = re.compile(rf"(?i)--?[\w-]*{WORDS}")  # a flag that a secret follows


def provenance(plan: Plan, devices: int, generation: int) -> dict[str, Any]:
    """The provenance of a run from a generation on."""
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
    } | checked_out(_folder(e))


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describe what both have and differs; when they were is no difference."""
    names = ("host", "cores", "device", "devices", "versions", "commit", "clean")
    earlier, later = (_flat({name: line[name] for name in names if name in line}) for line in (before, now))
    differ = (name for name, value in later.items() if name in earlier and earlier[name] != value)
    return shortened(", ".join(f"{name} {earlier[name]} → {later[name]}" for name in differ))


def unlike(worker: Path, versions: dict[str, str]) -> str:
    """Other workers beside this one that have other versions of Shoal or JAX, in words: each reads the states of all."""
    found: dict[str, list[str]] = {}
    for folder in sorted(worker.parent.iterdir()):
        there = None
        with suppress(OSError, BadInput):  # it cannot be read, or is no file
            there = last_line(folder / run_files.PROVENANCE).get("versions")
        known = there if isinstance(there, dict) and folder.name != worker.name else {}
        pairs = {name: (known[name], versions.get(name)) for name in OF_STATES if name in known}
        if other := ", ".join(f"{name} {x} (here {here})" for name, (x, here) in pairs.items() if x != here):
            found.setdefault(other, []).append(folder.name)
    return shortened("; ".join(f"worker {', '.join(names)}: {other}" for other, names in found.items()))


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
    """The folder of the user's own code, else the one where the command was called."""
    named = [name.rpartition(":")[0].rpartition(":")[2] for place in PLACES for name in code_at(experiment, place)]
    files = [getattr(sys.modules.get(module), "__file__", None) for module in named]
    return next((Path(file).parent for file in files if file), Path.cwd())


def checked_out(folder: Path) -> dict[str, Any]:
    """The commit that is checked out, and whether the files that it knows are unchanged; nothing where there is none.

    The repository may be anybody's, so no program that it names as a filter is run: what a filter would convert counts as
    changed once it was touched.
    """
    try:
        filters = _git(folder, "config", "-z", "--name-only", "--get-regexp", r"^filter\.", allowed=(0, 1)).split("\0")
        unset = (f"--config-env={name}=UNSET" for name in filters[:-1])  # which takes names with a "=" too, unlike -c
        status = _git(folder, *unset, "status", "--porcelain=v2", "--branch", "-uno", "--ignore-submodules=dirty")
    except (OSError, subprocess.SubprocessError, UnicodeError):  # no git, or no repository
        return {}
    commit = re.match("# branch.oid ([0-9a-f]+)\n", status)
    return {"commit": commit[1], "clean": not re.search("^[^#]", status, re.MULTILINE)} if commit else {}


def _git(folder: Path, *words: str, allowed: Collection[int] = (0,)) -> str:
    """Output of git in a folder, where it starts no other program: neither what its settings there name, nor to fetch."""
    programs = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    alone = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "UNSET": ""}
    ask = ("git", "-C", str(folder), *programs, *words)
    done = subprocess.run(ask, capture_output=True, text=True, timeout=10, env=os.environ | alone)
    if done.returncode not in allowed:
        raise subprocess.CalledProcessError(done.returncode, ask)
    return done.stdout
