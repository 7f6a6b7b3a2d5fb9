"""No two things are drawn from one key: what a policy does tells nothing of what happens to it.

An agent and an environment tell every key that they are handed: on the device and on the host, in training, evaluations
and the champion's test, and where members are sampled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.shards import gradient_trained, sampled

from shoal.core.spec import Discrete, Spec
from shoal.core.types import Agent, Member, SearchLearner
from shoal.environments.device import DeviceEnvironment
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.gymnasium import gymnasium_environment
from shoal.members.acting import Policy
from shoal.members.sampled import TEST
from shoal.methods.es import Es
from shoal.rl.independent import independent

N, T, B, E = 4, 3, 2, 3
LENGTH = 5  # steps of an episode
Words = tuple[int, ...]

heard: dict[str, list[Words]] = defaultdict(list)  # by who heard it: the keys, and of host environments their seeds


def aloud(who: str, key: jax.Array) -> None:
    jax.debug.callback(lambda data: heard[who].append(tuple(data.tolist())), jax.random.key_data(key))


def silent(who: str, key: jax.Array) -> None:
    pass


class Coin(NamedTuple):
    nothing: Any = 0.0


class Learned(NamedTuple):
    params: Any


def gambler(environments: int = B, tell: Callable = aloud) -> Agent:
    """Acts as a coin falls."""

    def init(key: jax.Array, hyper: Any) -> Member:
        tell("init", key)
        return Member(Learned(jnp.zeros(1)), (), ())

    def act(learned: Any, hyper: Any, obs: jax.Array, carry: Any, key: jax.Array) -> Any:
        tell("act", key)
        return jax.random.bernoulli(key, shape=obs.shape[:1]).astype(jnp.int32), carry, ()

    def update(member: Member, hyper: Any, rollout: Any, key: jax.Array) -> Any:
        tell("update", key)
        return member, {"reward": rollout.reward.mean()}

    return Agent(init, act, None, update, lambda shape: (), Coin(), T, environments)  # type: ignore[arg-type]


def device_world(length: int = LENGTH, tell: Callable = aloud) -> DeviceEnvironment:
    """A coin falls at every step; who guesses it earns 1."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        tell("reset", key)
        return jnp.zeros(1), jnp.int32(0)

    def step(key: jax.Array, t: Any, action: jax.Array) -> tuple[Any, ...]:
        tell("step", key)
        won = jax.random.bernoulli(key) == (action == 1)
        return jnp.zeros(1), t + 1, won.astype(jnp.float32), jnp.bool(False), t + 1 >= length

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


class HostWorld(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        if seed is not None:  # none of its own where an episode follows another
            heard["seed"].append((seed,))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), 0.0, False, self.t >= LENGTH, {}


def tells(learner: SearchLearner) -> SearchLearner:
    """What draws members tells its key too."""

    def actors(population: Any, rows: jax.Array, uid: jax.Array, key: jax.Array) -> Any:
        aloud("draw", key)
        return learner.actors(population, rows, uid, key)

    return learner._replace(actors=actors)


@pytest.fixture(params=others_slow(["device", "host"], "device"))
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    gymnasium.register("shoal-test/Coins-v0", HostWorld)
    heard.clear()
    yield device_world() if request.param == "device" else gymnasium_environment("shoal-test/Coins-v0", {})
    del gymnasium.registry["shoal-test/Coins-v0"]


def phase(name: str) -> dict[str, list[Words]]:
    """What was heard since the last phase."""
    jax.effects_barrier()
    told = {f"{name}: {who}": words for who, words in heard.items()}
    heard.clear()
    return told


def nothing_twice(phases: list[dict[str, list[Words]]]) -> None:
    """No key for two purposes, nor one that is a child or a grandchild of another's; and no seed that is in any of them."""
    told = {who: words for part in phases for who, words in part.items()}
    keys = {who: sorted(set(words)) for who, words in told.items() if "seed" not in who}
    seeds = {word for who, words in told.items() if "seed" in who for (word,) in words}
    assert sum("seed" in who for who in told) == 0 or len(seeds) == sum(
        len(set(words)) for who, words in told.items() if "seed" in who
    )
    first = {key: who for who, some in keys.items() for key in some}
    for who, some in keys.items():
        for key in some:
            assert first[key] == who, f"{who} and {first[key]} share a key"
    generation = np.array(list(first), np.uint32)
    mothers = list(first.values())
    split = jax.jit(lambda keys: jax.vmap(lambda key: jax.random.split(key, 8))(keys).reshape(-1))
    for _ in range(2):
        assert not seeds & set((generation >> 1).reshape(-1).tolist())
        generation = np.asarray(jax.random.key_data(split(jax.random.wrap_key_data(generation))))
        mothers = [who for who in mothers for _ in range(8)]
        for mother, child in zip(mothers, generation.tolist(), strict=True):
            who = first.get(tuple(child))
            assert who is None, f"{who} has a key that comes from one of {mother}"


def all_different(words: list[Words], count: int) -> None:
    assert len(words) == count == len(set(words))


def test_of_members_that_live_on(world: Any) -> None:
    """Two generations and two rounds of the champion's test: who needs keys gets one of its own each time."""
    shard = gradient_trained(
        world, independent(gambler()), np.arange(N), 0, EvaluationConfig(episodes=E, deterministic=False)
    )
    on_device = isinstance(world, DeviceEnvironment)
    phase("build")  # a host environment is tried out once
    shard.begin({"nothing": np.zeros(N, np.float32)})
    phases = [phase("begin")]
    for generation in range(2):
        shard.train(generation, 2, 1)
        phases.append(phase(f"train {generation}"))
        shard.evaluate(generation)
        phases.append(phase(f"evaluate {generation}"))
    shard.test([Policy(shard.snapshot(0)[0], {"nothing": 0.0})], (0, 5), 2 * N * E, "")
    phases.append(phase("test"))
    shard.close()
    nothing_twice(phases)

    all_different(phases[0]["begin: init"], N)
    all_different(phases[0]["begin: reset" if on_device else "begin: seed"], N * B)
    all_different(phases[1]["train 0: act"], 2 * T * N)
    all_different(phases[1]["train 0: update"], 2 * N)
    fresh = phases[-1]
    all_different(fresh["test: act"], 2 * LENGTH * N)
    all_different(fresh["test: reset" if on_device else "test: seed"], 2 * N * E)
    told = phases[2]["evaluate 0: reset" if on_device else "evaluate 0: seed"]
    assert len(told) == N * len(set(told)) == N * E, "the same episodes for all members"
    if on_device:
        all_different(phases[1]["train 0: reset"], 2 * T * N * B)
        all_different(phases[1]["train 0: step"], 2 * T * N * B)
        all_different(fresh["test: step"], 2 * LENGTH * N * E)


def test_of_members_that_are_drawn(world: Any) -> None:
    learner = tells(Es("sgd").learner(gambler(1), N))
    shard = sampled(world, learner, np.arange(N), 0, EvaluationConfig(episodes=E, deterministic=False))
    shard.begin({name: np.full(N, value, np.float32) for name, value in learner.agent.hyper._asdict().items()})
    phases = [phase("begin")]
    for generation in range(2):
        shard.train(generation, 1, 1)
        shard.evaluate(generation)
        phases.append(phase(f"measure {generation}"))
    shard.test([Policy(shard.snapshot(0)[0], learner.agent.hyper._asdict())], (0, 5), 2 * TEST + 1, "")
    phases.append(phase("test"))
    shard.close()
    begun = "test: reset" if isinstance(world, DeviceEnvironment) else "test: seed"
    all_different(phases[-1][begun], 3 * TEST)  # a third round for the one that is too many
    assert {who.split(": ")[1] for part in phases for who in part} >= {"draw", "act"}
    nothing_twice(phases)


def test_a_coin_cannot_be_guessed() -> None:
    """Of 200 coins 100, give or take, whoever guesses: in training, in evaluations, and in the champion's test."""
    learner = independent(gambler(1, silent))
    shard = gradient_trained(
        device_world(200, silent), learner, np.arange(N), 0, EvaluationConfig(episodes=1, deterministic=False)
    )
    shard.begin({"nothing": np.zeros(N, np.float32)})
    metrics = shard.train(0, 200, 200)
    shard.evaluate(0)
    tested = shard.test([Policy(shard.snapshot(0)[0], {"nothing": 0.0})], (0, 5), 16, "").returns
    for guessed, coins in (
        (200 * metrics["reward"], T * 200),
        (shard.stats().fitness, 200),
        (tested.mean(), 16 * 200),
    ):
        np.testing.assert_allclose(guessed, 100, atol=5 * 100 / coins**0.5)
