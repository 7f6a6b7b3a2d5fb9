"""A directory that workers share: what they publish, what others read, and whose a name is."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.cases import examples

from shoal.core import atomic
from shoal.core.atomic import Staging, create_file, seal, unseal
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed
from shoal.distributed import lease
from shoal.distributed.directory import Lost, Published, Workspace, is_kept
from shoal.distributed.rows import sound

COLUMNS, SIZE, N = ["uid", "fitness"], 1000, 3


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that are void after a second."""
    monkeypatch.setattr(lease, "BEAT", 0.05)
    monkeypatch.setattr(lease, "PATIENCE", 0.6)


class Clock:
    """Time that passes while a lease is watched, and only then."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


class Seen:
    """A worker of a test, and what it noted."""

    def __init__(self, path: Path, name: str | None = None, keep: int = 2, every: int = 1):
        self.notes: list[str] = []
        self.space = Workspace(path, keep, lambda: None, self.notes.append, every)
        self.space.join(name)

    def publish(self, generation: int) -> None:
        self.space.publish(generation, COLUMNS, rows(self.space.slot, generation), states(self.space.slot, generation))

    def visible(self, generation: int = 10**6) -> list[Published]:
        return self.space.visible(generation, COLUMNS)


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Callable[..., Seen]]:
    made: list[Seen] = []

    def make(name: str | None = None, keep: int = 2) -> Seen:
        made.append(Seen(tmp_path, name, keep))
        return made[-1]

    yield make
    for worker in made:
        worker.space.leave()


def rows(slot: int, generation: int) -> np.ndarray:
    return np.stack([slot * N + np.arange(N), [0.1 * generation, math.nan, -math.inf]], 1)


def states(slot: int, generation: int) -> list[bytes]:
    return [np.random.default_rng((slot, generation, row)).bytes(SIZE + row) for row in range(N)]


def published(path: Path, worker: str) -> list[str]:
    return sorted(p.name for p in (path / "published" / worker).iterdir() if not p.name.endswith(".work"))


# --------------------------------------------------------------------------------------- names and numbers


def test_new_workers_get_numbers_of_their_own(join):
    names = [(w.space.name, w.space.slot) for w in (join(), join("gpu-7"), join(), join("5"), join(), join())]
    assert names == [("0", 0), ("gpu-7", 1), ("2", 2), ("5", 3), ("4", 4), ("6", 6)]


def test_the_last_worker_is_who_knows_of_no_other_at_work(join, tmp_path):
    """Another has its result, has given its name back, or was killed: on this machine, or on another one."""
    worker, other = join("a"), join("b")
    assert not worker.space.is_last()
    (tmp_path / "workers" / "b").mkdir()
    (tmp_path / "workers" / "b" / "result.json").touch()
    assert worker.space.is_last()
    (tmp_path / "workers" / "b" / "result.json").unlink()
    other.space.leave()
    assert worker.space.is_last()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (tmp_path / "leases" / "c").write_text(f"here {gone.stdout.strip()} {lease.realm_here()} x")
    assert worker.space.is_last()
    (elsewhere := tmp_path / "leases" / "d").write_text(f"elsewhere {gone.stdout.strip()} another x")
    assert worker.space.is_last()
    times = iter(range(9))
    worker.space._pause = lambda: os.utime(elsewhere, (1, next(times)))  # private: it is given once, for all that waits
    assert not worker.space.is_last()
    worker.space._pause = lambda: elsewhere.unlink(missing_ok=True)  # private, as above
    assert worker.space.is_last()


def test_a_worker_that_comes_back_keeps_its_number(join):
    join("a")
    worker = join("b")
    worker.space.leave()
    join("c")
    again = join("b")
    assert (again.space.name, again.space.slot) == ("b", 1)


def test_many_at_once(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        workers = list(pool.map(lambda _: Seen(tmp_path), range(16)))
    assert sorted(w.space.slot for w in workers) == list(range(16))
    assert len({w.space.name for w in workers}) == 16
    for worker in workers:
        worker.space.leave()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a b", "x" * 65, "-a"])
def test_names_that_are_none(tmp_path, name, said):
    with pytest.raises(BadInput) as error:
        Seen(tmp_path, name)
    said(error.value)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_used(tmp_path, said):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput) as error:
        Seen(tmp_path / "file")
    said(error.value)


def test_a_disk_that_is_full_for_a_while(join, tmp_path, monkeypatch, said):
    """A worker that was here fails, as it does where the disk fills up under way: bad input would end all others too, and
    nobody would start it again."""
    join("a").space.leave()
    (tmp_path / "workers/a").mkdir()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full)
        with pytest.raises(Failed) as error:
            join("a")
        said(error.value)
        with pytest.raises(BadInput) as new:
            join("b")
        said(new.value)
    assert join("a").space.slot == 0


def test_a_read_only_directory(tmp_path, monkeypatch, said):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(BadInput) as error:
        Seen(tmp_path)
    said(error.value)


# ---------------------------------------------------------------------------------------------------- leases


def test_a_name_is_one_workers(join, said):
    join("a")
    with pytest.raises(BadInput) as error:
        join("a")
    assert f"process {os.getpid()} on " in str(error.value)
    said(error.value)
    join("b")


def test_a_name_that_was_given_back(join, tmp_path):
    join("a").space.leave()
    assert not list((tmp_path / "leases").iterdir())
    assert not join("a").notes, "nobody is watched for"


def test_the_lease_of_a_process_of_this_machine_that_is_gone(join, tmp_path):
    """SIGKILL leaves the lease behind; nobody has to wait for it."""
    left_behind(tmp_path / "leases" / "a", lease.realm_here())
    assert not join("a").notes


def left_behind(file: Path, realm: str) -> None:
    """The lease of a process of this machine that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file.parent.mkdir()
    file.write_text(f"{socket.gethostname()} {gone.pid} {realm} 123")


@pytest.mark.parametrize("theirs", ["another container", "another start", "nobody can tell"])
def test_a_process_that_cannot_be_seen_from_here_is_watched(join, clock, tmp_path, monkeypatch, theirs):
    """Containers may share the name of their machine; a process id says nothing of who is alive in another one."""
    if theirs == "nobody can tell":
        monkeypatch.setattr(lease, "realm_here", lambda: lease.UNKNOWN)
    boot, _, namespace = lease.realm_here().partition(":")
    realms = {"another container": f"{boot}:{namespace}0", "another start": f"0{boot}:{namespace}"}
    left_behind(tmp_path / "leases" / "a", realms.get(theirs, lease.UNKNOWN))
    worker = join("a")
    assert worker.notes == [f"worker a may be at work on {socket.gethostname()}: watching for 0.6 s"]
    assert clock.now >= 0.6


def test_the_lease_of_another_machine_is_watched(join, clock, tmp_path):
    (tmp_path / "leases").mkdir()
    file = tmp_path / "leases" / "a"
    file.write_text("elsewhere 1 123")
    os.utime(file, (2**33, 2**33))  # its clock is two centuries ahead, and means nothing
    worker = join("a")
    assert 0.6 <= clock.now < 0.7
    assert worker.notes == ["worker a may be at work on elsewhere: watching for 0.6 s"]
    assert file.read_text().startswith(socket.gethostname())


def test_a_worker_elsewhere_that_is_alive(tmp_path, clock, said):
    """It renews its lease once, shortly before that would be void."""
    (tmp_path / "leases").mkdir()
    file = tmp_path / "leases" / "a"
    file.write_text("elsewhere 77 123")

    def beat() -> None:
        if clock.now > 0.5:
            os.utime(file, (1, 1))

    with pytest.raises(BadInput) as error:
        Workspace(tmp_path, 2, beat, lambda message: None).join("a")
    said(error.value)
    assert file.read_text() == "elsewhere 77 123"


def test_of_two_that_claim_a_dead_name_one_gets_it(tmp_path):
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "a").write_text("elsewhere 1 123")

    def claim(_: int) -> Seen | BadInput:
        try:
            return Seen(tmp_path, "a")
        except BadInput as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(claim, range(8)))
    holders = [worker for worker in got if isinstance(worker, Seen)]
    assert len(holders) == 1
    assert all("it is at work" in str(error) for error in got if isinstance(error, BadInput))
    holders[0].publish(0)
    holders[0].space.leave()
    assert not list((tmp_path / "leases").iterdir())


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_lease_that_cannot_be_read_is_not_another_workers(join, monkeypatch, number):
    worker, whole = join("a"), lease.read_file

    def unreadable(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(lease, "read_file", unreadable)
    with pytest.raises(OSError, match=os.strerror(number)):
        worker.visible()
    monkeypatch.setattr(lease, "read_file", whole)
    assert worker.visible() == []


def test_a_worker_that_was_taken_for_dead_stops(join, tmp_path, said):
    """It was paused for long, and somebody else goes on in its name."""
    paused = join("a")
    paused.publish(0)
    (tmp_path / "leases" / "a").rename(tmp_path / "leases" / ".a.aside")
    (tmp_path / "leases" / "a").write_text("elsewhere 1 123")
    Staging(tmp_path / "published" / "a", "other").open()
    with pytest.raises(OSError) as error:
        paused.visible()
    said(error.value)
    with pytest.raises(FileNotFoundError):
        paused.publish(1)
    assert published(tmp_path, "a") == ["00000000.json", "00000000.states"]
    paused.space.leave()
    assert (tmp_path / "leases" / "a").read_text() == "elsewhere 1 123"


def test_a_lease_that_is_removed_by_mistake_is_given_back(join, tmp_path, monkeypatch):
    """Of two that see a lease that is void one is late: what it takes away is the lease of the other."""
    path, seen = tmp_path / "leases" / "a", []
    path.parent.mkdir()
    path.write_text("elsewhere 1 123")
    whole = lease.Lease._remove  # private: nothing else lies between seeing that a lease is void and taking it away

    def late(self: lease.Lease, holder: str) -> None:
        monkeypatch.setattr(lease.Lease, "_remove", whole)  # private, as above
        faster, link = join("a"), os.link

        def back(source: Path, target: Path) -> None:
            with ThreadPoolExecutor(1) as pool:
                looking = pool.submit(faster.visible)
                time.sleep(0.2)
                link(source, target)
                seen.append(looking.result())

        with monkeypatch.context() as patch:
            patch.setattr(os, "link", back)
            whole(self, holder)

    monkeypatch.setattr(lease.Lease, "_remove", late)  # private, as above
    with pytest.raises(BadInput, match="it is at work"):
        join("a")
    assert seen == [[]]


def test_waiting_stays_open_to_signals(tmp_path):
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "a").write_text("elsewhere 1 123")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workspace(tmp_path, 2, stop, lambda message: None).join("a")


# ------------------------------------------------------------------------------------------------ publishing


def test_a_card_comes_after_its_states(join, tmp_path, monkeypatch):
    worker, order = join("a"), []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append(Path(b).name), replace(a, b))[1])
    worker.publish(3)
    assert order == ["00000003.states", "00000003.json"]


def test_the_directory_does_not_grow(join, tmp_path):
    worker, bound = join("a", keep=3), 3 * (1 + math.log2(150 / 3))
    for generation in range(150):
        worker.publish(generation)
        names = published(tmp_path, "a")
        assert len(names) <= 2 * bound + 2
        assert {f"{g:08d}.json" for g in range(max(0, generation - 2), generation + 1)} <= set(names)
        assert sorted({n[:8] for n in names if "json" in n}) == sorted({n[:8] for n in names if "states" in n})
    assert "00000000.json" in names


@pytest.mark.parametrize("keep", [1, 2, 3, 7])
def test_what_was_dropped_is_never_missed(keep):
    """What stays has been there all along, and a latecomer finds something not much older than it needs."""
    for newest in range(200):
        kept = [g for g in range(newest + 1) if is_kept(g, newest, keep)]
        assert kept[-keep:] == list(range(max(0, newest - keep + 1), newest + 1)) and kept[0] == 0
        assert len(kept) <= keep * (2 + math.log2(1 + newest / keep))
        for g in kept:
            assert all(is_kept(g, earlier, keep) for earlier in range(g, newest))
        for g in range(newest + 1):
            found = max(k for k in kept if k <= g)
            assert g - found < max(1, 2 * (newest - found) / keep)


@pytest.mark.parametrize("every", [1, 3, 10])
def test_what_is_published_now_and_then_stays_as_long(tmp_path, every):
    """Of every third or tenth generation, old ones stay as they do where all are published."""
    worker, other = Seen(tmp_path, "a", every=every), Seen(tmp_path, "b")
    shown = range(every - 1, 40 * every, every)
    for generation in shown:
        worker.publish(generation)
    kept = [shown[i] for i in range(40) if is_kept(i, 39, 2)]
    assert [int(name[:8]) for name in published(tmp_path, "a") if name.endswith("json")] == kept
    assert [manifest.generation for manifest in other.visible(every)] == [every - 1]
    for seen in (worker, other):
        seen.space.leave()


def test_what_was_published_is_not_lived_again(join, said):
    """Others may have copied it. Whatever else lies there under this name counts for nothing."""
    worker, uid = join("a"), np.arange(N)
    worker.publish(4)
    worker.space.check_past(5, uid)
    with pytest.raises(BadInput) as error:
        worker.space.check_past(3, uid)
    said(error.value)
    worker.space.check_past(3, uid + N)


def test_a_full_disk(join, tmp_path, monkeypatch):
    worker, other = join("a"), join("b")
    worker.publish(0)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for call in range(2):  # of the states; of the manifest
        calls = iter(range(9))
        with monkeypatch.context() as patch:
            patch.setattr(
                atomic.os, "fsync", lambda fd, call=call, calls=calls: full(fd) if next(calls) == call else None
            )
            with pytest.raises(OSError, match="No space left"):
                worker.publish(1)
        assert [manifest.generation for manifest in other.visible()] == [0]
        assert not [name for name in published(tmp_path, "a") if name.startswith(".")]
    worker.publish(1)
    assert [manifest.generation for manifest in other.visible()] == [1]


# ----------------------------------------------------------------------------------------- what others find


WHO = st.sampled_from("ab")
WRONGS = st.sampled_from(("torn", "empty", "a bit", "foreign", "gone", "a folder"))


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "torn":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "a bit":
        path.write_bytes(bytes(x ^ 4 * (i % 1000 == 700) for i, x in enumerate(data)) if len(data) > 700 else data[:-9])
    elif how == "foreign":
        path.write_bytes(b'{"rows": []}')
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    else:
        assert how == "gone"
        path.unlink()


class Witness(Seen):
    """A worker, and what it must have noticed since it began."""

    def __init__(self, path: Path, name: str):
        super().__init__(path, name, keep="ab".index(name) + 1)
        self.lost: set[tuple[str, int]] = set()
        self.known: dict[str, Published] = {}
        self.faults = 0


class Shore(RuleBasedStateMachine):
    """Two workers that publish, look, read and come back, while files of theirs are spoilt: what each sees of the others
    follows from what was published, what has become of it, and what it has noticed of that."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.workers = {name: Witness(self.path, name) for name in "ab"}
        self.stats: dict[Path, bytes] = {}  # as they were published
        for name in self.workers:
            self.publish(name, 1)
            self.look(name, 10**6)

    def teardown(self) -> None:
        for worker in self.workers.values():
            worker.space.leave()
        self.folder.cleanup()

    def there(self, name: str, kind: str = "json") -> list[Path]:
        return sorted((self.path / "published" / name).glob(f"{'[0-9]' * 8}.{kind}"), reverse=True)

    @rule(name=WHO, step=st.integers(1, 3))
    def publish(self, name: str, step: int) -> None:
        generation = max((int(path.stem) for path in self.stats if path.parent.name == name), default=-1) + step
        self.workers[name].publish(generation)
        newest, *_ = self.there(name)
        assert int(newest.stem) == generation
        self.stats[newest] = newest.read_bytes()

    @rule(name=WHO, which=st.integers(0, 1), how=WRONGS)
    def spoil_a_card(self, name: str, which: int, how: str) -> None:
        self._spoil(self.there(name), which, how)

    @rule(name=WHO, which=st.integers(0, 1), how=WRONGS)
    def spoil_states(self, name: str, which: int, how: str) -> None:
        self._spoil(self.there(name, "states"), which, how)

    def _spoil(self, files: list[Path], which: int, how: str) -> None:
        for path in files[which : which + 1]:
            if path.is_file():
                spoil(path, how)

    @rule(name=WHO, until=st.integers(0, 12) | st.just(10**6))
    def look(self, name: str, until: int) -> None:
        """The newest manifest of each of the others that is whole, or that was when it was read."""
        worker, found = self.workers[name], {}
        for other in self.workers.keys() - {name}:
            for path in self.there(other):
                here = other, int(path.stem)
                if here[1] > until or here in worker.lost:
                    continue
                known = worker.known.get(other)
                if (known and known.generation == here[1]) or (
                    path.is_file() and path.read_bytes() == self.stats[path]
                ):
                    found[other] = here[1]
                    break
                worker.lost.add(here)
                worker.faults += 1
        seen = worker.visible(until)
        assert [(manifest.worker, manifest.generation) for manifest in seen] == sorted(found.items())
        for manifest in seen:
            slot = self.workers[manifest.worker].space.slot
            assert (manifest.columns, manifest.sizes) == (COLUMNS, [len(x) for x in states(slot, manifest.generation)])
            np.testing.assert_array_equal(manifest.rows, rows(slot, manifest.generation))
            worker.known[manifest.worker] = manifest

    @rule(name=WHO, until=st.integers(0, 12) | st.just(10**6), row=st.integers(0, N - 1))
    def read(self, name: str, until: int, row: int) -> None:
        """A state as it was published, or none: then its manifest is not seen again. It may have been read before."""
        worker = self.workers[name]
        for manifest in worker.known.values():
            if (manifest.worker, manifest.generation) not in worker.lost:
                self._read(worker, manifest, row)
        self.look(name, until)

    def _read(self, worker: Witness, manifest: Published, row: int) -> None:
        path = self.path / "published" / manifest.worker / f"{manifest.generation:08d}.states"
        expected = states(self.workers[manifest.worker].space.slot, manifest.generation)
        begin = sum(len(x) for x in expected[:row])
        if path.is_file() and path.read_bytes()[begin : begin + len(expected[row])] == expected[row]:
            assert worker.space.read(manifest, row) == expected[row]
        else:
            with pytest.raises(Lost):
                worker.space.read(manifest, row)
            worker.lost.add((manifest.worker, manifest.generation))
            worker.faults += path.exists()  # what has been removed since is no fault

    @precondition(lambda self: any(worker.lost for worker in self.workers.values()))
    @rule(name=WHO)
    def come_back(self, name: str) -> None:
        slot = self.workers[name].space.slot
        self.workers[name].space.leave()
        self.workers[name] = Witness(self.path, name)
        assert self.workers[name].space.slot == slot

    @invariant()
    def each_fault_is_told_once(self) -> None:
        for worker in self.workers.values():
            assert len(worker.notes) == len(set(worker.notes)) == worker.faults, worker.notes
            assert all(re.search(r"published/\w+.*[0-9]{8}\.(json|states)", note) for note in worker.notes), (
                worker.notes
            )


@examples(20, 300)
def test_what_workers_see_of_one_another(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: None)  # no power cut here: it takes most of the time
    run_state_machine_as_test(Shore, settings=settings(max_examples=examples))


@pytest.mark.parametrize(
    "change", [{"rows": "x"}, {"checksums": [1]}, {"generation": 2}, {"sizes": None}, {"columns": []}]
)
def test_a_card_that_makes_no_sense(join, tmp_path, change):
    a, b = join("a"), join("b")
    a.publish(3)
    path = tmp_path / "published" / "a" / "00000003.json"
    path.write_bytes(seal(unseal(path) | change))
    assert not b.visible()
    assert len(b.notes) == 1 and "00000003.json" in b.notes[0]


def test_foreign_things_are_left_alone(join, tmp_path):
    a, b = join("a"), join("b")
    a.publish(3)
    (tmp_path / "published" / "file").write_text("x")
    (tmp_path / "published" / "empty").mkdir()
    (tmp_path / "published" / "a" / "notes.txt").write_text("x")
    (tmp_path / "published" / "a" / "99999999.json.bak").write_text("x")
    (tmp_path / "README").write_text("x")
    assert [manifest.generation for manifest in b.visible()] == [3] and not b.notes
    a.publish(4)
    assert (tmp_path / "published" / "a" / "notes.txt").exists()


def test_cards_of_another_experiment(join, tmp_path):
    a, b = join("a"), join("b")
    a.publish(3)
    assert not b.space.visible(9, [*COLUMNS, "hyper.discount"])
    assert b.notes == ["skipping generation 4 of worker a: it is of another experiment"]


def test_a_copied_folder_is_read_as_it_is(join, tmp_path):
    """Whose members they are is for the reader to see."""
    a, b = join("a"), join("b")
    a.publish(3)
    shutil.copytree(tmp_path / "published" / "a", tmp_path / "published" / "copy")
    assert [(c.worker, c.rows[0, 0]) for c in b.visible()] == [("a", 0.0), ("copy", 0.0)]


def test_what_a_killed_writer_left(join, tmp_path):
    a, b = join("a"), join("b")
    a.space.leave()
    left = tmp_path / "published" / "a" / ".killed.work"
    left.mkdir()
    (left / "00000001.states").write_bytes(b"half")
    assert not b.visible()
    again = join("a")
    again.publish(1)
    assert published(tmp_path, "a") == ["00000001.json", "00000001.states"] and not left.exists()


# ------------------------------------------------------------------------------------------- the experiment


def test_all_train_the_same(join, tmp_path, said):
    a, b = join("a"), join("b")
    asked: list[str] = []
    a.space.ensure_experiment("one", lambda path: pytest.fail("nobody was there before"))
    b.space.ensure_experiment("one, too", lambda path: asked.append(path.read_text()) or [])  # type: ignore[func-returns-value]
    assert asked == ["one"]
    with pytest.raises(BadInput) as error:
        b.space.ensure_experiment("two", lambda path: ["seed", "hyper.discount"])
    said(error.value)
    assert (tmp_path / "experiment.yaml").read_text() == "one"


def test_create_file(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: create_file(tmp_path / "f", str(i).encode() * 5000), range(32)))
    assert made.count(True) == 1
    assert (tmp_path / "f").read_text() == str(made.index(True)) * 5000
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_sealed(tmp_path):
    (tmp_path / "f").write_bytes(seal({"a": [1, None, "x"]}))
    assert unseal(tmp_path / "f") == {"a": [1, None, "x"]}
    text = json.loads((tmp_path / "f").read_text())
    (tmp_path / "f").write_text(json.dumps(text | {"a": [2, None, "x"]}))
    with pytest.raises(atomic.Damaged, match="f is corrupted"):
        unseal(tmp_path / "f")


# --------------------------------------------------------------------------------------- what somebody forged


@pytest.mark.parametrize(
    "make", [lambda p: p.write_bytes(b"\xff\xfe"), Path.mkdir, os.mkfifo, lambda p: p.symlink_to("x")]
)
def test_a_worker_lives_on_among_slots_that_cannot_be_read(join, tmp_path, make):
    join("a")
    make(tmp_path / "slots" / "0005")
    assert join("b").space.slot == 6
    join("a" * 2).publish(0)


def test_no_number_left(join, tmp_path, said):
    join("a")
    (tmp_path / "slots" / "9999").write_text("z")
    with pytest.raises(BadInput) as error:
        join("b")
    said(error.value)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "make",
    [
        *(lambda p: p.write_bytes(b"\xff\xfe \xff"), Path.mkdir, os.mkfifo, lambda p: p.symlink_to("x")),
        *(lambda p, holder=holder: p.write_text(f"h {holder} x") for holder in ("\u00b2", "9" * 5000, "-1")),
    ],
)
def test_a_lease_that_nobody_can_have_is_broken(join, tmp_path, make):
    join("a").space.leave()
    make(tmp_path / "leases" / "a")
    worker = join("a")
    worker.publish(0)
    assert [p.name for p in (tmp_path / "leases").iterdir()] == ["a"]


CARD = {"generation": 3, "columns": COLUMNS, "rows": [[1, 2.0]] * 3, "sizes": [SIZE] * 3, "checksums": [1, 2, 3]}


@pytest.mark.parametrize(
    "changes",
    [
        *({"generation": 4}, {"columns": 2}, {"columns": None}, {"rows": 3}, {"rows": [[1, 2], [3]]}, {"rows": []}),
        *(
            {"rows": [[10**400, 1]] * 3},
            {"sizes": ["x"] * 3},
            {"sizes": [1e400] * 3},
            {"checksums": [None] * 3},
            {"checksums": [1]},
        ),
        *(
            {"rows": [["x", 1]] * 3},
            {"rows": [[[1], 1]] * 3},
            {"columns": ["a"]},
            {"sizes": [-1, 1, 1]},
            {"sizes": [1, 1]},
        ),
    ],
)
def test_forged_cards_are_skipped(join, tmp_path, changes):
    join("b").publish(2)
    (tmp_path / "published" / "b" / "00000003.json").write_bytes(seal(CARD | changes))
    a = join("a")
    assert [manifest.generation for manifest in a.visible()] in ([2], [])  # of one that fits no other, none is believed
    assert len(a.notes) == 1


def test_what_is_no_card_in_the_place_of_one(join, tmp_path):
    join("b").publish(2)
    a, folder = join("a"), tmp_path / "published" / "b"
    os.mkfifo(folder / "00000003.json")
    (folder / "00000004.json").mkdir()
    (folder / "00000005.json").write_text("[" * 100_000)
    (tmp_path / "published" / os.fsdecode(b"\xff")).mkdir()
    (manifest,) = a.visible()
    assert manifest.generation == 2 and len(a.notes) == 3
    (folder / "00000002.states").unlink()
    os.mkfifo(folder / "00000002.states")
    with pytest.raises(Lost):
        a.space.read(manifest, 0)


def test_folders_where_a_worker_cleans_up(join, tmp_path):
    a = join("a", keep=1)
    (tmp_path / "published" / "a" / "00000001.json").mkdir()
    a.publish(3)
    assert published(tmp_path, "a") == ["00000003.json", "00000003.states"]


NAMES = ["uid", "generation", "steps", "fitness", "std", "episodes", "hyper.x"]


@pytest.mark.parametrize(
    ("column", "value"),
    [(name, x) for name in ("uid", "generation", "steps") for x in (math.nan, math.inf, -1, 0.5, 2.0**60)]
    + [("hyper.x", math.nan), ("hyper.x", math.inf), ("generation", 4)],
)
def test_numbers_that_are_no_cards(column, value):
    rows = np.array([[7, 3, 100, math.nan, -math.inf, 2, 0, 0.5]] * 2)
    assert sound(rows, NAMES, 3)
    rows[1, NAMES.index(column)] = value
    assert not sound(rows, NAMES, 3)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_an_experiment_that_is_no_file(join, tmp_path, make, said):
    a = join("a")
    make(tmp_path / "experiment.yaml")
    with pytest.raises(BadInput) as error:
        a.space.ensure_experiment("one", lambda path: pytest.fail("it cannot be read"))
    said(error.value)
