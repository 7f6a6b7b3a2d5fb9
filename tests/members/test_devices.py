"""Members over devices: where they lie changes nothing that they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.runs import tiny
from support.shards import gradient_trained
from support.tiny import hyper_of, leaves, make_agent, walk

from shoal.agents.ppo import ppo
from shoal.core import cores as machine_cores
from shoal.core.population import Decision
from shoal.core.spec import Spec
from shoal.core.types import Agent, Member
from shoal.environments.evaluation import EvaluationConfig
from shoal.members import devices as machine_devices
from shoal.members import shards
from shoal.members.acting import Policy
from shoal.members.devices import MEMBERS, REPLICATED, DeviceLayout, covered
from shoal.members.gradient_trained import GradientTrained
from shoal.members.protocol import Setup
from shoal.rl.independent import independent
from shoal.run.train import train


@pytest.mark.parametrize(("members", "devices"), [(1, 1), (2, 2), (3, 1), (5, 1), (8, 2)])
def test_as_many_devices_as_divide_the_members(members, devices):
    assert len(jax.devices()) == 2
    layout = DeviceLayout(members)
    assert layout.devices == devices
    placed = layout.place(np.arange(members, dtype=np.float32))
    assert len(placed.sharding.device_set) == devices
    assert {shard.data.shape for shard in placed.addressable_shards} == {(members // devices,)}
    assert len(layout.place(np.float32(1), REPLICATED).sharding.device_set) == devices


def test_layouts_on_six_devices(monkeypatch):
    """Three times the two that there are."""
    devices = 3 * jax.devices()
    monkeypatch.setattr(jax, "devices", lambda: devices)
    assert [DeviceLayout(n).devices for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)] == [1, 2, 3, 4, 5, 6, 1, 4, 3, 6]


def test_a_program_is_traced_once_and_refuses_other_shapes():
    traces = []

    def double(x: jax.Array, factor: jax.Array) -> jax.Array:
        traces.append(x.shape)
        return x * factor

    layout = DeviceLayout(4)
    program = layout.program(double, MEMBERS, REPLICATED)
    x, factor = layout.place(np.arange(4, dtype=np.float32)), layout.place(np.float32(2), REPLICATED)
    for _ in range(3):
        np.testing.assert_array_equal(program(x, factor), [0, 2, 4, 6])
    assert traces == [(2,)]  # the two members of one device
    assert program.compiling[1] > program.compiling[0] > 0
    with pytest.raises(TypeError):
        program(layout.place(np.arange(8, dtype=np.float32)), factor)
    with pytest.raises(TypeError):
        program(layout.place(np.arange(4)), factor)


def test_a_gather_crosses_devices():
    layout = DeviceLayout(4)
    take = layout.gather(lambda x, rows: x[rows], MEMBERS, REPLICATED)
    rows = layout.place(np.int32([3, 0, 0, 1]), REPLICATED)
    moved = take(layout.place(np.arange(8, dtype=np.float32).reshape(4, 2)), rows)
    np.testing.assert_array_equal(moved, [[6, 7], [0, 1], [0, 1], [2, 3]])
    assert len(moved.sharding.device_set) == 2


def test_a_program_that_is_begun_is_traced_at_once_and_waited_for():
    """Its errors are raised where it is called, not where it is begun; a second beginning does nothing."""
    layout, traces = DeviceLayout(2), []

    def double(x: jax.Array) -> jax.Array:
        traces.append(x.shape)
        return 2 * x

    x = layout.place(np.float32([1, 2]))
    program, wrong = layout.program(double, MEMBERS), layout.program(lambda x: x.nothing, MEMBERS)
    program.begin(x)
    assert len(traces) == 1
    program.begin(x)
    assert program(x).tolist() == [2, 4] and len(traces) == 1 and program.compiled
    start, end = program.compiling
    assert 0 < start < end < np.inf
    wrong.begin(x)
    with pytest.raises(AttributeError, match="nothing"):
        wrong(x)


def test_a_call_of_what_cannot_be_traced_tries_it_once():
    """It may be an environment's code, which takes time and may print; another call tries again."""
    tried = []

    def function(x):
        tried.append(x)
        raise ValueError("not today")

    program = DeviceLayout(4).program(function, MEMBERS)
    for count in (1, 2):
        with pytest.raises(ValueError, match="not today"):
            program(np.zeros(4, np.float32))
        assert len(tried) == count


@pytest.mark.parametrize("begun", [True, False])
def test_what_the_compiler_refuses_is_compiled_once(monkeypatch, begun):
    """That takes as long as what it does not refuse: a minute of a large program."""
    tried, x = [], np.zeros(4, np.float32)

    def refuse(self, *_, **__):
        tried.append(self)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)
    program = DeviceLayout(4).program(lambda x: x + 1, MEMBERS)
    if begun:
        program.begin(x)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            program(x)
    assert len(tried) == 1


def test_donated_memory_is_taken_over():
    layout = DeviceLayout(2)
    program = layout.program(lambda x: x + jnp.float32(1), MEMBERS, donate=(0,))
    x = layout.place(np.zeros(2, np.float32))
    assert program(x)[0] == 1 and x.is_deleted()


class Run:
    """Two generations with a copy between devices, and how they end."""

    def __init__(self) -> None:
        agent = make_agent("ppo", layers=(), normalize_observations=False)  # quick to compile
        self.hyper = hyper_of("ppo", agent, 4)._asdict()
        self.hyper["learning_rate"] = np.float32([1e-3, 2e-3, 3e-3, 4e-3])
        self.shard = gradient_trained(walk(), independent(agent), np.arange(4), 0, EvaluationConfig("training"))

    def go(self, chunk: int) -> list[np.ndarray]:
        self.shard.begin(self.hyper)
        metrics = []
        for generation in range(2):
            metrics.append(self.shard.train(generation, 3, chunk))
            self.shard.evaluate(generation)
            metrics.append(self.shard.stats().fitness)
            self.shard.apply(Decision(np.array([3, 1, 2, 0]), self.hyper), {})
        return leaves((self.shard.population, self.shard.rollouts.state(), metrics))


@pytest.fixture(scope="module")
def run() -> Run:
    return Run()


def learns_nothing(member: Member, *rest: Any) -> tuple[Member, dict[str, jax.Array]]:
    """An update that is quick to compile."""
    return member, {"loss": jnp.float32(0)}


@pytest.mark.slow
def test_one_device_and_two_or_eight_give_the_same():
    """Nearly, as a product of all members of a device sums up in another order; bit for bit where members take turns."""
    tests = Path(__file__).parents[1]
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-m", "support.eight_devices"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tests, env=environment)
    assert done.returncode == 0, done.stderr
    apart = json.loads(done.stdout)
    assert 0 <= apart.pop("ppo") < 1e-4
    assert apart == {"td3": 0, "dqn": 0}


@pytest.mark.slow
def test_shards_wait_on_the_host_after_a_resume_too(monkeypatch):
    """Where the device has a memory of its own: members and environments of all that are not at work."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    agent = make_agent("ppo", layers=(), normalize_observations=False)._replace(update=learns_nothing)
    setup = Setup(0, EvaluationConfig())
    first = gradient_trained(walk(), independent(agent), np.arange(2), 0, setup.evaluation)
    both = shards.InTurn([first, first.sibling(np.arange(2, 4), setup)], setup)
    both.begin(hyper_of("ppo", agent, 4)._asdict())
    for _ in range(2):
        state = both.state()
        kept = [(part["learned"], part["rest"]["population"], part["rest"]["rollouts"]) for part in state]
        assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(kept))
        both.restore(state, 0)


@pytest.mark.slow
def test_the_size_of_a_chunk_changes_nothing(run):
    for a, b in zip(run.go(1), run.go(2), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_everything_again_is_the_same(run):
    for a, b in zip(run.go(3), run.go(3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_seconds_side_by_side_count_once():
    """In any order, one within another, and those that took no time."""
    assert covered([(5.0, 6.0), (1.0, 3.0), (2.0, 2.5), (2.0, 4.0), (5.5, 7.0), (0.0, 0.0)]) == 3 + 2
    assert covered([]) == 0


# ------------------------------------------------------------------------------- several processes on a machine


class Machine:
    """Cores and GPUs of a test, and what `prepare` does with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, cores: int, gpus: int = 0):
        self.kept: set[int] | None = None
        self.settings: dict[str, Any] = {}
        for gpu in range(gpus):
            (folder / str(gpu)).mkdir()
        monkeypatch.setattr(machine_cores, "GPUS", folder)
        monkeypatch.setattr(machine_devices.os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
        monkeypatch.setattr(machine_devices.os, "sched_setaffinity", self.keep, raising=False)
        monkeypatch.setattr(machine_devices.jax.config, "update", self.settings.__setitem__)
        monkeypatch.delenv("XLA_FLAGS", raising=False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "all")  # so that it is put back
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")

    def keep(self, pid: int, cores: list[int]) -> None:
        self.kept = set(cores)


@pytest.mark.parametrize(
    ("cores", "size", "expected"),
    [(8, 1, [None]), (8, 2, [{0, 1, 2, 3}, {4, 5, 6, 7}]), (5, 2, [{0, 1}, {2, 3, 4}]), (2, 3, [{0}, {0}, {1}])],
)
def test_each_process_keeps_to_its_share_of_the_cores(monkeypatch, tmp_path, cores, size, expected):
    for rank in range(size):
        with monkeypatch.context() as patch:
            machine = Machine(patch, tmp_path, cores)
            machine_devices.prepare((rank, size), (rank, size))
            assert machine.kept == expected[rank]
            assert machine.settings["jax_num_cpu_devices"] == len(expected[rank] or range(cores))


def test_a_launcher_that_bound_the_ranks_is_heeded(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, tmp_path, cores=4)
    machine_devices.prepare(neighbour=(3, 8), sharer=(0, 1))
    assert machine.kept is None and machine.settings["jax_num_cpu_devices"] == 4


@pytest.mark.parametrize(("visible", "expected"), [(None, "0 1 2 0 1"), ("5,7", "5 7 5 7 5")])
def test_each_process_takes_a_gpu_of_its_own(monkeypatch, tmp_path, visible, expected):
    given = []
    for rank in range(5):
        with monkeypatch.context() as patch:
            folder = tmp_path / str(rank)
            folder.mkdir()
            Machine(patch, folder, cores=8, gpus=3)
            if visible:
                patch.setenv("CUDA_VISIBLE_DEVICES", visible)
            machine_devices.prepare((rank, 5), (rank, 5))
            given.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert " ".join(given) == expected


def test_jax_that_has_begun_with_one_device_is_warned_of(monkeypatch):
    """It refuses to have more from then on."""
    begun = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda: begun)
    monkeypatch.setattr(machine_devices, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.delenv("XLA_FLAGS")
    with pytest.raises(UserWarning, match="members train on one of 4 cores"):
        machine_devices.prepare()


def test_learning_is_traced_for_its_metrics_and_for_its_program(tmp_path: Path) -> None:
    """And no third time, by a thread that might wait for another."""
    traced = []

    def counted(spec: Spec, **config: Any) -> Agent:
        agent = ppo(spec, **config)

        def update(*arguments: Any) -> Any:
            traced.append(arguments)
            return agent.update(*arguments)

        return agent._replace(update=update)

    train(tiny(tmp_path / "run", generations=1, agent=counted))
    assert len(traced) == 2


@pytest.mark.slow
def test_the_final_evaluation_plays_the_same_episodes_on_any_number_of_devices(monkeypatch):
    """Also where the members of a run that halves take turns, as many at a time as there are devices."""
    agent, every, played = make_agent("ppo", layers=(), normalize_observations=False), jax.devices(), []
    hyper = hyper_of("ppo", agent, 4)._asdict()
    for count in (1, 2):
        monkeypatch.setattr(jax, "devices", lambda count=count: every[:count])
        for ends in (True, False):
            kind = GradientTrained(walk(), independent(agent))
            shard = kind.shard([np.arange(4)], Setup(0, EvaluationConfig(episodes=3), ends_members=ends))
            shard.begin(hyper)
            learned, of_one = shard.snapshot(0)[0], {name: float(x[0]) for name, x in hyper.items()}
            played.append(shard.test([Policy(learned, of_one)], (1, 2), 17, "test")[0][0])
            shard.close()
    assert len({*played[0].tolist()}) > 1
    for returns in played[1:]:
        np.testing.assert_allclose(returns, played[0], rtol=1e-5)
