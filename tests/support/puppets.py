"""Workers without learning that share a directory, and a hand that harms them: `python puppets.py DIR FAULTS SEED`.

Each puppet reads what others have published, records, saves and publishes, as a worker of Shoal's does between two
intervals, as fast as the disk lets it. Fitness is drawn anew whenever a generation is lived, and a state is a function of
whose it is, when, and of that fitness: so whatever is read can be judged, and every record of a copy names one life.

The driver kills puppets (and starts them again under their names), pauses them, replaces them by others while they are
paused, and tears, flips, deletes, duplicates and delays their files. A puppet that crashes, reads a state that is not
what its manifest says, or goes back behind what it has published ends with a message. Prints what was done and what came of
it as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

from shoal.core.atomic import read_or_nothing, write_file
from shoal.core.candidates import Candidate
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed
from shoal.core.spec import Discrete, Spec
from shoal.distributed import lease
from shoal.distributed.directory import Lost, Workspace
from shoal.experiment.experiment import Experiment
from shoal.run.rundir import RunDirectory

WORKERS, MEMBERS, SIZE, KEEP = 4, 3, 20_000, 3
COLUMNS = ["uid", "generation", "fitness"]
SPEC = Spec((1,), "float32", Discrete(2))
REPLACED, REFUSED, CRASHED = 7, 8, 9
lease.BEAT, lease.PATIENCE = 0.05, 1.5  # who gets no share of a core for that long is taken for dead
LATE = 30  # seconds after which a puppet that should end never will


def state(uid: float, generation: float, fitness: float) -> bytes:
    seed = int(uid), int(generation), int(fitness * 2**53)
    return np.random.default_rng(seed).bytes(SIZE)


def puppet(path: Path, name: str) -> None:
    """One worker, for ever; SIGTERM ends it after a generation."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    space = Workspace(path, KEEP, lambda: None, lambda message: None)
    space.join(name)
    files = RunDirectory(path / "workers" / name, KEEP, space.staging)
    saved = files.checkpoints.generations()
    uid = space.slot * MEMBERS + np.arange(MEMBERS)
    space.check_past(max(saved, default=-1) + 1, uid)
    if (files.path / "experiment.yaml").exists():
        files.reopen(Experiment(), {}, max(saved, default=-1) + 1, Candidate(), SPEC)
    else:
        files.create(Experiment(), {})
    draw, counts, generation = random.Random(uuid.uuid4().int), Counter(), max(saved, default=-1) + 1
    while not stop:
        fitness = np.array([draw.random() for _ in uid])
        own = np.stack([uid, np.full(MEMBERS, generation), fitness], 1).astype(np.float64)
        parents = own.copy()
        for manifest in space.visible(generation, COLUMNS):
            assert manifest.generation <= generation, (
                f"{manifest.worker} is ahead: {manifest.generation} > {generation}"
            )
            row = draw.randrange(MEMBERS)
            try:
                found = space.read(manifest, row)
            except Lost:
                counts["lost"] += 1
                continue
            assert found == state(*manifest.rows[row]), f"a state of {manifest.worker} is not what its manifest says"
            parents[draw.randrange(MEMBERS)] = manifest.rows[row]
            counts["adopted"] += 1
        files.lineage.write([record(*rows) for rows in zip(own, parents, strict=True)])
        files.metrics.write([{"generation": generation}])
        files.save(generation, {"run": {"generation": np.int64(generation)}}, {}, 1, None, SPEC)
        space.publish(generation, COLUMNS, own, [state(*row) for row in own])
        generation += 1
        time.sleep(draw.random() * 0.004)
    files.close()
    space.leave()
    write_file(path / "workers" / f"{name}.counts", json.dumps(counts).encode())


def record(own: np.ndarray, parent: np.ndarray) -> dict[str, object]:
    """A line of the lineage."""
    told = {"uid": int(own[0]), "generation": int(own[1]), "fitness": own[2]}
    of_parent = {"parent": int(parent[0]), "parent_generation": int(parent[1]), "parent_fitness": parent[2]}
    return told | of_parent | {"explored": False, "hyper": {}}


def launch(path: Path, name: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        with open(path / f"stack-{os.getpid()}", "w") as stack:
            faulthandler.register(signal.SIGUSR1, stack, all_threads=True)
            puppet(path, name)
    except BaseException as error:
        if isinstance(error, BadInput) and "it is at work" in str(error):
            os._exit(REFUSED)
        # Replaced at work, or while it was still starting.
        if isinstance(error, (OSError, BadInput, Failed)) and f"-{os.getpid()} " in (path / "replaced").read_text():
            os._exit(REPLACED)
        (path / f"crash-{name}-{os.getpid()}").write_text(traceback.format_exc())
        os._exit(CRASHED)
    os._exit(0)


def end_of(path: Path, pid: int) -> int:
    """The exit code of a puppet that ends. Raises AssertionError with where it is, when it does not."""
    end = time.monotonic() + LATE
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"{pid} goes on\n{(path / f'stack-{pid}').read_text()}\n{crashes(path)}")
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(found[1])


def crashes(path: Path) -> list[str]:
    return [p.read_text() for p in path.glob("crash-*")]


def replace(path: Path, name: str, alive: dict[str, int], draw: random.Random) -> None:
    """Stop a puppet, have another take over its name, and let the first one go on."""
    late, held = alive[name], path / "leases" / name
    os.kill(late, signal.SIGSTOP)
    with open(path / "replaced", "a") as file:
        file.write(f"-{late} ")
    before, end = read_or_nothing(held), time.monotonic() + 20
    alive[name] = launch(path, name)
    try:
        while read_or_nothing(held) in ("", before):
            assert time.monotonic() < end, f"nobody takes over {name}: {crashes(path)}"
            ended, status = os.waitpid(alive[name], os.WNOHANG)
            if ended:  # it saw a last sign of life, of a system call that took long
                assert os.waitstatus_to_exitcode(status) == REFUSED, crashes(path)
                alive[name] = launch(path, name)
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
    finally:
        os.kill(late, signal.SIGCONT)  # it ends when it sees that another has its name
    code = end_of(path, late)
    assert code in (REPLACED, REFUSED), f"{name} ended with {code} when it had lost its name: {crashes(path)}"


def harm(path: Path, kind: str, draw: random.Random, later: list) -> bool:
    """Do something to a random published file. Whether there was one."""
    places = os.walk(path / "published")  # which leaves out what goes away meanwhile
    files = [Path(folder) / name for folder, _, names in places for name in names if name.startswith("0")]
    if not files:
        return False
    file = draw.choice(files)
    try:
        data = file.read_bytes()
        if kind == "tear":
            os.truncate(file, draw.randrange(max(1, len(data))))
        elif kind == "flip" and data:
            place = draw.randrange(len(data))
            with open(file, "r+b") as opened:
                opened.seek(place)
                opened.write(bytes([data[place] ^ (1 << draw.randrange(8))]))
        elif kind == "delete":
            file.unlink()
        elif kind == "duplicate":
            other = path / "published" / draw.choice([file.parent.name, "copy", "0", "1"])
            other.mkdir(exist_ok=True)
            shutil.copy(file, other / f"{draw.randrange(10**8):08d}{file.suffix}")
        elif kind == "delay":
            aside = path / f"aside-{draw.random()}"
            file.rename(aside)
            later.append((time.monotonic() + draw.random() * 0.2, lambda: aside.replace(file)))
    except FileNotFoundError:  # forgotten by its worker in the meantime
        return False
    return True


def main(path: Path, faults: int, seed: int) -> None:
    draw = random.Random(seed)
    names = [f"w{i}" for i in range(WORKERS)]
    (path / "replaced").touch()
    alive = {name: launch(path, name) for name in names}
    try:
        told = torment(path, alive, faults, draw)
    finally:
        for pid in alive.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    print(json.dumps(told))


def torment(path: Path, alive: dict[str, int], faults: int, draw: random.Random) -> dict[str, object]:
    """Do so many faults to the puppets that are alive, and let them end. What was done, and what came of it."""
    counts: Counter[str] = Counter()
    names = list(alive)
    later: list = []
    while sum(counts.values()) < faults:
        time.sleep(draw.random() * 0.05)
        for entry in [e for e in later if e[0] <= time.monotonic()]:
            later.remove(entry)
            entry[1]()
        kind = draw.choice(["kill"] * 6 + ["pause"] * 2 + ["replace", "tear", "flip", "delete", "duplicate", "delay"])
        name = draw.choice(names)
        if kind == "kill":
            os.kill(alive[name], signal.SIGKILL)
            os.waitpid(alive[name], 0)
            time.sleep(draw.random() * 0.02)
            alive[name] = launch(path, name)
        elif kind == "pause":
            pid = alive[name]
            os.kill(pid, signal.SIGSTOP)
            later.append((time.monotonic() + draw.random() * 0.3, lambda pid=pid, name=name: resume(alive, name, pid)))
        elif kind == "replace":
            replace(path, name, alive, draw)
        elif not harm(path, kind, draw, later):
            continue
        counts[kind] += 1
    for _, finish in later:
        finish()
    time.sleep(0.5)
    for pid in alive.values():
        os.kill(pid, signal.SIGTERM)
    ended = {name: end_of(path, pid) for name, pid in alive.items()}
    done = {name: max(int(p.name) for p in (path / "workers" / name / "checkpoints").glob("0*")) for name in names}
    seen = [json.loads(p.read_text()) for p in (path / "workers").glob("*.counts")]
    return {
        "faults": dict(counts),
        "ended": ended,
        "crashes": crashes(path),
        "generations": done,
        "adopted": sum(c.get("adopted", 0) for c in seen),
    }


def resume(alive: dict[str, int], name: str, pid: int) -> None:
    if alive[name] == pid:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
