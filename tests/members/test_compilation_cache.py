"""Compiled programs on disk: never torn for long, never too many."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest
from jax._src import compilation_cache  # as `keep_whole` has it: JAX has no public name
from support.runs import COMMAND, settings

from shoal.members.compilation_cache import Entries, keep_whole


@pytest.fixture
def compile_anew(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Compile a program as a new process would, with its cache in `tmp_path`."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    for thread in threading.enumerate():
        if thread.name == "compiling":  # of a shard of another test, which would write there
            thread.join()

    def compile_program() -> None:
        compilation_cache.reset_cache()
        for name, value in zip(names, (str(tmp_path), 0.0), strict=True):
            jax.config.update(name, value)
        keep_whole(None)
        jax.jit(lambda x: x * 3 - 1).lower(jax.ShapeDtypeStruct((5,), "float32")).compile()

    yield compile_program
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.filterwarnings("error:Error (reading|writing) persistent compilation cache")
@pytest.mark.parametrize("length", [0, 1, 200, -1])
def test_a_torn_entry_is_replaced_and_not_spoken_of(tmp_path: Path, compile_anew: Callable, length: int) -> None:
    compile_anew()
    entries = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[:length])
    compile_anew()
    assert entries.keys() == set(tmp_path.iterdir())
    assert all(len(path.read_bytes()) > len(content) / 2 for path, content in entries.items())
    written = {path: path.stat().st_ino for path in entries}
    compile_anew()
    assert {path: path.stat().st_ino for path in entries} == written  # read, not compiled again


def test_a_kill_in_the_middle_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = Entries(tmp_path, 1000)
    entries.put("a", b"whole")

    def killed(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    for key in "ab":
        with pytest.raises(KeyboardInterrupt):
            entries.put(key, b"another")
    assert (entries.get("a"), entries.get("b")) == (b"whole", None)


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    entries = Entries(tmp_path / "new" / "folder", 250)
    for i, key in enumerate("abc"):
        entries.put(key, bytes(80))
        os.utime(tmp_path / "new" / "folder" / f"{key}-cache", (i, i))
    assert entries.get("a") == bytes(80)
    entries.put("d", bytes(90))
    assert [key for key in "abcd" if entries.get(key)] == ["a", "c", "d"]


@pytest.mark.slow
def test_a_second_run_compiles_nothing_anew(tmp_path: Path) -> None:
    """Programs are traced in the same order in every process; were it left to chance, they would not always be found."""
    given = settings(population=4, generations=8, method="successive_halving")
    kept = []
    for run in ("a", "b"):
        command = [*COMMAND, "train", "--quiet", "--run-dir", str(tmp_path / run), *given]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        subprocess.run([str(part) for part in command], check=True, env=environment, capture_output=True)
        files = (tmp_path / "cache" / "shoal" / "compiled").iterdir()
        kept.append(sorted(path.name for path in files if "_members" in path.name))  # not those that may take too short
    assert sum("train_members" in name for name in kept[0]) == 2 and kept[0] == kept[1]


def test_a_bound_of_the_users_is_left_to_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = compilation_cache.get_file_cache  # as the tests have set it: `keep_whole`
    assert isinstance(opened(str(tmp_path))[0], Entries)
    jax.config.update("jax_compilation_cache_max_size", 10)
    try:
        assert not isinstance(opened(str(tmp_path))[0], Entries)
    finally:
        jax.config.update("jax_compilation_cache_max_size", -1)
