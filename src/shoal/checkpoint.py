"""Saving and restoring arrays: one safetensors file and one JSON manifest per checkpoint, atomic and inert."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shoal.types import BadInput, PyTree

DATA, MANIFEST = "state.safetensors", "manifest.json"
UNFINISHED = re.compile(r"\.(\d{8}|champion|\w+\.(yaml|jsonl?))\.(\d+|old)")  # what a process that was killed leaves


class Damaged(Exception):
    """A checkpoint that is half-written, missing, foreign or corrupted; the message says which."""


def to_host(tree: PyTree) -> PyTree:
    """Every leaf as a NumPy array; random keys as their raw numbers. What is donated afterwards is then safe."""

    return jax.tree.map(lambda x: np.array(jax.random.key_data(x) if _is_key(x) else x), tree)


def write(folder: Path, tree: PyTree, manifest: dict[str, Any]) -> None:
    """Write a folder with the tree's arrays and the manifest: complete, or not there at all.

    The data are on disk before the manifest that vouches for them, and both before the folder gets its name.
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    data = save(dict(_storable(path, x) for path, x in leaves))
    manifest = manifest | {"bytes": len(data), "crc32": zlib.crc32(data)}
    manifest["manifest_crc32"] = _checksum(manifest)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        write_file(temporary / DATA, data)
        write_file(temporary / MANIFEST, json.dumps(manifest, indent=1).encode())
        if folder.exists():  # a folder cannot be renamed over: the old one steps aside first
            old = folder.with_name(f".{folder.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
            try:
                temporary.rename(folder)
            except OSError:
                old.rename(folder)
                raise
            shutil.rmtree(old)
        else:
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file so that its name never stands for half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def tidy(folder: Path) -> None:
    """Remove what a process that was killed in the middle of writing left in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if UNFINISHED.fullmatch(path.name):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint or champion. Raises Damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise Damaged(f"{folder}: no readable {MANIFEST} ({error})") from error
    if not isinstance(manifest, dict) or "manifest_crc32" not in manifest:
        raise Damaged(f"{folder}: {MANIFEST} is not one of Shoal's")
    if manifest.pop("manifest_crc32") != _checksum(manifest):
        raise Damaged(f"{folder}: {MANIFEST} is corrupted")
    return manifest


def read(folder: Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """The tree and manifest of a folder that `write` wrote; `like` gives structure, shape, dtype. Raises Damaged."""
    manifest = read_manifest(folder)
    try:
        data = (folder / DATA).read_bytes()
    except OSError as error:
        raise Damaged(f"{folder}: no readable {DATA} ({error})") from error
    if len(data) != manifest.get("bytes") or zlib.crc32(data) != manifest.get("crc32"):
        raise Damaged(f"{folder}: {DATA} does not match its manifest: half-written or corrupted")
    try:
        arrays = load(data)
    except (SafetensorError, KeyError) as error:
        raise Damaged(f"{folder}: {DATA} cannot be read ({error})") from error

    def restore(path: Any, leaf: Any) -> Any:
        expected = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        name = _name(path, np.dtype(expected.dtype))
        found = arrays.pop(name, None)
        if found is not None and np.dtype(expected.dtype).kind == "V":
            found = found.view(expected.dtype)
        if found is None or found.shape != tuple(expected.shape) or found.dtype != expected.dtype:
            raise Damaged(f"{folder}: {name} is missing or has another shape: it was made by another experiment")
        return jax.random.wrap_key_data(jnp.asarray(found)) if _is_key(leaf) else found

    tree = jax.tree_util.tree_map_with_path(restore, like)
    if arrays:
        raise Damaged(f"{folder}: {min(arrays)} is unknown: it was made by another experiment")
    return tree, manifest


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _storable(path: Any, leaf: Any) -> tuple[str, np.ndarray]:
    """A name, and a contiguous array of a dtype that safetensors reads back: bfloat16 and its kin as whole numbers."""
    x = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    x, name = np.ascontiguousarray(x).reshape(x.shape), _name(path, x.dtype)
    return name, x.view(f"u{x.itemsize}") if x.dtype.kind == "V" else x


def _name(path: Any, dtype: np.dtype) -> str:
    return jax.tree_util.keystr(path) + (f" {dtype}" if dtype.kind == "V" else "")


def _checksum(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


class Checkpoints:
    """The last `keep` checkpoints of a run, one folder per generation."""

    def __init__(self, folder: Path, keep: int):
        self._folder, self._keep = folder, keep

    def save(self, generation: int, tree: PyTree, manifest: dict[str, Any]) -> None:
        """Write the state after a generation, then forget the oldest."""
        write(self._folder / f"{generation:08d}", tree, manifest | {"generation": generation})
        for old in self.generations()[: -self._keep]:
            shutil.rmtree(self._folder / f"{old:08d}")

    def generations(self) -> list[int]:
        """Which generations there are, oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(int(p.name) for p in self._folder.iterdir() if re.fullmatch(r"[0-9]{8}", p.name) and p.is_dir())

    def newest(self, like: PyTree, warn: Callable[[str], None]) -> tuple[PyTree, dict[str, Any]]:
        """The newest checkpoint that is whole; `warn` hears of those that are not. Raises BadInput when none is."""
        for generation in reversed(self.generations()):
            try:
                return read(self._folder / f"{generation:08d}", like)
            except Damaged as error:
                warn(f"skipping a damaged checkpoint: {error}")
        raise BadInput(f"{self._folder} holds no whole checkpoint to resume from")
