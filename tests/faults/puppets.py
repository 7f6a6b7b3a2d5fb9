"""Workers without learning that share a directory, and a hand that harms them: `python puppets.py DIR FAULTS SEED`.

Each puppet publishes, reads what others have published, and saves how far it is, as a worker of Shoal's does between two
intervals, hundreds of times a second. A state is a function of who and when, so that whatever is read can be judged. The
driver kills puppets (and starts them again under their names), pauses them, and tears, flips, deletes, duplicates and
delays their files. A puppet that crashes, reads a state that is not what its card says, or has lost more than the
generation in flight ends with a message. Prints what was done and what came of it as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from shoal.atomic import write_file
from shoal.exchanges.directory import Lost, Workspace

WORKERS, MEMBERS, SIZE, KEEP = 4, 3, 20_000, 3
COLUMNS = ["uid", "generation", "fitness"]


def state(uid: int, generation: int) -> np.ndarray:
    return np.random.default_rng((uid, generation)).integers(0, 256, SIZE, np.uint8)


def puppet(path: Path, name: str) -> None:
    """One worker, for ever; SIGTERM ends it after a generation."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    checkpoint = path / "workers" / f"{name}.checkpoint"
    space = Workspace(path, KEEP, lambda: None, lambda message: None)
    space.join(name)
    done = int(checkpoint.read_text()) if checkpoint.exists() else -1
    shown = [int(p.name[:8]) for p in (path / "published" / name).glob("0*.json") if p.is_file()]
    ours = [g for g in shown if (path / "published" / name / f"{g:08d}.states").exists()]
    assert max(ours, default=-1) <= done + 1, f"{name} begins at {done + 1}, and has published {max(ours)}"
    draw = random.Random(f"{name} {done}")
    uid = space.slot * MEMBERS + np.arange(MEMBERS)
    counts: Counter[str] = Counter()
    while not stop:
        generation = done + 1
        rows = np.stack([uid, np.full(MEMBERS, generation), uid / 7], 1).astype(np.float64)
        space.publish(generation, COLUMNS, rows, [state(int(u), generation) for u in uid])
        for card in space.visible(generation, COLUMNS, SIZE):
            assert card.generation <= generation, f"{card.worker} is ahead: {card.generation} > {generation}"
            row = draw.randrange(MEMBERS)
            try:
                found = space.read(card, row)
            except Lost:
                counts["lost"] += 1
                continue
            expected = state(int(card.rows[row, 0]), int(card.rows[row, 1]))
            assert (found == expected).all(), f"a state of {card.worker} is not what its card says"
            counts["adopted"] += 1
        write_file(checkpoint, str(generation).encode())
        done = generation
        time.sleep(draw.random() * 0.004)
    space.leave()
    write_file(path / "workers" / f"{name}.counts", json.dumps(counts).encode())


def launch(path: Path, name: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        puppet(path, name)
    except BaseException:
        (path / f"crash-{name}-{os.getpid()}").write_text(traceback.format_exc())
        os._exit(9)
    os._exit(0)


def harm(path: Path, kind: str, draw: random.Random, later: list) -> bool:
    """Do something to a random published file. Whether there was one."""
    files = [p for p in (path / "published").rglob("0*") if p.is_file()]
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
    draw, counts = random.Random(seed), Counter()
    names = [f"w{i}" for i in range(WORKERS)]
    alive = {name: launch(path, name) for name in names}
    later: list = []
    while sum(counts.values()) < faults:
        time.sleep(draw.random() * 0.05)
        for entry in [e for e in later if e[0] <= time.monotonic()]:
            later.remove(entry)
            entry[1]()
        kind = draw.choice(["kill", "kill", "kill", "pause", "tear", "flip", "delete", "duplicate", "delay"])
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
        elif not harm(path, kind, draw, later):
            continue
        counts[kind] += 1
    for _, finish in later:
        finish()
    time.sleep(0.5)
    for pid in alive.values():
        os.kill(pid, signal.SIGTERM)
    ended = {name: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for name, pid in alive.items()}
    done = {name: int((path / "workers" / f"{name}.checkpoint").read_text()) for name in names}
    seen = [json.loads(p.read_text()) for p in (path / "workers").glob("*.counts")]
    print(
        json.dumps(
            {
                "faults": dict(counts),
                "ended": ended,
                "crashes": [p.read_text() for p in path.glob("crash-*")],
                "generations": done,
                "adopted": sum(c.get("adopted", 0) for c in seen),
            }
        )
    )


def resume(alive: dict[str, int], name: str, pid: int) -> None:
    if alive[name] == pid:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
