"""Fitness that is a number in the info of an environment on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import every_slow, others_slow
from support.clocked import clocked
from support.messages import Said, shown
from support.runs import rows, tiny

from shoal.commands.envs import described
from shoal.core.errors import BadInput
from shoal.core.population import Selection
from shoal.core.spec import Discrete, Spec
from shoal.environments import registry
from shoal.environments.device import DeviceEnvironment
from shoal.experiment.experiment import Fitness
from shoal.experiment.plan import make_plan
from shoal.run.final_selection import sequential_halving
from shoal.run.train import train

LENGTH, STEP = 5, 0.25
IDLE = {"agent": clocked, "config": {}}  # whoever learns is measured as whoever does not


def climb(slope: float = 1.0) -> DeviceEnvironment:
    """Rewards are 1 whatever is done; the info tells how high the slope has led, and in how many steps."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        state = (jnp.float32(0), jnp.int32(0))
        return jax.random.uniform(key, (1,)), state

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        height, time = state
        height, time = height + STEP * slope, time + 1
        return jnp.ones(1), (height, time), jnp.float32(1), jnp.bool_(False), time >= LENGTH

    spec = Spec((1,), "float32", Discrete(2))
    info = lambda state: {"way": {"height": state[0], "steps": state[1]}, "pair": jnp.zeros(2)}  # noqa: E731
    made = DeviceEnvironment(spec, reset, step, info=info)
    return made._replace(env_parameters={"slope": 1.0}, with_env_parameters=lambda values: climb(**values))


def weighed(info: Any) -> Any:
    """Where JAX computes it."""
    return info["way"]["height"] * 10 + info["way"]["steps"]


OBJECTIVES = [
    ({}, 5.0),
    ({"objective": "way.height"}, 1.25),
    ({"objective": "way.steps"}, 5.0),
    ({"objective": weighed}, 17.5),
    ({"objective": weighed, "direction": "minimize"}, -17.5),
]


@pytest.mark.parametrize(("measured", "expected"), others_slow(OBJECTIVES, ({"objective": "way.height"}, 1.25)))
def test_members_and_champion_are_measured_by_it(tmp_path: Path, measured: Any, expected: float) -> None:
    """In the environment as it is, whatever slope members train on."""
    fitness = Fitness(episodes=3, **measured)
    result = train(tiny(tmp_path / "run", env=climb, fitness=fitness, space={"env.slope": [2, 3]}, **IDLE))
    assert {row["fitness"] for row in rows(tmp_path / "run" / "lineage.jsonl")} == {expected}
    assert result.summary["champion"]["evaluation"]["mean"] == expected


def test_who_ties_is_ranked_by_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The objective stays the fitness of records, beside the other; whoever selects gets ranks, and the final selection has
    both."""
    seen, in_the_end = [], []

    def halving(candidates: int, episodes: int, play: Any) -> Any:
        in_the_end.extend(set(x.flat) for x in play(range(candidates), 0, 4))
        return sequential_halving(candidates, episodes, play)

    monkeypatch.setattr("shoal.run.final_selection.sequential_halving", halving)

    def spy(key: Any, stats: Any, rows: np.ndarray) -> Selection:
        seen.append(stats)
        return Selection(rows, np.zeros(len(rows), bool))

    fitness = Fitness(episodes=3, objective="way.height", tie_breaker="return")
    method = {"name": "pbt", "select": spy}
    train(tiny(tmp_path / "run", env=climb, fitness=fitness, method=method, **IDLE))
    lineage = rows(tmp_path / "run" / "lineage.jsonl")
    assert {(row["fitness"], row["tie_breaker"]) for row in lineage} == {(1.25, 5.0)}
    assert in_the_end == [{1.25}, {5.0}]
    assert seen and all(not stats.fitness.any() and not stats.std.any() for stats in seen)


@pytest.mark.parametrize(("tie_breaker", "expected"), every_slow([(weighed, 17.5), ("way.steps", 5.0)], 1))
def test_the_second_may_be_of_the_info_too(tmp_path: Path, tie_breaker: Any, expected: float) -> None:
    fitness = Fitness(episodes=3, tie_breaker=tie_breaker)
    train(tiny(tmp_path / "run", env=climb, fitness=fitness, generations=1, **IDLE))
    lineage = rows(tmp_path / "run" / "lineage.jsonl")
    assert {(row["fitness"], row["tie_breaker"]) for row in lineage} == {(5.0, expected)}


def test_an_evolution_strategy_climbs_by_it(tmp_path: Path) -> None:
    """All members get the same, which leaves nothing to learn: but it is the objective that they get."""
    changes = {"method": "es", "agent": "policy", "config": {"layers": [4]}, "space": None, "hyper": {}}
    fitness = Fitness(episodes=2, objective="way.height")
    train(tiny(env=climb, fitness=fitness, generations=1, run_dir=tmp_path / "run", **changes))
    assert rows(tmp_path / "run" / "lineage.jsonl")[0]["fitness"] == LENGTH * STEP


@pytest.mark.parametrize(
    "fitness",
    [
        Fitness(objective="way.hight"),
        Fitness(objective="way"),
        Fitness(objective="pair"),
        Fitness(objective=lambda info: info["nothing"]),
        Fitness(objective="way.height", source="training"),
        Fitness(direction="minimize"),
        Fitness(objective="way.hight", direction="minimize"),
        Fitness(tie_breaker="way.hight"),
        Fitness(tie_breaker=3),
        Fitness(objective="way.height", tie_breaker="return", source="training"),
    ],
)
def test_what_cannot_be(fitness: Fitness, said: Said) -> None:
    with pytest.raises(BadInput) as refused:
        make_plan(tiny(env=climb, fitness=fitness))
    said(refused.value)


@pytest.mark.parametrize(
    "changes",
    [{"method": "pb2"}, {"method": "es", "agent": "policy", "config": {"layers": [4]}, "space": None}],
    ids=shown,
)
def test_methods_that_no_tie_can_be_broken_for(changes: Any, said: Said) -> None:
    with pytest.raises(BadInput) as refused:
        make_plan(tiny(env=climb, fitness=Fitness(objective="way.height", tie_breaker="return"), hyper={}, **changes))
    said(refused.value)


def test_the_info_is_listed() -> None:
    told = "metrics, for fitness.objective: pair, way.height, way.steps"
    assert told in described(climb())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_brax_tells_its_metrics() -> None:
    """Where a hopper is: its place along the way, from the state of the simulator."""
    environment = registry.make("brax:hopper", {})
    assert environment.info is not None
    _, state = jax.jit(environment.reset)(jax.random.key(0))
    step = jax.jit(environment.step)
    for _ in range(3):
        state = step(jax.random.key(1), state, jnp.ones(3))[1]
    np.testing.assert_allclose(environment.info(state)["x_position"], state[0].pipeline_state.x.pos[0, 0], rtol=1e-6)
    make_plan(tiny(env="brax:hopper", fitness=Fitness(objective="x_position"), config={}))
