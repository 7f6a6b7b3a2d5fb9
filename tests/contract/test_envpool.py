"""envpool: episodes that end honestly, copies that depend on their seeds, levels, and bodies that equal gymnasium's."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy import stats
from support.cases import others_slow
from support.messages import shown
from support.tiny import same

from shoal.core.errors import BadInput
from shoal.core.spec import Box, Discrete, Spec
from shoal.environments import envpool as ours
from shoal.environments import registry, suites
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Levels
from shoal.environments.objective import in_infos
from shoal.environments.spaces import to_bounds
from shoal.experiment.build import make_environment
from shoal.experiment.experiment import Experiment

installed = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="the extra envpool is not installed")
EASY = {"distribution_mode": "easy"}


def opened(env: str, **options: Any) -> HostEnvironment:
    environment = registry.make(suites.resolve(env), options)
    assert isinstance(environment, HostEnvironment)
    return environment


def actions(spec: Spec, rng: np.random.Generator, n: int) -> np.ndarray:
    """The same action for all copies."""
    one = rng.integers(spec.action.n) if isinstance(spec.action, Discrete) else rng.uniform(-1, 1, spec.action.shape)
    return to_bounds(spec.action, np.broadcast_to(one, (n, *np.shape(one))).astype(spec.action.dtype))


TASKS = [
    ("HalfCheetah-v5", "HalfCheetah-v5", {"max_episode_steps": 7}, True),  # which ends by its limit alone
    ("Hopper-v5", "Hopper-v5", {}, False),  # which falls
    ("starpilot", "StarpilotEasy-v0", EASY, False),  # which dies
]


@installed
@pytest.mark.parametrize(("env", "task", "options", "limit"), others_slow(TASKS, *TASKS[:2]))
def test_ends(env, task, options, limit):
    """Against envpool's own steps, where the observation after an end comes a step later, and has no reward."""
    environment, seeds = opened(f"envpool:{env}", **options), [3, 1, 4, 1]
    import envpool

    vector = environment.open(4)
    obs = vector.reset(seeds)
    assert obs.dtype == environment.spec.obs_dtype and obs.shape == (4, *environment.spec.obs_shape)
    own = {k: v for k, v in options.items() if k != "distribution_mode"}
    alone = [envpool.make_gymnasium(task, num_envs=1, seed=[s], **own) for s in seeds]
    expected = [pool.reset()[0][0] for pool in alone]
    rng, ended, given = np.random.default_rng(0), 0, []
    for _ in range(150):
        np.testing.assert_array_equal(obs, np.stack(expected).astype(obs.dtype))
        action = actions(environment.spec, rng, 4)
        step, info_of = vector.step(action)
        length = in_infos("elapsed_step", info_of, step.terminated | step.truncated)
        assert step.reward.dtype == np.float32 and step.terminated.dtype == step.truncated.dtype == bool
        assert step.obs.dtype == step.final_obs.dtype == environment.spec.obs_dtype
        for i, pool in enumerate(alone):
            final, reward, terminated, truncated, info = (x for x in pool.step(action[i : i + 1]))
            np.testing.assert_array_equal(step.final_obs[i], final[0].astype(obs.dtype))
            assert step.reward[i] == reward[0]
            assert (step.terminated[i], step.truncated[i]) == (terminated[0], truncated[0])
            expected[i] = final[0]
            if terminated[0] or truncated[0]:
                expected[i] = pool.step(action[i : i + 1])[0][0]
                assert length[i] == info["elapsed_step"][0] > 1
                assert truncated[0] == limit
                ended += 1
            else:
                assert np.isnan(length[i])
        given.append((step, [x.copy() for x in step]))
        obs = step.obs
    assert ended > 3
    for step, then in given:  # nothing that was given changes later
        for x, y in zip(step, then, strict=True):
            np.testing.assert_array_equal(x, y)
    vector.close()


@installed
def test_what_is_not_finite_ends_the_episode(monkeypatch):
    environment = opened("envpool:HalfCheetah-v5")
    vector: Any = environment.open(3)
    vector.reset([0, 1, 2])
    real = vector.step_raw

    def odd(action: np.ndarray) -> Any:
        moved = real(action)
        moved.obs[1], moved.reward[2] = np.nan, np.inf
        return moved

    monkeypatch.setattr(vector, "step_raw", odd)
    step, _ = vector.step(np.zeros((3, 6), np.float32))
    np.testing.assert_array_equal(np.isnan(step.reward), [False, True, True])
    np.testing.assert_array_equal(step.truncated, [False, True, True])
    assert not step.terminated.any() and np.isfinite(step.obs).all() and np.isnan(step.final_obs[1]).all()
    np.testing.assert_array_equal(step.obs[0], step.final_obs[0])
    assert (np.abs(step.obs[1:]) < 1).all(), "of new episodes"
    vector.close()


# -------------------------------------------------------------------------------------------------- Procgen


def first_level(seed: int, first: int, end: int) -> int:
    return first + int(np.random.RandomState(seed).randint(2**32, dtype=np.uint32)) % (end - first)


def levels_seen(environment: HostEnvironment, seeds: list[int], steps: int) -> list[list[int]]:
    """The levels of the episodes that each copy has ended, in order."""
    vector = environment.open(len(seeds))
    vector.reset(seeds)
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(steps):
        step, info_of = vector.step(actions(environment.spec, rng, len(seeds)))
        seen.append(in_infos("level_seed", info_of, step.terminated | step.truncated))
    vector.close()
    return [[int(x) for x in column[~np.isnan(column)]] for column in np.stack(seen).T]


@installed
def test_levels_are_those_that_were_asked_for():
    """The first level of every copy is the one that its seed says, and all others lie within the range."""
    environment = opened("envpool:starpilot", **EASY)
    assert environment.spec == Spec((3, 64, 64), "uint8", Discrete(15)) and environment.at_levels is not None
    seeds = list(range(24))
    seen = levels_seen(environment.at_levels(1000, 1007), seeds, 300)
    assert sum(map(len, seen)) > 2 * len(seeds)
    assert [levels[0] for levels in seen] == [first_level(seed, 1000, 1007) for seed in seeds]
    assert {level for levels in seen for level in levels} == set(range(1000, 1007))
    assert max(level for levels in levels_seen(environment, seeds, 100) for level in levels) > 10**6, "any at all"


@installed
def test_ranges_of_levels_share_no_first_frame():
    environment = opened("envpool:starpilot", **EASY)
    assert environment.at_levels is not None
    frames = []
    for first, end in ((0, 8), (8, 16), (0, 8)):
        vector = environment.at_levels(first, end).open(64)
        frames.append({obs.tobytes() for obs in vector.reset(list(range(64)))})
        vector.close()
    assert len(frames[0]) == len(frames[1]) == 8 and frames[0] == frames[2] and not frames[0] & frames[1]


@installed
def test_modes_of_procgen():
    """The paper's is hard; each game names the modes that it has."""
    names = set(suites.names("envpool"))
    assert {"bigfish", "Bigfish", "BigfishEasy-v0", "HalfCheetah-v5", "CheetahRun-v1", "Pong-v5"} <= names
    for game in suites.PROCGEN:
        assert {game, *(f"{game.capitalize()}{mode}-v0" for mode in ("Easy", "Hard"))} <= names


@installed
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("envpool:bigfihs", {}),
        ("envpool:bigfish", {"distribution_mode": "eazy"}),
        ("envpool:bigfish", {"num_levels": 200}),
        ("envpool:bigfish", {"max_episode_steps": 9}),
        ("envpool:bigfish", {"center_agnet": True}),
        ("envpool:bigfish", {"num_envs": 3}),
        ("envpool:BigfishEasy-v0", EASY),
        ("envpool:HalfCheetah-v5", {"frame_skip": "many"}),
        ("envpool:Pong-v5", {"episodic_life": True}),
        ("envpool:Pong-v5", {"reward_clip": True}),
        ("Reacher-v5", {"vectorization": "sync"}),
        ("envpool:CheetahRun-v1", {"vectorization": "sync"}),
        ("envpool:Go9x9-v1", {}),
        ("envpool:Basic-v1", {}),
    ],
    ids=shown,
)
def test_bad_input(env, options, said):
    with pytest.raises(BadInput) as error:
        opened(env, **options)
    said(error.value)


@installed
def test_who_has_levels_where_envpool_has_none(said):
    for env in ("Hopper-v5", "envpool:CheetahRun-v1"):
        with pytest.raises(BadInput) as error:
            make_environment(Experiment(env=suites.resolve(env), levels=Levels()))
        said(error.value)


@installed
def test_qt_is_missing(monkeypatch, said):
    # Private: no public name says whether a library of the system is there.
    monkeypatch.setattr(ours, "_without_qt", lambda: "libQt5Core.so.5: no such file")
    with pytest.raises(BadInput) as error:
        opened("envpool:bigfish")
    said(error.value)
    opened("envpool:Hopper-v5")


def test_envpool_is_an_extra(monkeypatch, said):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "envpool" else find(name))
    for env in ("envpool:bigfish", "bigfish", "Starpilot"):
        with pytest.raises(BadInput) as error:
            suites.resolve(env)
        said(error.value)
    assert suites.resolve("HalfCheetah-v5") == "gym:HalfCheetah-v5"


@installed
def test_pools_are_freed():
    """Their threads end, when a pool takes new seeds and when it is closed."""

    def running() -> int:
        return len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 0

    environment = opened("envpool:Hopper-v5", num_threads=5)
    before = running()
    vector = environment.open(5)
    counts = []
    for seed in range(4):
        vector.reset(list(range(seed, seed + 5)))
        counts.append(running())
    assert before + 5 <= counts[-1] <= counts[0]
    vector.close()
    deadline = time.monotonic() + 5
    while running() > before and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert running() <= before


# ------------------------------------------------------------------------------- observations of several parts


@installed
@pytest.mark.parametrize("task", ["CheetahRun-v1", "MiniGrid-Empty-5x5-v0"])
def test_observations_of_several_parts_are_a_dictionary_of_arrays(task):
    """Boxes as they are, the others as gymnasium flattens them; where an episode ends, the last ones and the first."""
    import envpool

    environment = opened(f"envpool:{task}", max_episode_steps=3)
    vector = environment.open(2)
    obs = vector.reset([5, 6])
    pool = envpool.make_gymnasium(task, num_envs=2, seed=[5, 6])
    parts, _ = pool.reset()
    space = pool.observation_space
    assert obs.keys() == space.keys() == environment.spec.obs_shape.keys() == environment.spec.obs_dtype.keys()
    for name, part in space.items():
        shape, dtype = environment.spec.obs_shape[name], environment.spec.obs_dtype[name]
        assert (obs[name].shape, str(obs[name].dtype)) == ((2, *shape), dtype)
        whole = isinstance(part, gymnasium.spaces.Box)
        expected = parts[name] if whole else [gymnasium.spaces.flatten(part, np.squeeze(x)) for x in parts[name]]
        np.testing.assert_array_equal(obs[name], np.asarray(expected).astype(dtype))
    still = np.zeros((2, *environment.spec.action.shape), environment.spec.action.native)
    steps = [vector.step(still)[0] for _ in range(3)]
    assert [step.truncated.tolist() for step in steps] == [[False, False], [False, False], [True, True]]
    assert same(steps[1].obs, steps[1].final_obs) and not same(steps[2].obs, steps[2].final_obs)
    vector.close()


@installed
def test_critics_of_robots_see_more():
    """As the same robots of MuJoCo Playground: policies do not see what only a simulator knows."""
    spec = opened("envpool:Go1JoystickFlatTerrain-v1").spec
    assert spec.obs_shape == {"state": (48,), "privileged_state": (123,)}
    assert (spec.actor, spec.critic) == (("state",), ("privileged_state",))


# ------------------------------------------------------------------------------- bodies, against gymnasium's


def state_of(body: str, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities from an observation, with `exclude_current_positions_from_observation` off."""
    if body == "InvertedDoublePendulum":  # sines, cosines
        return np.array([obs[0], *np.arctan2(obs[1:3], obs[3:5])]), obs[5:8]
    if body == "Reacher":  # cosines, sines, and the target
        return np.array([*np.arctan2(obs[2:4], obs[:2]), *obs[4:6]]), np.array([*obs[6:8], 0, 0])
    if body == "InvertedPendulum":
        return obs[:2], obs[2:]
    sizes = {"HalfCheetah": 9, "Hopper": 6, "Humanoid": 24, "Swimmer": 5, "Walker2d": 9}
    moving = sizes[body] - (body == "Humanoid")  # which turns freely: four numbers, three speeds
    return obs[: sizes[body]], obs[sizes[body] : sizes[body] + moving]


@installed
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("env", others_slow(sorted(ours.EQUAL), "HalfCheetah-v5", "Reacher-v5"))
def test_bodies_equal_those_of_gymnasium(env):
    """From the same states, with the same actions; and the first states are drawn alike."""
    pytest.importorskip("mujoco")
    import envpool

    body = env.removesuffix("-v5")
    all_told = body.startswith("Inverted") or body == "Reacher"
    whole = {} if all_told else {"exclude_current_positions_from_observation": False}
    assert suites.resolve(env) == f"envpool:{env}"
    environment, other = opened(env, **whole), registry.make(f"gym:{env}", whole)
    assert environment.spec.obs_shape == other.spec.obs_shape
    twin: Any = gymnasium.make(env, **whole)
    vector = environment.open(200)
    starts = vector.reset(list(range(200)))
    twin.reset(seed=0)
    theirs = np.stack([twin.reset()[0] for _ in range(200)])
    for i in range(starts.shape[1]):
        if np.ptp(theirs[:, i]) > 1e-6 or np.ptp(starts[:, i]) > 1e-6:
            assert stats.ks_2samp(starts[:, i], theirs[:, i]).pvalue > 1e-5, i
        else:
            np.testing.assert_allclose(starts[0, i], theirs[0, i], atol=1e-6)
    assert isinstance(environment.spec.action, Box)
    np.testing.assert_allclose(environment.spec.action.low, twin.action_space.low, rtol=1e-6)
    np.testing.assert_allclose(environment.spec.action.high, twin.action_space.high, rtol=1e-6)
    vector.close()
    # In float64, because contacts magnify differences.
    pool = envpool.make_gymnasium(env, num_envs=1, seed=[0], **whole)
    twin.reset()
    twin.unwrapped.set_state(*state_of(body, pool.reset()[0][0]))
    rng = np.random.default_rng(1)
    for t in range(12):
        action = actions(environment.spec, rng, 1)
        obs, reward, terminated, _, _ = pool.step(action)
        expected = twin.step(action[0])
        np.testing.assert_allclose(obs[0], expected[0], rtol=1e-3, atol=1e-3, err_msg=f"step {t}")
        np.testing.assert_allclose(reward[0], expected[1], atol=1e-3)
        assert terminated[0] == expected[2]
        if terminated[0]:
            break
    assert t > 2
    twin.close()


@installed
def test_time_limits_equal_those_of_gymnasium():
    import envpool

    for env in ours.EQUAL:
        assert envpool.make_spec(env).config.max_episode_steps == gymnasium.spec(env).max_episode_steps
