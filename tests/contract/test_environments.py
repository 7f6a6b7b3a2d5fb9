"""What every environment must keep: its spec, honest ends, one place for automatic resets; and its published dynamics."""

from __future__ import annotations

import importlib.util
import inspect
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from scipy import stats
from support import probes
from support.cases import others_slow
from support.messages import shown
from support.tiny import leaves, same

from shoal.core.errors import BadInput
from shoal.core.spec import Box, Discrete, Leaf, MultiDiscrete
from shoal.core.types import TimeStep
from shoal.environments import registry, suites
from shoal.environments.device import DeviceEnvironment, auto_reset, with_values
from shoal.environments.gymnax import import_gymnax
from shoal.environments.host import HostEnvironment
from shoal.environments.objective import Minimised, in_infos
from shoal.environments.registry import Environment
from shoal.environments.spaces import to_bounds

PROBES = "support.probes:"
DEVICE = [
    ("gymnax:CartPole-v1", {}),
    ("gymnax:Pendulum-v1", {"max_steps_in_episode": 7}),
    ("gymnax:Breakout-MinAtar", {}),
    ("jumanji:Snake-v1", {"time_limit": 9}),
    (PROBES + "one_step_value", {}),
    (PROBES + "delayed_reward", {}),
    (PROBES + "endless_reward", {}),
    (PROBES + "recall", {"delay": 2}),
    (PROBES + "fork", {}),
    (PROBES + "match", {"actions": "discrete"}),
    (PROBES + "match", {"actions": "multi_discrete"}),
    (PROBES + "match", {"actions": "continuous"}),
]
HOST = [("gym:CartPole-v1", {}), ("gym:Pendulum-v1", {"max_episode_steps": 9})]
OWN = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"  # a class, as one of the user's own that is not registered
# Suites with tests of their own, as they need longer or other packages.
ELSEWHERE = {
    "brax": Path(__file__).name,
    "playground": "test_playground.py",
    "envpool": "test_envpool.py",
    "game": "test_games.py",
}


def open_environment(env: str, **options: Any) -> Environment:
    return registry.make(suites.resolve(env), options)


def random_action(space: Any, key: jax.Array) -> jax.Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.n)
    if isinstance(space, MultiDiscrete):
        return jax.random.randint(key, space.shape, 0, jnp.array(space.nvec))
    return jax.random.uniform(key, space.shape, jnp.float32, jnp.float32(space.low), jnp.float32(space.high))


# ------------------------------------------------------------------------------------ device environments


def test_no_suite_and_no_probe_is_forgotten():
    shown = {env.partition(":")[0] for env, _ in DEVICE + HOST} - {PROBES[:-1]}
    assert shown.isdisjoint(ELSEWHERE) and shown | ELSEWHERE.keys() == registry.SUITES.keys()
    for suite, file in ELSEWHERE.items():
        assert f'"{suite}:' in (Path(__file__).parent / file).read_text(), suite
    public = {
        f"{PROBES}{name}"
        for name, made in inspect.getmembers(probes, inspect.isfunction)
        if made.__module__ == probes.__name__ and not name.startswith("_")
    }
    assert public == {env for env, _ in DEVICE if env.startswith(PROBES)}


def leaf(x: jax.Array) -> Leaf:
    return Leaf(x.shape, str(x.dtype))


@pytest.mark.parametrize(("env", "options"), others_slow(DEVICE, DEVICE[0], DEVICE[1], DEVICE[-1]))
def test_device_environment(env, options):
    """Random steps in 8 copies, their resets marked: who shows which observation, and when."""
    if env.startswith("jumanji"):
        pytest.importorskip("jumanji")
    environment = open_environment(env, **options)
    assert isinstance(environment, DeviceEnvironment)
    spec = environment.spec

    def steps(key: jax.Array) -> tuple[jax.Array, TimeStep]:
        def step(state: Any, key: jax.Array) -> tuple[Any, TimeStep]:
            action_key, step_key, reset_key = jax.random.split(key, 3)
            obs, start = environment.reset(reset_key)
            marked = jax.tree.map(lambda x: jnp.full_like(x, -99), obs), start
            return auto_reset(environment, step_key, state, random_action(spec.action, action_key), marked)

        obs, state = environment.reset(key)
        return obs, jax.lax.scan(step, state, jax.random.split(key, 100))[1]

    first, then = jax.jit(jax.vmap(steps))(jax.random.split(jax.random.key(0), 8))
    done = np.asarray(then.terminated | then.truncated)
    assert done.any() and all(np.isfinite(x).all() for x in leaves(first))
    once, last = jax.tree.map(lambda x: x[0], first), jax.tree.map(lambda x: x[0, 0], then.final_obs)
    assert jax.tree.map(leaf, once) == jax.tree.map(leaf, last) == spec.obs
    assert then.reward.dtype == jnp.float32 and then.reward.shape == done.shape and np.isfinite(then.reward).all()
    for obs, final_obs in zip(leaves(then.obs), leaves(then.final_obs), strict=True):
        assert (obs[done] == -99).all()  # of the new episode
        assert (final_obs != -99).all()  # of the old one
        assert same(obs[~done], final_obs[~done])


def test_where_an_episode_ends_the_start_takes_over():
    """Its state and its observation; elsewhere nothing of it."""
    environment = open_environment("gymnax:CartPole-v1")
    start = environment.reset(jax.random.key(5))
    state = environment.reset(jax.random.key(6))[1]
    fallen = state.replace(theta=jnp.float32(1))
    for before, expected in ((fallen, start), (state, None)):
        after, step = jax.jit(partial(auto_reset, environment))(jax.random.key(0), before, jnp.int32(0), start)
        assert bool(step.terminated) == (expected is not None)
        assert same((step.obs, after), start) == (expected is not None)


@pytest.mark.parametrize(("speed", "reward"), [(np.nan, 0.0), (0.0, np.nan), (0.0, np.inf)])
def test_what_is_not_finite_ends_the_episode(speed, reward):
    """On the device: a NaN in its state would else go on for ever."""
    usual = open_environment("gymnax:Pendulum-v1")

    def odd(*arguments: Any) -> tuple[Any, ...]:
        obs, state, given, *ends = usual.step(*arguments)
        return obs, state, given + jnp.float32(reward), *ends

    environment, state = usual._replace(step=odd), usual.reset(jax.random.key(0))[1]
    start, state = environment.reset(jax.random.key(1)), state.replace(theta_dot=jnp.float32(speed))
    after, step = auto_reset(environment, jax.random.key(2), state, jnp.zeros(1), start)
    assert step.truncated and not step.terminated and np.isnan(step.reward)
    assert np.isfinite(step.obs).all() and np.isfinite(after.theta_dot)
    assert np.isfinite(step.final_obs).all() == (speed == 0)


class Breaks(gymnasium.Env):
    """Its rewards and observations are what the actions say, 1 to 3 for a sound, a huge, and a missing one."""

    observation_space, action_space = (
        gymnasium.spaces.Box(-9, 9, (2,), np.float64),
        gymnasium.spaces.MultiDiscrete([4, 4]),
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.full(2, 7.0), {"score": 0}

    def step(self, action: Any) -> Any:
        said = np.array([-1, 1, 1e39, np.nan])[action]
        return np.array([0.5, said[1]]), float(said[0]), action[0] == 0, False, {"score": 3.0}


def test_what_is_not_finite_ends_the_episode_on_the_host():
    """NaN, and what is too large for float32, without a word of NumPy's; and an end that comes anyway stays one."""
    gymnasium.register("shoal-test/Breaks-v0", Breaks, disable_env_checker=True)
    vector = open_environment("gym:shoal-test/Breaks-v0").open(6)
    vector.reset([0] * 6)
    step, info_of = vector.step(np.array([[1, 1], [1, 2], [1, 3], [2, 1], [3, 3], [0, 3]]))
    np.testing.assert_array_equal(np.isnan(step.reward), [False, True, True, True, True, True])
    np.testing.assert_array_equal(step.terminated, [False] * 5 + [True])
    np.testing.assert_array_equal(step.truncated, [False] + [True] * 5)
    np.testing.assert_array_equal(step.obs, [[0.5, 1]] + [[7, 7]] * 5)
    np.testing.assert_array_equal(step.final_obs[:, 0], [0.5] * 6)
    np.testing.assert_array_equal(np.isfinite(step.final_obs[:, 1]), [True, False, False, True, False, False])
    assert in_infos("score", info_of, np.arange(6) > 0).tolist()[1:] == [3] * 5
    assert step.obs.dtype == step.final_obs.dtype == step.reward.dtype == np.float32
    vector.close()
    del gymnasium.registry["shoal-test/Breaks-v0"]


@pytest.mark.parametrize(
    ("speed", "time", "terminated", "truncated"),
    [(0.0, 498, False, False), (0.0, 499, False, True), (20.0, 3, True, False), (20.0, 499, True, True)],
)
def test_a_time_limit_truncates_and_a_fall_terminates(speed, time, terminated, truncated):
    environment = open_environment("gymnax:CartPole-v1")
    state = environment.reset(jax.random.key(0))[1].replace(theta_dot=jnp.float32(speed), time=jnp.int32(time))
    *_, reward, ended, cut = environment.step(jax.random.key(0), state, jnp.int32(0))
    assert (bool(ended), bool(cut), float(reward)) == (terminated, truncated, 1.0)


# --------------------------------------------------------- gymnax against gymnasium, whose states are ours

TWINS = {
    "CartPole-v1": lambda s: np.array([s.x, s.x_dot, s.theta, s.theta_dot], np.float64),
    "Pendulum-v1": lambda s: np.array([s.theta, s.theta_dot], np.float64),
    "Acrobot-v1": lambda s: np.array([s.joint_angle1, s.joint_angle2, s.velocity_1, s.velocity_2], np.float64),
    "MountainCar-v0": lambda s: np.array([s.position, s.velocity], np.float64),
    "MountainCarContinuous-v0": lambda s: np.array([s.position, s.velocity], np.float64),
}


@pytest.fixture(scope="module", params=TWINS)
def twins(request: pytest.FixtureRequest) -> Any:
    """The same environment from gymnax and from gymnasium."""
    twin = gymnasium.make(request.param)
    yield open_environment(f"gymnax:{request.param}"), twin, TWINS[request.param]
    twin.close()


def test_dynamics(twins):
    """Each step from the same state, so that differences do not add up."""
    environment, twin, state_of = twins
    step = jax.jit(environment.step)
    action_of = jax.jit(lambda key: random_action(environment.spec.action, key))
    for episode in range(3):
        obs, state = environment.reset(jax.random.key(episode))
        for t in range(60):
            twin.reset(seed=0)  # the time limit begins anew, for it is not the twin's state
            twin.unwrapped.state = state_of(state)
            key = jax.random.fold_in(jax.random.key(episode), t)
            action = action_of(key)
            obs, state, reward, terminated, _ = step(key, state, action)
            given = np.asarray(action) if isinstance(environment.spec.action, Box) else int(action)
            expected = twin.step(given)
            np.testing.assert_allclose(obs, expected[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(reward, expected[1], rtol=1e-4, atol=1e-5)
            assert bool(terminated) == expected[2]
            if terminated:
                break


def test_first_observations(twins):
    """Sampled from the same distribution."""
    environment, twin, _ = twins
    ours = np.asarray(
        jax.jit(jax.vmap(lambda key: environment.reset(key)[0]))(jax.random.split(jax.random.key(0), 2000))
    )
    twin.reset(seed=0)
    theirs = np.stack([twin.reset()[0] for _ in range(2000)])
    for i in range(ours.shape[1]):
        if np.ptp(theirs[:, i]) or np.ptp(ours[:, i]):
            assert stats.ks_2samp(ours[:, i], theirs[:, i]).pvalue > 1e-4, i
        else:
            assert ours[0, i] == theirs[0, i]


def test_spaces_and_time_limits(twins):
    environment, twin, _ = twins
    assert environment.spec.obs_shape == twin.observation_space.shape
    if isinstance(environment.spec.action, Box):
        np.testing.assert_array_equal(environment.spec.action.low, twin.action_space.low)
        np.testing.assert_array_equal(environment.spec.action.high, twin.action_space.high)
    else:
        assert environment.spec.action.n == twin.action_space.n
    state = environment.reset(jax.random.key(0))[1]
    action = jnp.zeros(environment.spec.action.shape, jnp.float32 if environment.spec.action.shape else jnp.int32)
    for time, expected in ((twin.spec.max_episode_steps - 2, False), (twin.spec.max_episode_steps - 1, True)):
        assert bool(environment.step(jax.random.key(0), state.replace(time=jnp.int32(time)), action)[-1]) == expected


# -------------------------------------------------------------------------------------- host environments


@pytest.mark.parametrize(("env", "options"), [*HOST, (OWN, {})])
def test_host_environment(env, options):
    """Three copies against single environments with the same seeds: nothing lost, nothing shown twice."""
    environment = open_environment(env, **options)
    assert isinstance(environment, HostEnvironment)
    name, seeds = env.partition(":")[2], [3, 1, 4]
    singles: Any = [CartPoleEnv() if env == OWN else gymnasium.make(name, **options) for _ in seeds]
    vector = environment.open(3)
    rng, ended = np.random.default_rng(0), 0
    obs = vector.reset(seeds)
    np.testing.assert_array_equal(obs, [single.reset(seed=s)[0] for single, s in zip(singles, seeds, strict=True)])
    for _ in range(60):
        space = environment.spec.action
        continuous = isinstance(space, Box)
        action = rng.uniform(space.low, space.high, (3, 1)) if continuous else rng.integers(space.n, size=3)
        action = action.astype(np.float32 if continuous else np.int32)
        step, _ = vector.step(action)
        assert step.obs.dtype == step.final_obs.dtype == environment.spec.obs_dtype
        assert step.obs.shape == step.final_obs.shape == (3, *environment.spec.obs_shape)
        assert step.reward.dtype == np.float32 and step.terminated.dtype == step.truncated.dtype == bool
        for i, single in enumerate(singles):
            final, reward, terminated, truncated, _ = single.step(action[i])
            np.testing.assert_array_equal(step.final_obs[i], final)
            np.testing.assert_allclose(step.reward[i], reward, rtol=1e-6)
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            done = terminated or truncated
            np.testing.assert_array_equal(step.obs[i], single.reset()[0] if done else final)
            ended += done
    assert ended > 3
    vector.close()


def test_host_time_limit_truncates():
    vector = open_environment("gym:Pendulum-v1", max_episode_steps=3).open(2)
    vector.reset([0, 1])
    steps = [vector.step(np.zeros((2, 1), np.float32))[0] for _ in range(6)]
    np.testing.assert_array_equal([s.truncated[0] for s in steps], [False, False, True] * 2)
    assert not any(s.terminated.any() for s in steps)
    vector.close()


@pytest.mark.slow
def test_host_environments_in_worker_processes():
    """`vectorization: async` gives what `sync` gives."""
    vectors = [open_environment("gym:CartPole-v1", vectorization=v).open(3) for v in ("sync", "async")]
    assert same(*(vector.reset([5, 6, 7]) for vector in vectors))
    for t in range(40):
        action = np.full(3, t % 3 == 0, np.int32)
        assert same(*(vector.step(action)[0] for vector in vectors))
    for vector in vectors:
        vector.close()


RESTING = [
    ("gym:CartPole-v1", {}),
    pytest.param("gym:CartPole-v1", {"vectorization": "async"}, marks=pytest.mark.slow),
    ("envpool:CartPole-v1", {}),
    ("gym:ALE/Pong-v5", {"screen_size": 8, "max_episode_steps": 20}),
]


@pytest.mark.parametrize(("env", "options"), others_slow(RESTING, *RESTING[:-1]))
def test_copies_that_rest_change_nothing_for_the_others(env, options):
    """Nor do they end, or say what is no number; and with the next reset they are there again."""
    if env.startswith("envpool"):
        pytest.importorskip("envpool")
    environment = open_environment(env, **options)
    vector = environment.open(4)
    rng, awake = np.random.default_rng(0), np.array([True, False, True, False])
    actions = rng.integers(0, environment.spec.action.n, (60, 4))

    def play(rest_from: int) -> list[TimeStep]:
        first, steps = vector.reset([1, 2, 3, 4]), []
        for t, action in enumerate(actions):
            if t == rest_from:
                vector.mark_unused(~awake)
            steps.append(vector.step(action)[0])
        return [jax.tree.map(np.copy, TimeStep(first, *steps[0][1:])), *steps]

    whole, rested, again = play(60), play(20), play(60)
    assert same(whole, again)
    of_awake = partial(jax.tree.map, lambda x: x[awake])
    assert same(list(map(of_awake, whole)), list(map(of_awake, rested)))
    assert all(np.isfinite(x).all() for x in leaves(rested))
    if "ALE" not in env:  # whose copies go on
        assert not any((step.terminated | step.truncated)[~awake].any() for step in rested[21:])
    vector.close()


class Score(gymnasium.Env):
    """Episodes as long as the seed's last digit; the info counts points, which are not the reward."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.MultiBinary(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.limit, self.rare = 0, 2 if seed is None else seed % 10, (seed or 0) >= 10
        return np.zeros(1, np.float32), {"score": {"points": -1.0}}

    def step(self, action: np.ndarray) -> Any:
        self.time += 1
        done = self.time >= self.limit
        info = {"score": {"points": 10.0 * self.time, "name": "x", "pair": np.zeros(2)}}
        if done and self.rare:
            info["score"]["rarely"] = 1.0
        return np.zeros(1, np.float32), 1.0, done, False, info


@pytest.fixture
def score() -> HostEnvironment:
    gymnasium.register("shoal-test/Score-v0", Score)
    try:
        yield open_environment("gym:shoal-test/Score-v0")
    finally:
        del gymnasium.registry["shoal-test/Score-v0"]


def test_objective(score):
    """Points of the episode that ended, not of the one that began, or of the one that goes on; and only where asked."""
    assert score.spec.action == MultiDiscrete((2, 2))
    vector = score.open(3)
    vector.reset([1, 4, 3])
    seen = []
    for _ in range(4):
        step, info_of = vector.step(np.zeros((3, 2), np.int32))
        seen.append([in_infos("score.points", info_of, x) for x in (step.terminated, np.array([True, False, True]))])
    ended, asked = np.swapaxes(seen, 0, 1)
    nan = np.nan
    np.testing.assert_array_equal(ended, [[10, nan, nan], [nan, nan, nan], [20, nan, 30], [nan, 40, nan]])
    np.testing.assert_array_equal(asked, [[10, nan, 10], [10, nan, 20], [20, nan, 30], [10, nan, 10]])
    assert asked.dtype == np.float64
    vector.close()


def test_objective_that_is_a_function(score):
    """It sees the info of one copy, without the marks of the others."""

    def bonus(info: dict[str, Any]) -> float:
        assert not [name for name in [*info, *info["score"]] if name.startswith("_")]
        return info["score"]["points"] + info["score"].get("rarely", 0) / 2

    vector = score.open(3)
    vector.reset([1, 4, 13])
    seen = []
    for _ in range(4):
        step, info_of = vector.step(np.zeros((3, 2), np.int32))
        seen.append(in_infos(bonus, info_of, step.terminated))
    assert sorted(x for row in seen for x in row if not np.isnan(x)) == sorted([10, 20, 40, 30.5])
    vector.close()


class Uneven(Score):
    """Its points are an integer in some copies only, and its moves are as many as its steps."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        info = {"points": 0 if self.limit == 1 else 0.7, "moves": np.arange(self.time + self.limit)}
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_an_info_is_that_of_its_copy_alone(vectorization):
    """Its numbers are not of the type of another copy's, nor its arrays of that shape."""
    gymnasium.register("shoal-test/Uneven-v0", Uneven)
    try:
        vector = open_environment("gym:shoal-test/Uneven-v0", vectorization=vectorization).open(3)
        vector.reset([1, 2, 3])
        for step, points in enumerate([[0, 0.7, 0.7], [0.7, 0.7, 0.7]]):
            _, info_of = vector.step(np.zeros((3, 2), np.int32))
            assert in_infos("points", info_of, np.ones(3, bool)).tolist() == points
            assert len(info_of(2)["moves"]) == step + 1 + 3
        vector.close()
    finally:
        del gymnasium.registry["shoal-test/Uneven-v0"]


def test_objective_of_which_less_is_better(score):
    vector = score.open(1)
    vector.reset([1])
    _, info_of = vector.step(np.zeros((1, 2), np.int32))
    assert in_infos(Minimised("score.points"), info_of, np.ones(1, bool)).tolist() == [-10]
    vector.close()


@pytest.mark.parametrize(
    "function",
    [lambda info: info["nothing"], lambda info: "x"],
    ids=["fails", "gives text"],
)
def test_objective_that_is_no_good_function(score, function, said):
    vector = score.open(1)
    vector.reset([1])
    _, info_of = vector.step(np.zeros((1, 2), np.int32))
    with pytest.raises(BadInput) as error:
        in_infos(function, info_of, np.ones(1, bool))
    said(error.value)
    vector.close()


@pytest.mark.parametrize(
    "objective",
    [
        "score.pints",
        "scores",
        "score.points.x",
        "score.rarely",
        "score",
        "score.name",
        "score.pair",
    ],
    ids=shown,
)
def test_objective_that_is_not_there(score, objective, said):
    vector = score.open(3)
    vector.reset([4, 3, 13])
    with pytest.raises(BadInput) as error:
        for _ in range(3):
            step, info_of = vector.step(np.zeros((3, 2), np.int32))
            in_infos(objective, info_of, step.terminated)
    said(error.value)
    vector.close()


# ------------------------------------------------------------------------------------------------ actions


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_actions_are_stretched_onto_their_bounds(xp):
    inf = float("inf")
    space = Box((-2.0, 0.0, -inf, 0.0, -inf), (2.0, 10.0, inf, inf, 9.0))
    action = [[-1, -1, -1, -1, -1], [0, 0, 0, 0, 0], [1, 0.5, 7, -7, 7], [5, -5, 0.5, 70, -70]]
    expected = [[-2, 0, -1, 0, 7], [0, 5, 0, 1, 8], [2, 7.5, 7, 0, 9], [2, 0, 0.5, 71, -62]]
    for shape in ((4, 5), (2, 2, 5)):
        got = to_bounds(space, xp.asarray(action, dtype=np.float32).reshape(shape))
        np.testing.assert_allclose(np.asarray(got).reshape(4, 5), expected, rtol=1e-6)
        assert got.dtype == np.float32 and isinstance(got, np.ndarray if xp is np else jax.Array)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_what_is_no_number_is_no_action(xp):
    """Of a member that has diverged: BipedalWalker, for one, would raise an error and end the run of all."""
    space = Box((-2.0, 0.0, -float("inf")), (2.0, 10.0, float("inf")))
    for wrong in (np.nan, np.inf, -np.inf):
        np.testing.assert_array_equal(to_bounds(space, xp.full((2, 3), np.float32(wrong))), [[0, 5, 0]] * 2)


def test_choices_are_counted_from_the_start_of_their_space():
    for space, action, expected in (
        (Discrete(9), [0, 5], [0, 5]),
        (Discrete(9, start=-2), [0, 5], [-2, 3]),
        (MultiDiscrete((2, 9)), [[0, 5]], [[0, 5]]),
        (MultiDiscrete((2, 9), (1, -3)), [[0, 5]], [[1, 2]]),
    ):
        for given in (np.int32(action), jnp.int32(action)):
            got = to_bounds(space, given)
            assert got.dtype == jnp.int32 and got.tolist() == expected


BOXES = {  # the extremes of each are hard to meet with float32
    "integers": gymnasium.spaces.Box(np.array([0, -3]), np.array([3, 250]), dtype=np.int64),
    "bytes": gymnasium.spaces.Box(0, 255, (2,), np.uint8),
    "all integers": gymnasium.spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
    "doubles": gymnasium.spaces.Box(np.array([-0.3, 0.1]), np.array([0.1, 0.7]), dtype=np.float64),
    "all doubles": gymnasium.spaces.Box(-1e300, 1e300, (2,), np.float64),
    "halves": gymnasium.spaces.Box(-np.inf, 0.1, (2,), np.float16),
    "above": gymnasium.spaces.Box(0.7, np.inf, (2,), np.float32),
}
SPACES = BOXES | {
    "one choice": gymnasium.spaces.Discrete(3, start=-1),
    "several": gymnasium.spaces.MultiDiscrete([2, 3], start=[5, -7]),
    "switches": gymnasium.spaces.MultiBinary(2),
}


class Sees(gymnasium.Env):
    """Takes actions of any space, and keeps the last; its observation is one number without a shape."""

    observation_space = gymnasium.spaces.Box(-1, 1, (), np.float32)

    def __init__(self, space: gymnasium.Space, seen: list):
        self.action_space, self.seen = space, seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.float32(0), {}

    def step(self, action: Any) -> Any:
        self.seen.append(action)
        return np.float32(0), 0.0, False, False, {}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_action_lies_in_the_space_of_the_environment(space, monkeypatch):
    """On its way through the vector, and as `Champion.act` gives it: the same, within the space, ends included."""
    seen: list = []
    entry = gymnasium.envs.registration.EnvSpec("Sees-v0", entry_point=lambda: Sees(space, seen))
    monkeypatch.setitem(gymnasium.registry, "Sees-v0", entry)
    environment = open_environment("gym:Sees-v0", disable_env_checker=True)
    ours = environment.spec.action
    if isinstance(ours, Box):
        given = np.float32([[-1, -1], [-9, 9], [1, 1], [0.99, -0.99], [0.1, 0.3]])
    else:
        given = np.int32([0, 1, 2]) if isinstance(ours, Discrete) else np.int32([[0, 1], [1, 0]])
    vector = environment.open(len(given))
    vector.reset(list(range(len(given))))
    taken = to_bounds(ours, given)
    seen.clear()  # an environment's first step is checked before it is used
    vector.step(taken)
    own = taken.astype(ours.native)
    for action, champions in zip(seen, own, strict=True):
        assert space.contains(action) and space.contains(champions), (action, champions)
        np.testing.assert_array_equal(action, champions)
    if space in (BOXES["integers"], BOXES["bytes"]):
        np.testing.assert_array_equal(own[[0, 2]], [space.low, space.high])
    if space is BOXES["integers"]:
        np.testing.assert_array_equal(own[3:], [[3, -2], [2, 161]])
    vector.close()


# ----------------------------------------------------------------------------------------------- registry


@pytest.mark.parametrize("name", suites.names("gymnax"))
def test_every_gymnax_id_works_or_says_why_not(name, monkeypatch):
    """One reset and step, by shapes alone: what a scan needs."""

    def no_network(*_: Any) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("gymnax.utils.load_mnist._download", no_network)
    try:
        environment = open_environment(f"gymnax:{name}")
    except BadInput as error:
        assert name == "MNISTBandit-bsuite" and "download" in str(error)
        return
    spec = environment.spec

    def first_step(key: jax.Array) -> Any:
        obs, state = environment.reset(key)
        return state, obs, *auto_reset(environment, key, state, random_action(spec.action, key), (obs, state))

    state, obs, after, step = jax.eval_shape(first_step, jax.random.key(0))
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(state)] == [(x.shape, x.dtype) for x in jax.tree.leaves(after)]
    assert obs.shape == step.obs.shape == step.final_obs.shape == spec.obs_shape
    assert obs.dtype == step.obs.dtype == step.final_obs.dtype == spec.obs_dtype
    for x, dtype in ((step.reward, np.float32), (step.terminated, np.bool_), (step.truncated, np.bool_)):
        assert x.shape == () and x.dtype == dtype


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_brax():
    environment = open_environment("brax:inverted_pendulum", episode_length=3)
    assert environment.spec.action == Box((-1.0,), (1.0,)) and not environment.fresh_resets
    start = environment.reset(jax.random.key(1))

    @jax.jit
    def step_under(gravity, key, state):
        return auto_reset(with_values(environment, {"gravity": gravity}), key, state, jnp.zeros(1), start)

    step = partial(step_under, jnp.float32(environment.env_parameters["gravity"]))
    obs, state = jax.jit(environment.reset)(jax.random.key(0))
    falls, floats = (step_under(jnp.float32(g), jax.random.key(0), state)[1].final_obs - obs for g in (9.81, 0))
    assert abs(falls[3]) > 10 * abs(floats[3])  # the speed of the pole
    assert obs.shape == environment.spec.obs_shape and obs.dtype == jnp.float32
    ends = []
    for _ in range(4):
        state, now = step(jax.random.key(0), state)
        ends.append((bool(now.terminated), bool(now.truncated)))
        assert all(np.isfinite(x).all() for x in leaves(now))
        assert same(now.obs, start[0]) == ends[-1][1] == (not same(now.obs, now.final_obs))
    assert ends == [(False, False), (False, False), (False, True), (False, False)]


def test_atari_is_an_extra(monkeypatch, said):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ale_py" else True)
    monkeypatch.setattr(suites, "names", lambda suite: [])
    for env in ("gym:ALE/Pong-v5", "ALE/Pong-v5"):
        with pytest.raises(BadInput) as error:
            suites.resolve(env)
        said(error.value)


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        *(("LunarLander-v2", ()), ("gym:LunarLander-v2", ()), ("LunarLander-v2", ("Box2D",))),
        *(("BreakoutNoFrameskip-v4", ()), ("PongDeterministic-v4", ()), ("Breakout-v4", ()), ("ALE/Pong-v0", ())),
        *(("HalfCheetah-v2", ()), ("gym:HalfCheetah-v3", ()), ("HalfCheetah-v2", ("mujoco",))),
        *(("CartPole-v9", ()), ("gym:CartPole", ()), ("Pendulum-v0", ()), ("Nothing-v1", ())),
    ],
)
def test_other_versions_name_what_there_is(env, missing, monkeypatch, said):
    """Without envpool, which has some of them itself."""
    find = importlib.util.find_spec
    gone = {"envpool", *missing}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in gone else find(name))
    with pytest.raises(BadInput) as error:
        suites.resolve(env)
    said(error.value)


def test_bare_names_take_the_fastest_suite():
    assert suites.resolve("CartPole-v1") == "gymnax:CartPole-v1"
    assert suites.resolve("LunarLander-v3") == "gym:LunarLander-v3"
    assert suites.resolve("ant") == "brax:ant"
    assert suites.resolve("gym:CartPole-v1") == "gym:CartPole-v1"


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("Cartpole-v1", {}),
        ("gymnax:Cartpole", {}),
        ("gym:LunarLander-v2", {}),
        ("brax:Ant", {}),
        ("atari:Pong", {}),
        ("", {}),
        (PROBES + "mtch", {}),
        (PROBES + "match", {"actions": "discret"}),
        (PROBES + "recall", {"delay": 0}),
        ("gymnax:CartPole-v1", {"max_steps": 3}),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": "many"}),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": 2**31}),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": 0}),
        ("gymnax:CartPole-v1", {"gravity": -(2**40)}),
        ("gymnax:Pendulum-v1", {"m": 0}),
        ("gymnax:Pendulum-v1", {"g": None}),
        ("brax:reacher", {"episode_length": 10**12}),
        ("brax:reacher", {"episode_length": 0}),
        (PROBES + "match", {"function": 1}),
        ("gym:CartPole-v1", {"lenght": 3}),
        ("gym:CartPole-v1", {"max_episode_steps": -2}),
        ("gym:CartPole-v1", {"vectorization": "fast"}),
        ("gym:no_such_module:Env-v0", {}),
    ],
    ids=shown,
)
def test_bad_input(env, options, said):
    with pytest.raises(BadInput) as error:
        open_environment(env, **options)
    said(error.value)


def test_names_of_gymnax_are_those_of_the_package():
    assert set(suites.LISTED["gymnax"]) == set(import_gymnax().registered_envs)


def test_moved_environments_are_not_listed():
    assert "Ant-v5" in suites.names("gym") and "Ant-v3" not in suites.names("gym")
