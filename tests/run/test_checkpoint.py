"""Files that are whole or not there at all, and readers that notice everything else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support.messages import Said, shown
from support.runs import at_work

from shoal.core.atomic import Damaged, Staging, seal, unseal, write_file
from shoal.core.errors import BadInput
from shoal.members.devices import MEMBERS, REPLICATED, DeviceLayout
from shoal.run import checkpoint
from shoal.run.checkpoint import DATA, MANIFEST, Checkpoints, read_arrays, restore, to_host


class Part(NamedTuple):
    weights: Any
    key: Any


def tree(seed: int = 0) -> dict[str, Any]:
    """A leaf of every kind that a run may hold."""
    draw = np.random.default_rng(seed)
    return {
        "part": Part(
            jnp.asarray(draw.normal(size=(2, 3)), jnp.float32), jax.random.split(jax.random.key(seed), (2, 4))
        ),
        "key": jax.random.key(seed),
        "bool": np.array([True, False]),
        "ints": [np.arange(3, dtype=t) for t in ("int8", "uint8", "int32", "uint32", "int64")],
        "floats": [draw.normal(size=3).astype(t) for t in ("float16", "float32", "float64")],
        "bfloat16": jnp.asarray(draw.normal(size=(2, 2)), jnp.bfloat16),
        "scalar": np.float32(draw.normal()),
        "number": np.int64(2**40 + seed),
        "special": np.array([np.nan, np.inf, -0.0, np.finfo(np.float32).tiny / 4], np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "nothing": (),
        "transposed": np.asfortranarray(draw.normal(size=(3, 2))),
    }


def equal(a: Any, b: Any) -> None:
    """Structure, dtypes and bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(to_host(a)), jax.tree.leaves(to_host(b)), strict=True):
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


def write(folder: Path, tree: Any, manifest: dict[str, Any]) -> None:
    with at_work(folder.parent) as staging:
        checkpoint.write(folder, tree, manifest, staging)


def read(folder: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    arrays, manifest = read_arrays(folder, folder.parent)
    return restore(folder, arrays, like), manifest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write(tmp_path / "c", tree(), {"generation": 3, "name": "é", "pair": (1, 2.5)})
    return tmp_path / "c"


# --------------------------------------------------------------------------------------- round trip


def test_round_trip(saved: Path) -> None:
    back, manifest = read(saved, tree(seed=1))
    equal(back, tree())
    assert back["key"].dtype == jax.random.key(0).dtype
    assert jax.random.normal(back["part"].key[1, 3]) == jax.random.normal(tree()["part"].key[1, 3])
    assert manifest | {"bytes": 0, "crc32": 0} == {
        "generation": 3,
        "name": "é",
        "pair": [1, 2.5],
        "bytes": 0,
        "crc32": 0,
        "format": checkpoint.FORMAT,
    }


def test_shapes_alone_are_enough_to_read(saved: Path) -> None:
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree())
    equal(read(saved, shapes)[0], tree())


def test_to_host_copies() -> None:
    given = {"x": np.zeros(3), "key": jax.random.key(1)}
    copy = to_host(given)
    given["x"][:] = 1
    assert (copy["x"] == 0).all()
    assert copy["key"].dtype == np.uint32


def test_to_host_puts_together_what_lies_on_several_devices() -> None:
    values = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "n": np.arange(4)}
    layout = DeviceLayout(4)
    assert layout.devices == 2
    for spec in (MEMBERS, REPLICATED):
        copy = to_host(layout.place(values, spec))
        assert all(np.array_equal(copy[name], x) for name, x in values.items())


def test_files_are_inert(saved: Path) -> None:
    """A JSON manifest and safetensors; nothing that runs when it is read."""
    assert sorted(p.name for p in saved.iterdir()) == [MANIFEST, DATA]
    assert json.loads((saved / MANIFEST).read_text())["generation"] == 3
    assert b"numpy" not in (saved / DATA).read_bytes()[:2000]


def test_writing_again_replaces(saved: Path) -> None:
    write(saved, tree(seed=5), {"generation": 4})
    back, manifest = read(saved, tree())
    equal(back, tree(seed=5))
    assert manifest["generation"] == 4
    assert [p.name for p in saved.parent.iterdir()] == ["c"]


# --------------------------------------------------------------------------------------- damage


def damaged(folder: Path, like: Any = None) -> str:
    with pytest.raises(Damaged) as error:
        read(folder, tree() if like is None else like)
    assert str(error.value).startswith(str(folder))
    return str(error.value)


@pytest.mark.parametrize("name", [DATA, MANIFEST])
def test_truncated_anywhere(saved: Path, name: str) -> None:
    data = (saved / name).read_bytes()
    for size in {*range(0, len(data), max(1, len(data) // 60)), 1, 7, 8, 9, len(data) - 1}:
        (saved / name).write_bytes(data[:size])
        damaged(saved)


@pytest.mark.parametrize("name", [DATA, MANIFEST])
def test_a_flipped_bit_anywhere(saved: Path, name: str) -> None:
    """Damaged or, where a bit of the manifest says nothing, the very same value; never a wrong one."""
    data = bytearray((saved / name).read_bytes())
    whole = read(saved, tree())[1]
    for place in range(0, len(data), max(1, len(data) // 150)):
        data[place] ^= 1 << place % 8
        (saved / name).write_bytes(data)
        try:
            back, manifest = read(saved, tree())
        except Damaged:
            pass
        else:
            assert name == MANIFEST
            assert manifest == whole
            equal(back, tree())
        data[place] ^= 1 << place % 8


def test_a_changed_number_in_the_manifest(saved: Path) -> None:
    text = (saved / MANIFEST).read_text()
    (saved / MANIFEST).write_text(text.replace('"generation": 3', '"generation": 4'))
    assert "corrupted" in damaged(saved)


@pytest.mark.parametrize("tail", [b"\0", b"x" * 100])
def test_bytes_appended(saved: Path, tail: bytes) -> None:
    (saved / DATA).write_bytes((saved / DATA).read_bytes() + tail)
    damaged(saved)


@pytest.mark.parametrize("name", [DATA, MANIFEST])
def test_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    assert name in damaged(saved)
    (saved / name).mkdir()
    assert name in damaged(saved)


def test_missing_folder(tmp_path: Path) -> None:
    damaged(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    damaged(tmp_path / "file")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"bytes": 3, "crc32": 5}', "not json", "\xff", "{" * 5000])
def test_foreign_manifest(saved: Path, text: str) -> None:
    (saved / MANIFEST).write_text(text, encoding="latin-1")
    damaged(saved)


def test_foreign_data_under_a_matching_manifest(saved: Path) -> None:
    """What no checksum can tell: another file, vouched for."""
    data = b"PK\x03\x04 something else"
    (saved / DATA).write_bytes(data)
    manifest = {"bytes": len(data), "crc32": zlib.crc32(data), "format": checkpoint.FORMAT}
    manifest["manifest_crc32"] = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    (saved / MANIFEST).write_text(json.dumps(manifest))
    assert "cannot be read" in damaged(saved)


def test_data_of_another_checkpoint(saved: Path, tmp_path: Path) -> None:
    write(tmp_path / "d", tree(seed=9), {})
    shutil.copy(tmp_path / "d" / DATA, saved / DATA)
    assert "does not match its manifest" in damaged(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t | {"scalar": np.zeros(1, np.float32)},
        lambda t: t | {"scalar": np.float64(0)},
        lambda t: t | {"bool": np.zeros(2, np.uint8)},
        lambda t: t | {"bfloat16": np.zeros((2, 2), np.uint16)},
        lambda t: t | {"bfloat16": np.zeros((2, 2), np.float16)},
        lambda t: t | {"ints": t["ints"][1:]},
        lambda t: t | {"more": np.zeros(1)},
        lambda t: {k: v for k, v in t.items() if k != "scalar"},
        lambda t: t | {"key": jax.random.split(jax.random.key(0), 2)},
        lambda t: t | {"key": np.zeros(2, np.float32)},
        lambda t: t | {"floats": [np.zeros(4, np.float16), *t["floats"][1:]]},
    ],
)
def test_another_experiment(saved: Path, change: Callable) -> None:
    assert "another experiment" in damaged(saved, change(tree()))


def test_bfloat16_is_not_taken_for_its_bits(tmp_path: Path) -> None:
    write(tmp_path / "c", {"x": np.arange(4, dtype=ml_dtypes.bfloat16)}, {})
    back = read(tmp_path / "c", {"x": np.zeros(4, ml_dtypes.bfloat16)})[0]["x"]
    assert back.dtype == ml_dtypes.bfloat16
    assert back.astype(float).tolist() == [0, 1, 2, 3]


# --------------------------------------------------------------------------------------- atomic


def fail_at(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int) -> None:
    """Let the `call`-th call of a function fail as on a full disk."""
    real, calls = getattr(target, name), iter(range(10**6))

    def failing(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    monkeypatch.setattr(target, name, failing)


FAILURES = [(os, "fsync", 0), (os, "fsync", 1), (Path, "replace", 0), (Path, "replace", 1), (Path, "rename", 0)]


@pytest.mark.parametrize(("target", "name", "call"), FAILURES)
def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int
) -> None:
    fail_at(monkeypatch, target, name, call)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "c", tree(), {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("target", "name", "call"), [*FAILURES, (Path, "rename", 1)])
def test_a_failed_overwrite_leaves_the_old(
    saved: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int
) -> None:
    fail_at(monkeypatch, target, name, call)
    with pytest.raises(OSError, match="No space left"):
        write(saved, tree(seed=5), {})
    equal(read(saved, tree())[0], tree())
    assert [p.name for p in saved.parent.iterdir()] == ["c"]


@pytest.mark.parametrize(("target", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_file_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> None:
    path = tmp_path / "a.json"
    write_file(path, b"old")
    fail_at(monkeypatch, target, name, 0)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_order_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data are flushed before the manifest gets its name, and both before the folder gets its own."""
    events: list[str] = []
    sync, replace, rename = os.fsync, Path.replace, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), sync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b))[1])
    monkeypatch.setattr(Path, "rename", lambda a, b: (events.append(Path(b).name), rename(a, b))[1])
    write(tmp_path / "c", tree(), {})
    assert events == ["sync", DATA, "sync", MANIFEST, "c"]


# --------------------------------------------------------------------------------------- the last few


PART, BOTH = "shard-0000.safetensors", {"run", "shard-0000"}


def state(number: int) -> dict[str, Any]:
    """Two parts, as of a run in one process."""
    return {"shard-0000": {"x": np.full(3, number)}, "run": {"champion": np.float32(number), "evolution": ()}}


def checkpoints_in(folder: Path, keep: int = 3, attempt: str = "0") -> Checkpoints:
    """Of a run whose staging lies elsewhere, so that the folder holds what a reader sees."""
    staging = Staging(folder.with_name(f"{folder.name}-run"), attempt)
    staging.path.mkdir(parents=True, exist_ok=True)
    return Checkpoints(folder, keep, staging)


def fill(folder: Path, keep: int, generations: range, attempt: str = "0") -> Checkpoints:
    checkpoints = checkpoints_in(folder, keep, attempt)
    for generation in generations:
        checkpoints.save(generation, state(generation), {"seconds": 0.5}, 2)
    return checkpoints


def number(checkpoints: Checkpoints, generation: int) -> list[int]:
    """What `fill` has saved."""
    parts, manifest = checkpoints.load(generation, state(0))
    assert set(parts) == BOTH
    assert manifest["generation"] == generation
    return [*parts["shard-0000"]["x"].tolist(), int(parts["run"]["champion"])]


@pytest.mark.parametrize(("keep", "left"), [(1, [6]), (3, [4, 5, 6]), (10, list(range(7)))])
def test_keeps_the_last(tmp_path: Path, keep: int, left: list[int]) -> None:
    checkpoints = fill(tmp_path / "checkpoints", keep, range(7))
    assert checkpoints.generations() == left
    assert checkpoints.newest(pytest.fail)[0] == 6
    assert number(checkpoints, 6) == [6, 6, 6, 6]
    assert checkpoints.load(6, {})[1]["seconds"] == 0.5
    names = {"manifest.json", "run.safetensors", PART}
    assert all({p.name for p in folder.iterdir()} == names for folder in (tmp_path / "checkpoints").iterdir())


def test_falls_back_from_damaged_ones_and_says_so(tmp_path: Path) -> None:
    checkpoints, told = fill(tmp_path, 3, range(4)), []
    (tmp_path / "00000003" / MANIFEST).unlink()
    data = (tmp_path / "00000002" / PART).read_bytes()
    (tmp_path / "00000002" / PART).write_bytes(data[:-1])
    assert checkpoints.newest(told.append)[0] == 1
    assert number(checkpoints, 1) == [1, 1, 1, 1]
    assert len(told) == 2
    assert all("skipping a damaged checkpoint" in message for message in told)
    assert "00000003" in told[0]
    assert "00000002" in told[1]


def test_one_that_is_removed_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has gone on, and there is a newer one; each reading is of one generation."""
    checkpoints, manifest = fill(tmp_path / "c", 1, range(1)), Checkpoints.manifest

    def goes_on(here: Checkpoints, generation: int) -> dict[str, Any]:
        found = manifest(here, generation)
        if generation < 2:
            fill(tmp_path / "c", 1, range(generation + 1, generation + 2))
        return found

    monkeypatch.setattr(Checkpoints, "manifest", goes_on)
    generation, shards = checkpoints.arrays(None)
    assert (generation, shards["shard-0000"]["x"].tolist()) == (2, [2, 2, 2])
    (tmp_path / "c" / "00000002" / PART).unlink()
    with pytest.raises(BadInput, match="no whole checkpoint"):
        checkpoints.arrays(None)


def test_none_is_whole(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path / "c", 3, range(2))
    for generation in (0, 1):
        (tmp_path / "c" / f"{generation:08d}" / PART).write_bytes(b"")
    with pytest.raises(BadInput, match="holds no whole checkpoint to resume from"):
        checkpoints.newest(lambda message: None)
    with pytest.raises(BadInput, match="holds no whole checkpoint"):
        checkpoints_in(tmp_path / "nowhere", 3).newest(lambda message: None)


def test_foreign_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("7", "²", "notes", "00000009.old", ".00000004.17", "-0000001"):
        (tmp_path / name).mkdir()
    (tmp_path / "00000008").write_text("a file")
    checkpoints = fill(tmp_path, 2, range(4))
    assert checkpoints.generations() == [2, 3]
    assert (tmp_path / "7").is_dir()
    assert (tmp_path / "00000008").is_file()


def test_a_rewritten_generation(tmp_path: Path) -> None:
    """After a fall-back the run comes to a damaged generation again."""
    checkpoints = fill(tmp_path, 3, range(3))
    (tmp_path / "00000002" / PART).unlink()
    checkpoints.save(2, state(7), {}, 2)
    assert checkpoints.newest(pytest.fail)[0] == 2
    assert number(checkpoints, 2) == [7, 7, 7, 7]


@pytest.mark.parametrize("call", range(5))  # two parts, what is said of each, and the manifest
def test_a_full_disk_costs_no_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    checkpoints = fill(tmp_path, 2, range(2))
    fail_at(monkeypatch, os, "fsync", call)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, state(2), {}, 2)
    assert checkpoints.generations() == [0, 1]
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["00000000", "00000001"]


# --------------------------------------------------------------------------------------- several processes


def test_the_leader_waits_for_all_parts(tmp_path: Path) -> None:
    """Whoever comes first: the checkpoint has its name when all parts are there, and not before."""
    one, leader, two = (checkpoints_in(tmp_path, 3, "a") for _ in range(3))
    one.save(5, {"shard-0001": {"x": np.arange(3)}}, None, 4)
    assert leader.generations() == []
    with ThreadPoolExecutor(1) as saver:
        sealing = saver.submit(leader.save, 5, state(5), {"seconds": 1.5}, 4)
        time.sleep(0.1)
        assert not sealing.done()
        assert leader.generations() == []
        two.save(5, {"shard-0002": {"x": np.arange(4)}}, None, 4)
        sealing.result(timeout=10)
    assert [p.name for p in tmp_path.iterdir()] == ["00000005"]
    assert leader.newest(pytest.fail)[0] == 5
    parts, manifest = leader.load(5, {"shard-0001": {"x": np.zeros(3, int)}, "shard-0002": {"x": np.zeros(4, int)}})
    assert [parts[name]["x"].tolist() for name in sorted(parts)] == [[0, 1, 2], [0, 1, 2, 3]]
    assert set(manifest["parts"]) == {"run", "shard-0000", "shard-0001", "shard-0002"}
    assert manifest["seconds"] == 1.5


def test_the_manifest_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is flushed before what vouches for it, both before the manifest, and that before the name."""
    events: list[str] = []
    sync, replace, rename = os.fsync, Path.replace, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), sync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b))[1])
    monkeypatch.setattr(Path, "rename", lambda a, b: (events.append(Path(b).name), rename(a, b))[1])
    checkpoints_in(tmp_path, 3).save(5, state(5), {}, 2)
    order = [PART, "shard-0000.json", "run.safetensors", "run.json", MANIFEST]
    assert events == [event for name in order for event in ("sync", name)] + ["00000005"]


def test_parts_of_an_earlier_attempt_are_never_sealed_in(tmp_path: Path) -> None:
    """A process that was killed left its part of a generation; the next attempt comes there with other numbers."""
    checkpoints_in(tmp_path, 3, "old").save(5, {"shard-0001": {"x": np.full(3, 66)}}, None, 3)
    leader, other = checkpoints_in(tmp_path, 3, "new"), checkpoints_in(tmp_path, 3, "new")
    with ThreadPoolExecutor(1) as saver:
        sealing = saver.submit(leader.save, 5, state(5), {}, 3)
        time.sleep(0.1)
        assert not sealing.done(), "it took the part of the attempt before"
        other.save(5, {"shard-0001": {"x": np.full(3, 7)}}, None, 3)
        sealing.result(timeout=10)
    assert leader.load(5, {"shard-0001": {"x": np.zeros(3, int)}})[0]["shard-0001"]["x"].tolist() == [7, 7, 7]
    assert {p.name for p in tmp_path.iterdir()} == {"00000005"}


def spoil(folder: Path, how: str) -> None:
    """Damage a checkpoint of generation 3 of `fill`; 00000002 is whole."""
    part, manifest = folder / PART, folder / MANIFEST
    if how in ("missing part", "missing manifest"):
        (part if "part" in how else manifest).unlink()
    elif how in ("torn part", "torn manifest"):
        path = part if "part" in how else manifest
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "part of another generation":
        shutil.copy(folder.with_name("00000002") / PART, part)
    elif how == "part of another":
        shutil.copy(folder / "run.safetensors", part)
    elif how == "foreign part":
        part.write_bytes(b"PK something else")
    elif how == "foreign manifest":
        manifest.write_text('{"format": "something else"}')
    elif how == "manifest of another":
        text = json.loads(manifest.read_text())
        text["parts"]["shard-0000"]["crc32"] ^= 1
        manifest.write_text(json.dumps(text))
    else:
        assert how == "a bit of a part"
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)


SPOILT = ["missing part", "missing manifest", "torn part", "torn manifest", "part of another generation"]
SPOILT += ["part of another", "foreign part", "foreign manifest", "manifest of another", "a bit of a part"]


@pytest.mark.parametrize("how", SPOILT)
def test_a_checkpoint_with_a_damaged_part_is_skipped_with_a_note(tmp_path: Path, how: str) -> None:
    checkpoints, told = fill(tmp_path, 3, range(4)), []
    spoil(tmp_path / "00000003", how)
    assert checkpoints.newest(told.append)[0] == 2
    assert len(told) == 1
    assert told[0].startswith(f"skipping a damaged checkpoint: {tmp_path / '00000003'}: ")
    assert (PART if "part" in how else MANIFEST) in told[0]


@pytest.mark.parametrize(
    "like",
    [
        {"shard-0001": {"x": np.zeros(3, int)}},
        {"shard-0000": {"x": np.zeros(4, int)}},
        {"shard-0000": {"y": np.zeros(3, int)}},
        {"shard-0000": {"x": np.zeros(3, int), "y": np.zeros(1)}},
        {"shard-0000": {}},
    ],
)
def test_parts_of_another_experiment(tmp_path: Path, like: dict[str, Any], said: Said) -> None:
    checkpoints = fill(tmp_path, 3, range(1))
    with pytest.raises(BadInput) as error:
        checkpoints.load(0, like)
    said(error.value)


# --------------------------------------------------------------------------------------- forged, but sealed


def forged(folder: Path, **changes: Any) -> Checkpoints:
    """Two generations, the newer with a manifest that says something else and has the right checksum."""
    checkpoints = checkpoints_in(folder)
    for generation in (1, 2):
        checkpoints.save(generation, {"run": {"x": np.arange(3)}}, {"steps": 1}, 1)
    path = folder / "00000002" / MANIFEST
    path.write_bytes(seal(unseal(path) | changes))
    return checkpoints


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": 7},
        {"generation": None},
        {"parts": None},
        {"parts": ["run"]},
        {"parts": {"run": 3}},
        *(
            {"parts": {name: {"bytes": 6, "crc32": zlib.crc32(b"secret")}}}
            for name in ("../../secret", "/tmp/secret", "a/b", "", "..")
        ),
    ],
    ids=shown,
)
def test_a_forged_manifest_is_skipped_and_refused(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    """Nothing outside of the folder is read, whatever its manifest says."""
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    checkpoints, notes = forged(tmp_path / "run" / "checkpoints", **changes), []
    assert checkpoints.newest(notes.append)[0] == 1
    (note,) = notes
    said(note)
    with pytest.raises(BadInput) as error:
        checkpoints.load(2, {"run": {"x": np.arange(3)}})
    said(error.value)


@pytest.mark.parametrize("name", [DATA, MANIFEST])
def test_a_pipe_in_the_place_of_a_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    assert f"no readable {name} (" in damaged(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, '{"a": "\\ud800"}', '{"a": ' + "9" * 5000 + "}"])
def test_json_that_cannot_be_read_or_written_again(saved: Path, text: str) -> None:
    (saved / MANIFEST).write_text(text)
    assert f"no readable {MANIFEST} (" in damaged(saved)


def test_what_another_version_has_written_is_refused_in_one_line(saved: Path, said: Said) -> None:
    manifest = unseal(saved / MANIFEST)
    manifest.pop("manifest_crc32", None)
    write_file(saved / MANIFEST, seal(manifest | {"format": checkpoint.FORMAT - 1}))
    with pytest.raises(BadInput) as error:
        read(saved, tree())
    said(error.value)
