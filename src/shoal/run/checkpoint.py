"""Saving and restoring arrays: one safetensors file and one JSON manifest per checkpoint, atomic and inert."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from shoal.core.arrays import Arrays, arrays_in, as_tree, is_key, pack
from shoal.core.atomic import Damaged, Irregular, Staging, read_file, read_or_nothing, seal, unseal, write_file
from shoal.core.errors import BadInput
from shoal.core.types import PyTree
from shoal.members.devices import host_memory

DATA, MANIFEST = "state.safetensors", "manifest.json"
SHARD = "shard-"  # so begin the names of the parts with members
FORMAT = 8  # of what is written: how arrays are named, and which parts there are
READINGS = 3  # of what a run that goes on replaces meanwhile
MOMENT = 0.01  # seconds; longer than the two renames by which a folder is replaced
T = TypeVar("T")


def to_host(tree: PyTree) -> PyTree:
    """Every leaf as a NumPy array; random keys as their raw numbers. What is donated afterwards is then safe.

    Arrays on several devices are divided along their first axis.
    """

    def copied(x: Any) -> np.ndarray:
        x = jax.random.key_data(x) if is_key(x) else x
        if not isinstance(x, jax.Array) or x.is_fully_replicated:
            return np.array(x)
        parts = [x.addressable_data(i) for i in range(len(x.sharding.device_set))]
        return np.concatenate([np.asarray(part) for part in parts])  # np.array(x) takes three times as long

    return jax.tree.map(copied, tree)


def write(folder: Path, tree: PyTree, manifest: dict[str, Any], staging: Staging) -> None:
    """Write a folder with the tree's arrays and the manifest: complete, or not there at all.

    The data are on disk before the manifest that vouches for them, and both before the folder gets its name.
    """
    data, properties = _packed(tree)
    making = staging.path / f"{folder.name}.{uuid.uuid4().hex}"
    making.mkdir()
    try:
        write_file(making / DATA, data)
        write_file(making / MANIFEST, seal(manifest | properties | {"format": FORMAT}))
        staging.put(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def read_manifest(folder: Path, within: Path) -> dict[str, Any]:
    """The manifest of a checkpoint or champion of the run `within`. Raises Damaged, and BadInput for another format."""
    manifest = unseal(folder / MANIFEST, within)
    if manifest.get("format") != FORMAT:
        raise BadInput(f"{folder}: another version of Shoal has written it, and this one cannot read it")
    return manifest


def read_arrays(folder: Path, within: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the manifest of a folder that `write` wrote, whatever their structure; no link leads from `within` to
    them. Raises Damaged.

    They belong together: where the folder is replaced meanwhile, the new one is read.
    """

    def read() -> tuple[Arrays, dict[str, Any]]:
        manifest = read_manifest(folder, within)
        return _read_arrays(folder, DATA, manifest, within), manifest

    return _read_unchanged(read, lambda: read_or_nothing(folder / MANIFEST))


def _read_unchanged(read: Callable[[], T], seen: Callable[[], Any]) -> T:
    """Return what `read` returns. Read again where that fails and what is `seen` has changed, by a run that goes on."""
    for _ in range(READINGS - 1):
        before = seen()
        try:
            return read()
        except BadInput:
            time.sleep(MOMENT)
            if seen() == before:
                raise
    return read()


def _packed(tree: PyTree) -> tuple[bytes, dict[str, int]]:
    """All leaves as one file, and what a manifest says of it."""
    data = pack(tree)
    return data, {"bytes": len(data), "crc32": zlib.crc32(data)}


def _read_arrays(folder: Path, name: str, properties: dict[str, Any], within: Path) -> Arrays:
    """The arrays in a file of which the manifest says size and checksum, by name. Raises Damaged."""
    size = properties.get("bytes")
    if type(size) is not int:
        raise Damaged(f"{folder}: its manifest does not say how large {name} is")
    try:
        data = read_file(folder / name, within, min(size, host_memory() or math.inf))
    except (OSError, Irregular) as error:
        raise Damaged(f"{folder}: no readable {name} ({error})") from error
    if len(data) != size or zlib.crc32(data) != properties.get("crc32"):
        raise Damaged(f"{folder}: {name} does not match its manifest: half-written or corrupted")
    try:
        return arrays_in(data)
    except Damaged as error:
        raise Damaged(f"{folder}: {error}") from error


def restore(folder: Path, arrays: Arrays, like: PyTree) -> PyTree:
    """Return the arrays of a folder as a tree like `like`. Raises Damaged, which names the folder."""
    try:
        return as_tree(arrays, like)
    except Damaged as error:
        raise Damaged(f"{folder}: {error}: it was made by another experiment") from error


class Checkpoints:
    """The last `keep` checkpoints of a run, one folder per generation.

    A folder has one file for each part of the state, written by the process that has the part, and a manifest that
    vouches for all of them. staging: that of the run; all of its processes share it.
    """

    def __init__(self, folder: Path, keep: int, staging: Staging):
        self._folder, self._run, self._keep, self._staging = folder, folder.parent, keep, staging
        self.waits = False  # for the parts of other processes

    def save(self, generation: int, parts: dict[str, PyTree], manifest: dict[str, Any] | None, all_parts: int) -> None:
        """Write parts of the state after a generation.

        The one process that gives a manifest waits for the others, whose parts make `all_parts`; then the checkpoint
        appears under its name, and the oldest is forgotten.
        """
        making = self._staging.path / f"{generation:08d}"
        try:
            making.mkdir(exist_ok=True)
            for name, tree in parts.items():
                data, properties = _packed(tree)
                write_file(making / f"{name}.safetensors", data)
                write_file(making / f"{name}.json", json.dumps(properties).encode())
            if manifest is None:
                return
            while len(found := sorted(making.glob("[!.]*.json"))) < all_parts:
                self.waits = True
                time.sleep(0.002)
            self.waits = False
            manifest = manifest | {
                "format": FORMAT,
                "generation": generation,
                "parts": {p.stem: json.loads(p.read_text()) for p in found},
            }
            for path in found:
                path.unlink()
            write_file(making / MANIFEST, seal(manifest))
            self._folder.mkdir(exist_ok=True)
            self._staging.put(making, self._folder / f"{generation:08d}")
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        for old in self.generations()[: -self._keep]:
            self._staging.remove(self._folder / f"{old:08d}")

    def generations(self) -> list[int]:
        """The generations that there are, oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(int(p.name) for p in self._folder.iterdir() if re.fullmatch(r"[0-9]{8}", p.name) and p.is_dir())

    def newest(self, warn: Callable[[str], None]) -> tuple[int, dict[str, Arrays]]:
        """The newest generation whose checkpoint is whole, and the arrays of all of its parts, which may be gigabytes.

        warn: hears of those that are not whole. Raises BadInput.
        """
        for generation in reversed(self.generations()):
            try:
                return generation, self._arrays(generation)
            except Damaged as error:
                warn(f"skipping a damaged checkpoint: {error}")
        raise BadInput(f"{self._folder} holds no whole checkpoint to resume from")

    def arrays(self, generation: int | None) -> tuple[int, dict[str, Arrays]]:
        """A generation, by default the newest whole one, and all that is saved of its shards, by their names in order,
        whatever their structure. A run that goes on may remove it meanwhile: then there is a newer one. Raises BadInput."""

        def read() -> tuple[int, dict[str, Arrays]]:
            if generation is None:
                found, parts = self.newest(lambda message: None)
            else:
                found, parts = generation, self._arrays(generation)
            shards = {name: arrays for name, arrays in parts.items() if re.fullmatch(rf"{SHARD}[0-9]+", name)}
            if not shards:
                raise Damaged(f"{self._folder / f'{found:08d}'}: its manifest names no shard")
            return found, shards

        return _read_unchanged(read, self.generations)

    def manifest(self, generation: int) -> dict[str, Any]:
        """The manifest of a generation, which vouches for its parts. Raises BadInput."""
        folder = self._folder / f"{generation:08d}"
        manifest = read_manifest(folder, self._run)
        if manifest.get("generation") != generation:
            raise Damaged(f"{folder}: its manifest is of generation {manifest.get('generation')}")
        parts = manifest.get("parts")
        if not isinstance(parts, dict) or not parts or not all(re.fullmatch(r"[\w-]+", name) for name in parts):
            raise Damaged(f"{folder}: its manifest names no parts that could lie there")
        if not all(isinstance(properties, dict) for properties in parts.values()):
            raise Damaged(f"{folder}: its manifest does not vouch for its parts")
        return manifest

    def _arrays(self, generation: int) -> dict[str, Arrays]:
        """The arrays of the parts of a generation, by their names in order. Raises BadInput."""
        folder, parts = self._folder / f"{generation:08d}", self.manifest(generation)["parts"]
        return {name: _read_arrays(folder, f"{name}.safetensors", parts[name], self._run) for name in sorted(parts)}

    def load(
        self, generation: int, like: dict[str, PyTree], read: dict[str, Arrays] | None = None
    ) -> tuple[dict[str, PyTree], dict[str, Any]]:
        """The parts that `like` names, and the manifest. Raises BadInput where they are another experiment's.

        read: parts that were read already, which are taken out of it
        """
        folder, manifest, parts = self._folder / f"{generation:08d}", self.manifest(generation), {}
        for name, tree in like.items():
            properties = manifest["parts"].get(name)
            if properties is None:
                raise Damaged(f"{folder}: it has no part {name}: it was made by another experiment")
            if read is not None and name in read:
                arrays = read.pop(name)
            else:
                arrays = _read_arrays(folder, f"{name}.safetensors", properties, self._run)
            parts[name] = restore(folder, arrays, tree)
        return parts, manifest
