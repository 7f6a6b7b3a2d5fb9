"""Whatever the exchange, a child gets the state of its parent, and everybody knows the same of everybody."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import others_slow
from support.messages import Said
from support.runs import mpiexec
from support.strategies import populations
from support.stub_shard import KIND, POPULATION, StubShard, decide, expected, hyper_of, key_of, state_of
from support.tiny import same

from shoal.core.errors import BadInput
from shoal.core.population import DistributionUpdate, PopulationStats
from shoal.distributed.asynchronous import Worker
from shoal.distributed.directory import Workspace
from shoal.distributed.exchange import Exchange
from shoal.distributed.rows import columns, from_rows, routes, to_json, to_rows
from shoal.distributed.synchronous import Synchronous

EVERYBODY = np.arange(POPULATION)
STATES = {u: key_of(state_of(u)) for u in range(POPULATION)}


def ranks(count: int, folder: Path) -> list[dict[str, Any]]:
    command = mpiexec(count, sys.executable, Path(__file__).parents[1] / "support" / "exchange_rank.py", folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("count", others_slow([1, 2, 3, 4], 2))
def test_mpi(tmp_path: Path, count: int) -> None:
    told = ranks(count, tmp_path)
    assert [rank["rank"] for rank in told] == list(range(count))
    stats = StubShard(EVERYBODY).stats()
    last = np.array_split(EVERYBODY, count)[-1] if count > 1 else []  # whose trainers report something else
    loss = np.where(np.isin(EVERYBODY, last), np.nan, np.float32(EVERYBODY) / 9)
    for rank in told:
        assert rank["uid"] == EVERYBODY.tolist()
        assert rank["fitness"] == [repr(x) for x in stats.fitness.tolist()]
        assert rank["rate"] == stats.hyper["rate"].tolist()
        assert list(rank["metrics"]) == ["loss", "other"][: min(count, 2)]
        np.testing.assert_array_equal(rank["metrics"]["loss"], loss)
        if count > 1:
            other = np.where(np.isnan(loss), np.float32(EVERYBODY) / 9, np.nan)
            np.testing.assert_array_equal(rank["metrics"]["other"], other)
        assert rank["evaluation_steps"] == sum(100 + int(part[0]) for part in np.array_split(EVERYBODY, count))
        assert rank["stop"] is True
        assert rank["seconds"] == 100.0
        assert rank["said"] == "from 0: é"
    assert [s for rank in told for s in rank["states"]] == [STATES[p].hex() for p in expected(EVERYBODY)]
    assert [x for rank in told for x in rank["own_rate"]] == hyper_of(np.array(expected(EVERYBODY)))["rate"].tolist()
    wanted = [STATES[POPULATION - 1].hex(), STATES[0].hex()]
    assert [rank["learned"] for rank in told] == [wanted] + [[None, None]] * (count - 1)


def test_local() -> None:
    shard = StubShard(EVERYBODY)
    crew = Synchronous(Exchange(), KIND, shard)
    shared = crew.share({"loss": EVERYBODY / 9}, False, 0.0)
    assert shared.stats.uid.tolist() == EVERYBODY.tolist() and not shared.stop
    evolved = crew.evolve(shared, decide)
    assert [key_of(s) for s in shard.states] == [STATES[p] for p in expected(EVERYBODY)]
    assert [key_of((learned, ())) for learned in evolved.learned([3, 1])] == [STATES[3], STATES[1]], (
        "as they were before copies"
    )
    assert evolved.evolution == "state"


def weigh(stats: PopulationStats, rows: np.ndarray) -> Any:
    """Weights for a mean, and hyperparameters that are twice as large."""
    weights = np.linspace(0, 1, len(stats.uid), dtype=np.float32)
    doubled = {name: 2 * x[rows] for name, x in stats.hyper.items()}
    return "state", DistributionUpdate(weights, doubled, {"elites": 3.0})


@pytest.mark.parametrize("wanted", [[], [0]])
def test_weights_of_members_around_a_mean(wanted: list[int]) -> None:
    """They reach the shard, with new hyperparameters; nobody copies, and what was known of both is recorded."""
    shard = StubShard(EVERYBODY)
    crew = Synchronous(Exchange(), KIND, shard)
    evolved = crew.evolve(crew.share({}, False, 0.0), weigh)
    assert shard.updated == np.linspace(0, 1, POPULATION, dtype=np.float32).tolist()
    assert shard.hyper["rate"].tolist() == (2 * hyper_of(EVERYBODY)["rate"]).tolist()
    assert [key_of(s) for s in shard.states] == list(STATES.values())
    assert evolved.metrics == {"elites": 3.0, "step": 0.5} and evolved.evolution == "state"
    assert [key_of((learned, ())) for learned in evolved.learned(wanted)] == [STATES[row] for row in wanted]


# ----------------------------------------------------------------------------------------------- directory


class Shore:
    """Workers with three members each, in one process."""

    def __init__(self, path: Path):
        self.path, self.notes, self.spaces = path, [], []

    def worker(self, generation: int = 0) -> tuple[Worker, StubShard]:
        space = Workspace(self.path, 3, lambda: None, self.notes.append)
        space.join(None)
        self.spaces.append(space)
        shard = StubShard(3 * space.slot + np.arange(3), generation)
        return Worker(space, KIND, shard), shard


@pytest.fixture
def shore(tmp_path: Path) -> Any:
    shore = Shore(tmp_path)
    yield shore
    for space in shore.spaces:
        space.leave()


def go(worker: Worker, decide: Any = decide) -> tuple[Any, PopulationStats]:
    """What a worker decides, and what it saw when it did; then others see it too."""
    seen: list[PopulationStats] = []

    def watched(stats: PopulationStats, rows: np.ndarray) -> Any:
        seen.append(stats)
        return decide(stats, rows)

    evolved = worker.evolve(worker.share({}, False, 0.0), watched)
    evolved.publish()
    return evolved, seen[-1]


def test_workers_of_a_directory(shore: Shore) -> None:
    """Each decides for its own members among all that have been published, whoever comes first."""
    workers = [shore.worker() for _ in range(4)]
    for worker, _ in workers[1:]:
        go(worker, decide=keep)
    evolved, seen = go(workers[0][0])
    assert seen.uid.tolist() == EVERYBODY.tolist()
    assert [key_of(s) for s in workers[0][1].states] == [STATES[p] for p in expected(EVERYBODY)[:3]]
    assert [key_of((learned, ())) for learned in evolved.learned([2])] == [STATES[2]]
    for worker, shard in workers[1:]:
        _, again = go(worker)
        rows = slice(int(shard.uid[0]), int(shard.uid[0]) + 3)
        assert [key_of(s) for s in shard.states] == [STATES[p] for p in expected(EVERYBODY)[rows]]
        assert again.uid.tolist() == EVERYBODY.tolist()
    assert not shore.notes


def test_workers_have_no_mean_together(shore: Shore, said: Said) -> None:
    worker, _ = shore.worker()
    with pytest.raises(BadInput) as error:
        go(worker, decide=weigh)
    said(error.value)


def keep(stats: Any, rows: np.ndarray) -> Any:
    return "state", type(decide(stats, rows)[1])(rows, {name: x[rows] for name, x in stats.hyper.items()})


def test_nobody_looks_ahead_and_nobody_waits(shore: Shore) -> None:
    late, _ = shore.worker(generation=1)
    ahead, _ = shore.worker(generation=2)
    go(ahead, decide=keep)
    assert go(late)[1].uid.tolist() == [0, 1, 2]
    _, seen = go(ahead)
    assert seen.uid.tolist() == list(range(6)) and seen.generation.tolist() == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(("generation", "seen"), [(6, [3, 4, 5]), (5, [0, 1, 2, 3, 4, 5])])
def test_who_has_done_less_than_half_is_no_rival(shore: Shore, generation: int, seen: list[int]) -> None:
    """A worker that ended after its third generation would else fill the bottom of all others for ever."""
    ended, _ = shore.worker(generation=2)
    go(ended, decide=keep)
    assert go(shore.worker(generation=generation)[0])[1].uid.tolist() == seen


def test_a_lost_state_means_another_decision(shore: Shore) -> None:
    worker, shard = shore.worker()
    other, _ = shore.worker()
    go(other, decide=keep)
    states = shore.path / "published" / "1" / "00000000.states"
    states.write_bytes(states.read_bytes()[:-1] + b"?")  # of uid 5, whom nobody copies; then of uid 4
    assert key_of(go(worker) and shard.states[0]) == STATES[4]
    states.write_bytes(bytes(len(states.read_bytes())))
    fresh, own = shore.worker()
    _, seen = go(fresh, decide=copy_from(4))
    assert 4 not in seen.uid and [key_of(s) for s in own.states] == [key_of(state_of(u)) for u in (6, 7, 8)]
    assert len(shore.notes) == 1 and "does not match its manifest" in shore.notes[0]


def copy_from(uid: int) -> Any:
    """The member at the first row copies `uid`, if that is to be seen."""

    def choose(stats: Any, rows: np.ndarray) -> Any:
        evolution, decision = keep(stats, rows)
        found = np.flatnonzero(stats.uid == uid)
        return evolution, decision._replace(parents=np.r_[found, rows[1:]] if len(found) else rows)

    return choose


def test_members_that_are_there_twice_count_once(shore: Shore) -> None:
    worker, _ = shore.worker()
    other, _ = shore.worker()
    go(other, decide=keep)
    published = shore.path / "published"
    for name, source in (("copy", "1"), ("mirror", "0")):
        go(worker)
        (published / name).mkdir()
        for path in (published / source).glob("0*"):
            (published / name / path.name).write_bytes(path.read_bytes())
    assert go(worker)[1].uid.tolist() == list(range(6))
    assert sorted(shore.notes) == [
        f"skipping generation 1 of worker {name}: its members are another worker's" for name in ("copy", "mirror")
    ]


# ----------------------------------------------------------------------------------------------------- rows


@given(populations(), st.lists(st.floats(), max_size=3), st.data())
def test_rows_hold_every_number_exactly(stats: PopulationStats, extra: list[float], data: st.DataObject) -> None:
    n = len(stats.uid)
    numbers = st.lists(st.floats(width=32), min_size=n, max_size=n).map(np.float32)
    columns_of = st.dictionaries(st.text("aB_./é", max_size=5), numbers, max_size=3)
    stats = stats._replace(uid=stats.uid + 2**52, hyper=data.draw(columns_of))
    metrics = data.draw(columns_of)
    rows = to_rows(stats, metrics, extra)
    back, seen, more = from_rows(np.array(json.loads(json.dumps(to_json(rows))), float), stats, metrics)
    assert same(back, stats) and same(seen, metrics)
    assert list(back.hyper) == list(stats.hyper) and list(seen) == list(metrics)
    np.testing.assert_array_equal(more, [extra] * n if extra else [])
    assert rows.shape == (n, len(columns(stats)) + len(metrics) + len(extra))


@pytest.mark.parametrize(
    ("parents", "owner", "wanted", "expected_routes"),
    [
        ([0, 0, 0, 0], [0, 0, 1, 1], [], [(0, 0, 1)]),
        ([0, 1, 2, 3], [0, 0, 1, 1], [], []),
        ([0, 1, 2, 3], [0, 0, 1, 1], [3], [(3, 1, 0)]),
        ([3, 3, 2, 3], [0, 0, 1, 1], [3], [(3, 1, 0)]),
        ([3, 2, 1, 0], [0, 1, 2, 3], [0], [(0, 0, 3), (1, 1, 2), (2, 2, 1), (3, 3, 0)]),
        ([1, 1, 1, 1], [0, 1, 2, 3], [], [(1, 1, 0), (1, 1, 2), (1, 1, 3)]),
    ],
)
def test_only_what_must_travels(parents: list[int], owner: list[int], wanted: list[int], expected_routes: list) -> None:
    found = routes(np.array(parents), np.array(owner), wanted)
    assert [tuple(r) for r in found] == expected_routes
    children = sum(owner[p] != owner[c] for c, p in enumerate(parents))
    assert len(found) <= children + len(wanted)


def test_a_failing_rank_ends_all(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(
        "import time\nfrom shoal.distributed.mpi import Mpi\nexchange = Mpi(60.0, lambda: None, print)\n"
        "if exchange.rank == 2:\n    exchange.fail('the simulator is gone', 1)\n"
        "exchange.broadcast('never heard')\ntime.sleep(60)\n"
    )
    done = subprocess.run(
        mpiexec(3, sys.executable, script), capture_output=True, text=True, timeout=30, env=os.environ
    )
    assert done.returncode == 1
    assert "rank 2 of 3: the simulator is gone" in done.stderr


@pytest.mark.parametrize(
    ("hung", "late", "ends"),
    others_slow([("1", 9, True), ("0", 9, True), ("12", 9, True), ("1", 1.2, False)], ("1", 9, True)),
)
def test_who_is_waited_for_is_said(tmp_path: Path, hung: str, late: float, ends: bool) -> None:
    """By one of those that wait, again and again; and after the limit the run ends. Who is only slow is waited for."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import time\nfrom shoal.distributed import mpi\nmpi.FIRST, mpi.ANSWER = 0.3, 0.1\nmpi.LOOK = 0.05\n"
        "exchange = mpi.Mpi(4.0, lambda: None, lambda text: print('noted:', text, flush=True))\n"
        f"exchange.broadcast('here')\nif str(exchange.rank) in '{hung}':\n    time.sleep({late})\n"
        "exchange.broadcast('heard')\nexchange.gather(mpi.np.ones((1, 1)))\nexchange.broadcast('done')\n"
    )
    done = subprocess.run(mpiexec(3, sys.executable, script), capture_output=True, text=True, timeout=30)
    speaks = min({"0", "1", "2"} - {*hung})
    said = [line for line in (done.stdout + done.stderr).splitlines() if "waiting for" in line]
    start = "noted: " if speaks == "0" else f"rank {speaks} of 3: "
    whom = ", ".join(f"rank {rank} on {platform.node()}" for rank in hung)
    assert len(said) > 1, done
    # On a busy machine another rank may be late for a moment, and is named with them.
    assert any(re.fullmatch(rf"{start}waiting for {whom} for \d+ s", line) for line in said), done
    if ends:
        assert done.returncode == 1
        assert re.search(rf"rank {speaks} of 3: waited for {whom} for \d s \(exchange.timeout\); `shoal", done.stderr)
    else:
        assert done.returncode == 0 and not done.stderr
