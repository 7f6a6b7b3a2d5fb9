"""Atari: the console's vector against gymnasium's wrappers, and what only helps to learn."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.messages import shown
from support.tiny import echo

from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.environments import registry, suites
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.host import HostEnvironment
from shoal.environments.objective import in_infos
from shoal.rl.frames import stacking

pytest.importorskip("ale_py")
pytest.importorskip("cv2")
CERTAIN = {"noop_max": 0, "repeat_action_probability": 0.0}  # no random numbers, of which each has its own


def opened(game: str, **options: Any) -> HostEnvironment:
    environment = with_error_boundary(registry.make(suites.resolve(f"gym:ALE/{game}-v5"), options), game)
    assert isinstance(environment, HostEnvironment)
    return environment


def test_an_agent_that_stacks_frames_sees_what_the_option_shows():
    """Over the ends of episodes; what it gets and stores are single frames."""
    whole, single = (opened("Pong", **CERTAIN, max_episode_steps=5, frame_stack=k).open(2) for k in (3, 1))
    agent = stacking(echo(), Spec((1, 84, 84), "uint8", Discrete(6)), 3)
    expected, obs, carry = whole.reset([1, 1]), single.reset([1, 1]), agent.carry((2,))
    for t in range(12):
        seen, carry = agent.act_deterministic((), obs, carry)
        np.testing.assert_array_equal(seen, expected, err_msg=f"step {t}")
        action = np.full(2, t % 6, np.int32)
        step, _ = single.step(action)
        expected, obs = whole.step(action)[0].obs, step.obs
        carry = tree.where(jnp.asarray(step.truncated), agent.carry((2,)), carry)
    whole.close(), single.close()


@pytest.mark.parametrize("vectorization", others_slow([{}, {"vectorization": "sync"}, {"vectorization": "async"}], {}))
def test_atari(vectorization):
    """Grey screens, one for every fourth frame; the limit counts what the agent sees."""
    environment = opened("Pong", max_episode_steps=3, frame_stack=2, **vectorization)
    assert environment.spec == Spec((2, 84, 84), "uint8", Discrete(6))
    assert (environment.at_levels is None) == (not vectorization), "its levels are gymnasium's seeds"
    vector = environment.open(2)
    try:
        first = vector.reset([1, 1])
        np.testing.assert_array_equal(first[0], first[1])
        frames = []
        for t in range(3):
            step, info_of = vector.step(np.zeros(2, np.int32))
            np.testing.assert_array_equal(step.truncated, [t == 2] * 2)
            np.testing.assert_array_equal(step.final_obs[:, 0], (first if not frames else frames[-1].final_obs)[:, 1])
            frames.append(step)
        assert step.final_obs.dtype == np.uint8 and step.final_obs.max() > 100
        frame = in_infos("episode_frame_number", info_of, step.truncated)
        assert ((frame > 12) & (frame <= 12 + 30)).all(), "after up to 30 frames without an action"
        assert (step.obs[:, 0] == step.obs[:, 1]).all(), "of new episodes, whose first frame fills the stack"
    finally:
        vector.close()


GAMES = [("Breakout", 4, 250, 84), ("Breakout", 1, 900, 84), ("SpaceInvaders", 4, 600, 42)]


@pytest.mark.parametrize(("game", "frameskip", "steps", "size"), others_slow(GAMES, GAMES[0]))
def test_the_vector_equals_the_wrappers_of_gymnasium(game, frameskip, steps, size):
    """Bit for bit, over the ends of games: observations, rewards, ends, and what the info tells of each game."""
    options = CERTAIN | {"frame_stack": 3, "frameskip": frameskip, "screen_size": size}
    ours, theirs = (opened(game, **options, **more).open(2) for more in ({}, {"vectorization": "sync"}))
    np.testing.assert_array_equal(ours.reset([1, 2]), theirs.reset([1, 2]))
    rng, ended, every = np.random.default_rng(0), 0, np.ones(2, bool)
    for t in range(steps):
        action = rng.integers(4, size=2).astype(np.int32)
        (step, info_of), (expected, its_info_of) = ours.step(action), theirs.step(action)
        for name, x in step._asdict().items():
            np.testing.assert_array_equal(x, getattr(expected, name), err_msg=f"{name} at step {t}")
        frames = (in_infos("episode_frame_number", info, every) for info in (info_of, its_info_of))
        np.testing.assert_array_equal(*frames)
        ended += int(step.terminated.sum())
    assert ended > 0
    ours.close()
    theirs.close()


def test_seeds_decide():
    """What copies see depends on their seeds alone, however often they are asked."""
    vector = opened("Breakout").open(3)
    action = np.ones(3, np.int32)

    def seen(seeds: list[int]) -> np.ndarray:
        return np.stack([vector.reset(seeds), *(vector.step(action)[0].obs for _ in range(30))])

    first, again = seen([5, 5, 6]), seen([6, 5, 5])
    np.testing.assert_array_equal(first[:, 0], first[:, 1])
    np.testing.assert_array_equal(first[:, [2, 0, 1]], again)
    assert (first[:, 0] != first[:, 2]).any()
    vector.close()


def test_a_lost_life_ends_an_episode_and_the_game_goes_on():
    """In training; fitness is measured in whole games."""
    environment = opened("Breakout", **CERTAIN, episodic_life=True, frame_stack=2)
    assert environment.measured is not None
    lives: dict[str, list[float]] = {}
    for name, played in (("training", environment), ("measured", environment.measured)):
        vector, rng = played.open(1), np.random.default_rng(0)
        vector.reset([1])
        lives[name] = []
        for _ in range(300):
            step, info_of = vector.step(rng.integers(4, size=1).astype(np.int32))
            lives[name] += in_infos("lives", info_of, step.terminated)[step.terminated].tolist()
        vector.close()
    assert lives["training"][:6] == [4, 3, 2, 1, 0, 4] and set(lives["measured"]) == {0}


def test_clipped_rewards_are_for_training_alone():
    """A row of SpaceInvaders is worth 5 points or more."""
    environment = opened("SpaceInvaders", **CERTAIN, reward_clipping=True)
    assert environment.measured is not None
    rewards = []
    for played in (environment, environment.measured):
        vector, rng = played.open(1), np.random.default_rng(0)
        vector.reset([1])
        rewards.append(
            np.array([vector.step(rng.integers(6, size=1).astype(np.int32))[0].reward[0] for _ in range(200)])
        )
        vector.close()
    np.testing.assert_array_equal(rewards[0], np.sign(rewards[1]))
    assert rewards[1].max() >= 5


def test_atari_as_the_console_gives_it():
    assert opened("Pong", obs_type="ram").spec.obs_shape == (128,)
    assert opened("Pong", full_action_space=True).spec.action == Discrete(18)
    names = suites.names("gym")
    assert "ALE/Pong-v5" in names and "PongNoFrameskip-v4" not in names


@pytest.mark.parametrize(
    "options",
    [
        {"frameskip": 0},
        {"frame_stack": "many"},
        {"repeat_action_probability": 2},
        {"episodic_life": 1},
        {"noop_mx": 3},
        {"mode": 3, "frameskip": 0},
        {"mode": 3, "episodic_life": True},
    ],
    ids=shown,
)
def test_bad_options(options, said):
    with pytest.raises(BadInput) as error:
        opened("Pong", **options)
    said(error.value)
