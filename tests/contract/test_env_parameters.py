"""Environment parameters: each member trains with its own; what measures a member is the environment as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats
from support.messages import Said, shown
from support.runs import CONFIG, build_run, rows, same_run, shoal, tiny
from support.shards import gradient_trained
from support.tiny import member, same

from shoal.agents.policy import policy
from shoal.core.keys import derive, jax_key, stream
from shoal.core.population import Decision
from shoal.core.spec import Discrete, Spec
from shoal.core.types import Agent, Member, Rollout
from shoal.environments import registry
from shoal.environments.device import DeviceEnvironment, with_values
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.levels import Levels, Span, at_levels, level_key
from shoal.environments.randomised import with_domain_randomisation
from shoal.experiment.experiment import Experiment
from shoal.members.rollouts.device import DeviceRollouts
from shoal.report.schedule import schedule
from shoal.rl.independent import independent
from shoal.run.train import resume, train
from shoal.study.replay import replay

OTHERS = np.array([0, 2, 3])  # all but member 1, the one that tests touch
SHORT = {"gymnax:Pendulum-v1": {"max_steps_in_episode": 7}, "gym:Pendulum-v1": {"max_episode_steps": 7}}
LINEAR = CONFIG | {"layers": []}
WINDY: dict[str, Any] = {"space": {"env.wind": [0, 1], "env.wind.randomise": [0, 1]}}
DT, MASS, LENGTH, EPISODE = 0.05, 1.0, 1.0, 7


def pendulum(env: str, **changes: Any) -> Experiment:
    """A small run whose members' gravity differs while they train."""
    usual = {"env": env, "env_options": SHORT[env], "space": {"env.g": [8, 12]}, "config": LINEAR}
    return tiny(**usual | changes)


def swing(theta: float, speed: float, push: float, gravity: float) -> tuple[float, float, float]:
    """One step of gymnasium's pendulum, by its documentation: new angle and speed, and the reward."""
    angle = (theta + math.pi) % (2 * math.pi) - math.pi
    push = min(max(push, -2.0), 2.0)
    reward = -(angle**2 + 0.1 * speed**2 + 0.001 * push**2)
    speed += (3 * gravity / (2 * LENGTH) * math.sin(theta) + 3 / (MASS * LENGTH**2) * push) * DT
    speed = min(max(speed, -8.0), 8.0)
    return theta + speed * DT, speed, reward


def test_the_env_parameters_of_an_environment() -> None:
    """What it computes with, under its own names; integers, such as time limits, are none."""
    assert dict(registry.make("gymnax:Pendulum-v1", {"g": 9}).env_parameters) == {
        **{"max_speed": 8, "max_torque": 2, "dt": 0.05, "g": 9, "m": 1, "l": 1}
    }
    bandit = registry.make("gymnax:BernoulliBandit-misc", {})  # whose time limit is a float
    assert set(bandit.env_parameters) == {"reward_prob", "min_lim", "max_lim"}
    assert dict(registry.make("gym:Pendulum-v1", {}).env_parameters) == {
        "dt": 0.05,
        "max_torque": 2,
        "g": 10,
        "m": 1,
        "l": 1,
    }
    assert dict(registry.make("support.probes:fork", {}).env_parameters) == {}
    assert dict(registry.make("test_env_parameters:breeze", {}).env_parameters) == {"wind": 0.5}


@pytest.mark.parametrize(
    ("env", "options", "limit"),
    [
        ("gymnax:BernoulliBandit-misc", {}, 100),
        ("brax:inverted_pendulum", {"episode_length": 90.0}, 90),
        ("jumanji:Maze-v0", {"time_limit": 80.0}, 80),
    ],
)
def test_a_time_limit_that_is_a_float_counts_whole_steps(env: str, options: dict[str, float], limit: int) -> None:
    """A number of episodes is made of it, where those of an evaluation are auto."""
    found = registry.make(env, options).episode_limit
    assert found == limit and type(found) is int


class Worn(gymnasium.Env):
    """Keeps a number that it is made with, and others of its own: of its episodes, its steps, and what it has seen."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.grip, self.slope, self.wear, self.total = 0.5, 0.0, 0.0, 0
        self.tilt, self.place, self.stage, self.record = 2.0, 0.0, 1.0, -math.inf

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.slope, self.total = self.np_random.random(), 0.0
        self.tilt, self.place = 2.0, 0.0  # the same with every episode
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.wear += 0.1
        done = self.wear > 2.5
        self.stage += done  # only once an episode has ended
        return np.zeros(1, np.float32), self.grip, done, False, {}


def test_the_state_of_an_environment_is_no_env_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "Worn-v0", gymnasium.envs.registration.EnvSpec("Worn-v0", entry_point=Worn))
    environment = registry.make("gym:Worn-v0", {})
    assert dict(environment.env_parameters) == {"grip": 0.5}
    vector = environment.open(2)
    vector.set_env_parameters({"grip": np.array([1.0, 2.0])})
    vector.reset([0, 1])
    for _ in range(30):  # beyond the end of an episode
        assert vector.step(np.zeros(2, np.int32))[0].reward.tolist() == [1, 2]
    vector.close()


class Scaled(gymnasium.Wrapper):
    """Has an attribute with the name of one of the environment."""

    def __init__(self) -> None:
        super().__init__(Worn())
        self.grip = 7.0


def test_wrappers_keep_their_own_numbers() -> None:
    vector = registry.make("test_env_parameters:Scaled", {}).open(2)
    vector.set_env_parameters({"grip": np.array([1.0, 2.0])})
    vector.reset([0, 1])
    assert vector.step(np.zeros(2, np.int32))[0].reward.tolist() == [1, 2]
    vector.close()


def witness(spec: Spec) -> Agent:
    """An agent that acts as it did at first, and remembers the rewards of its last rollout."""
    agent, shape = policy(spec, layers=()), (16, 2)

    def init(key: jax.Array, hyper: Any) -> Member:
        return agent.init(key, hyper)._replace(own=jnp.zeros(shape))

    def update(member: Member, hyper: Any, rollout: Rollout, key: jax.Array) -> Any:
        return member._replace(own=rollout.reward), {}

    return agent._replace(init=init, update=update, rollout_length=shape[0], num_envs=shape[1])


class Start(NamedTuple):
    """A shard, and what training from its beginning gives under these values of gravity [4]."""

    shard: Any
    train: Callable[[list[float]], Any]
    agent: Agent


@pytest.fixture(scope="module", params=SHORT)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    environment = registry.make(request.param, SHORT[request.param])
    agent = witness(environment.spec)
    shard = gradient_trained(environment, independent(agent), np.arange(4), 0, EvaluationConfig(episodes=2))

    def train(gravity: list[float]) -> Any:
        shard.begin({"env.g": np.float32(gravity)})
        metrics = shard.train(0, 4, 4)
        return jax.device_get(shard.population.members), metrics["episode/return"]

    yield Start(shard, train, agent)
    shard.close()


def test_an_env_parameter_takes_effect_on_its_member_alone(start: Start) -> None:
    """With the same programs: what would have to be traced again is an error."""
    before, after = start.train([10, 10, 10, 10]), start.train([10, 12, 10, 10])
    assert not same(member(after, 1), member(before, 1))
    assert same(member(after, OTHERS), member(before, OTHERS))
    assert start.shard.stats().hyper["env.g"].tolist() == [10, 12, 10, 10]


def test_a_change_between_intervals_takes_effect(start: Start) -> None:
    """As in a child that has explored."""
    start.train([10, 10, 10, 10])
    start.shard.apply(Decision(np.arange(4), start.shard.hyper | {"env.g": np.float32([10, 8, 10, 10])}), {})
    start.shard.train(1, 4, 4)
    after = jax.device_get(start.shard.population.members)
    start.train([10, 10, 10, 10])
    start.shard.train(1, 4, 4)
    before = jax.device_get(start.shard.population.members)
    assert not same(member(after, 1), member(before, 1))
    assert same(member(after, OTHERS), member(before, OTHERS))


def test_fitness_is_measured_in_the_environment_as_it_is(start: Start) -> None:
    """Against episodes in a pendulum of a few lines, whose gravity is 10."""
    start.train([8, 9, 11, 12])
    shard = start.shard
    shard.evaluate(0)
    measured = shard.stats().fitness
    population, greedy = shard.population, jax.jit(start.agent.act_deterministic)
    keys = jax.random.split(jax_key(derive((0,), 0, "evaluate")), 2)
    for row in range(4):
        learned, returns = member(population.members.learned, row), []
        for key in stream(keys, "reset"):
            theta, speed, total = *begin(shard, key), 0.0
            for _ in range(EPISODE):
                obs = np.array([[math.cos(theta), math.sin(theta), speed]], np.float32)
                push = 2 * float(greedy(learned, obs, ())[0][0, 0])
                theta, speed, reward = swing(theta, speed, push, 10)
                total += reward
            returns.append(total)
        np.testing.assert_allclose(measured[row], np.mean(returns), rtol=2e-4)


def begin(shard: Any, key: jax.Array) -> tuple[float, float]:
    """The angle and the speed at which an episode with this reset key begins."""
    if isinstance(shard.rollouts, DeviceRollouts):
        _, state = registry.make("gymnax:Pendulum-v1", {}).reset(key)
        return float(state.theta), float(state.theta_dot)
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=int(jax.random.bits(key) >> 1))
    return tuple(map(float, env.state))


def test_the_new_value_is_the_one_that_counts() -> None:
    """One step with twelve instead of ten, by hand; and back in the environment as it is."""
    usual = registry.make("gymnax:Pendulum-v1", {})
    state = usual.reset(jax.random.key(0))[1]
    for environment, gravity in ((with_values(usual, {"g": jnp.float32(12)}), 12.0), (usual, 10.0)):
        _, after, reward, *_ = environment.step(jax.random.key(1), state, jnp.ones(1))
        expected = swing(float(state.theta), float(state.theta_dot), 1.0, gravity)
        np.testing.assert_allclose([after.theta, after.theta_dot, reward], expected, rtol=1e-5)


# ------------------------------------------------------------------------------ environments of one's own


def breeze(wind: float = 0.5, length: int = 4) -> DeviceEnvironment:
    """Its rewards are the wind, its observation where the episode began. Arguments are env_options."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        start = jax.random.uniform(key, (1,))
        return start, (start, jnp.int32(0))

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        start, time = state
        return start, (start, time + 1), jnp.float32(wind), jnp.bool_(False), time + 1 >= length

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


def numbered(wind: float = 0.5) -> DeviceEnvironment:
    """The same, which says itself what its levels are: where an episode begins."""
    usual = breeze(wind)

    def within(first: Any, end: Any) -> DeviceEnvironment:
        def reset(key: jax.Array) -> tuple[jax.Array, Any]:
            start = jax.random.randint(key, (1,), first, end).astype(jnp.float32)
            return start, (start, jnp.int32(0))

        return usual._replace(reset=reset)

    return usual._replace(at_levels=within)


def weighed(g: float = 10.0, effort: float = 0.001, length: int = EPISODE) -> DeviceEnvironment:
    """gymnax's pendulum, whose reward takes the squared push away with a weight of its own."""
    usual = registry.make("gymnax:Pendulum-v1", {"max_steps_in_episode": length})

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        obs, state, reward, *ends = with_values(usual, {"g": g}).step(key, state, action)
        return obs, state, reward - (effort - 0.001) * action[0] ** 2, *ends

    return DeviceEnvironment(usual.spec, usual.reset, step)


@pytest.mark.slow
def test_gravity_and_a_weight_of_the_reward_evolve_and_do_not_count(tmp_path: Path) -> None:
    """In training an effort costs so much that no return is above the least that the pendulum as it is can give."""
    least = -EPISODE * (math.pi**2 + 0.1 * 8**2 + 0.001 * 2**2)
    space = {"env.g": [8, 12], "env.effort": [1e6, 2e6]}
    train(
        tiny(
            env="test_env_parameters:weighed",
            config=LINEAR,
            space=space,
            generations=3,
            explore={"name": "resample"},
            run_dir=tmp_path,
        )
    )
    lineage = rows(tmp_path / "lineage.jsonl")
    for name, (low, high) in space.items():
        values = np.array([row["hyper"][name] for row in lineage]).reshape(3, 4)
        assert ((values >= low) & (values <= high)).all() and (values[1:] != values[:-1]).any()
    trained = np.array([row["members"]["episode/return"] for row in rows(tmp_path / "metrics.jsonl")])
    fitness = np.array([row["fitness"] for row in lineage])
    assert (trained < least).all() and (least <= fitness).all() and (fitness <= 0).all()


@pytest.mark.slow
def test_levels_and_env_parameters_go_together() -> None:
    """Members train on their levels with their winds, and are measured on theirs without."""
    levels = {"train": [0, 2], "validation": [2, 9], "test": [9, 20]}
    made = build_run(
        tiny(env="test_env_parameters:breeze", env_options={"length": 3}, levels=Levels(**levels), **WINDY)
    )
    winds = {"env.wind": np.float32([1, 2, 3, 4]), "env.wind.randomise": np.float32([0, 0, 0, 1])}
    made.shard.begin(made.evolver.init((0,), np.arange(4))[1] | winds)
    returns = made.shard.train(0, 4, 4)["episode/return"]
    np.testing.assert_array_equal(returns[:3], [3, 6, 9])
    assert 9 < returns[3] < 15 and returns[3] != 12
    seen = {float(x) for x in np.unique(made.shard.rollouts.world.obs)}
    of_levels = {float(breeze().reset(level_key(level))[0][0]) for level in range(2)}
    assert seen == of_levels
    made.shard.evaluate(0)
    np.testing.assert_array_equal(made.shard.stats().fitness, [1.5] * 4)


def test_every_episode_draws_its_own() -> None:
    """Uniformly within the spread, around the value that is set, or else around the usual one; and keeps it."""
    environment = with_domain_randomisation(registry.make("test_env_parameters:breeze", {}))
    assert dict(environment.env_parameters) == {"wind": 0.5, "wind.randomise": 0}
    keys = jax.random.split(jax.random.key(0), 500)

    @jax.jit
    @jax.vmap
    def play(key: jax.Array) -> Any:
        def episode(env_parameters: dict[str, Any]) -> jax.Array:
            own = with_values(environment, {name: jnp.float32(x) for name, x in env_parameters.items()})
            _, state = own.reset(key)
            rewards = []
            for _ in range(3):
                _, state, reward, *_ = own.step(key, state, jnp.int32(0))
                rewards.append(reward)
            return jnp.stack(rewards)

        return [
            episode(env_parameters)
            for env_parameters in ({"wind": 3, "wind.randomise": 2}, {"wind.randomise": 0.5}, {"wind": 7})
        ]

    around, usual, still = (np.asarray(x) for x in play(keys))
    assert (around == around[:, :1]).all() and (still == 7).all()
    for drawn, first, width in ((around, 1, 4), (usual, 0, 1)):
        assert len(np.unique(drawn[:, 0])) == 500
        assert stats.kstest(drawn[:, 0], stats.uniform(first, width).cdf).pvalue > 1e-3


def test_env_parameters_reach_levels_that_an_environment_names_itself() -> None:
    """Both the value and its spread."""
    usual = with_domain_randomisation(registry.make("test_env_parameters:numbered", {}))
    for env_parameters, low, high in (({"wind": 7, "wind.randomise": 1}, 6, 8), ({"wind": 7}, 7, 7)):
        environment = at_levels(
            with_values(usual, {name: jnp.float32(x) for name, x in env_parameters.items()}), Span(2, 4)
        )
        start, state = jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 20))
        wind = np.asarray(jax.vmap(environment.step, (None, 0, None))(jax.random.key(1), state, jnp.int32(0))[2])
        assert set(np.asarray(start[:, 0]).tolist()) == {2, 3}
        assert (wind >= low).all() and (wind <= high).all() and len(set(wind.tolist())) == (20 if low < high else 1)


# -------------------------------------------------------------------------------------------- whole runs


@pytest.mark.slow
def test_a_run_records_explores_and_goes_on(tmp_path: Path, trace_cache: None) -> None:
    """It is a hyperparameter like any other: in lineage, when a run is resumed, in schedules and their replay."""
    changes = {"explore": {"name": "resample"}, "hyper": {"env.l": 1.5}, "generations": 3}
    once, twice = (pendulum("gymnax:Pendulum-v1", run_dir=tmp_path / x, **changes) for x in ("once", "twice"))
    train(once)
    train(replace(twice, generations=1))
    resume(tmp_path / "twice", 3)
    same_run(tmp_path / "once", tmp_path / "twice")
    lineage = rows(tmp_path / "once" / "lineage.jsonl")
    gravity = np.array([row["hyper"]["env.g"] for row in lineage]).reshape(3, 4)
    assert ((gravity >= 8) & (gravity <= 12)).all() and len(set(gravity[0])) == 4
    assert (gravity[1:] != gravity[:-1]).any() and {row["hyper"]["env.l"] for row in lineage} == {1.5}
    found = [row["env.g"] for row in schedule(tmp_path / "once")]
    replay(tmp_path / "once", run_dir=str(tmp_path / "again"), population=4, generations=4)
    again = rows(tmp_path / "again" / "lineage.jsonl")
    held = found + found[-1:] * (4 - len(found))  # a schedule that has ended stays where it is
    assert [row["hyper"]["env.g"] for row in again[::4]] == pytest.approx(held)
    assert {row["hyper"]["env.l"] for row in again} == {1.5}
    train(pendulum("gymnax:Pendulum-v1", run_dir=tmp_path / "next", init_from=str(tmp_path / "once"), **changes))
    last = load_file(max((tmp_path / "once" / "checkpoints").iterdir()) / "shard-0000.safetensors")
    begun = [row["hyper"]["env.g"] for row in rows(tmp_path / "next" / "lineage.jsonl")[:4]]
    np.testing.assert_array_equal(np.float32(begun), last["hyper/env.g"])
    assert shoal("evaluate", tmp_path / "again", "--episodes", 4).code == 0
    assert shoal("report", tmp_path / "once").code == 0


@pytest.mark.parametrize(
    "set",
    [
        ["env=gymnax:Pendulum-v1", "space.env.gg=[8, 12]"],
        ["env=gymnax:Pendulum-v1", "hyper.env.x=1"],
        ["env=jumanji:Snake-v1", "hyper.env.x=1"],
        ["env=envpool:HalfCheetah-v5", "hyper.env.x=1"],
        ["env=gymnax:Pendulum-v1", "method=es", "hyper.env.g=9"],
        ["env=Pendulum-v1", "hyper.env.g=9", "fitness.source=training"],
        ["env=gymnax:Pendulum-v1", "space.env.g.low=9"],
        ["env=gymnax:Pendulum-v1", "method={name: schedule, rows: [{env.g: 9}, {}]}"],
        ["env=gymnax:Pendulum-v1", "method={name: schedule, rows: [{env.gg: 9}]}"],
    ],
    ids=shown,
)
def test_env_parameters_that_cannot_be(tmp_path: Path, set: list[str], said: Said) -> None:
    outcome = shoal("train", "--run-dir", tmp_path / "run", *(part for x in set for part in ("--set", x)))
    assert outcome.code == 2, outcome.err
    said(outcome.err)
    assert not (tmp_path / "run").exists()
