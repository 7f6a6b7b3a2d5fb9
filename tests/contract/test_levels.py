"""Levels of environments: numbers that cannot meet, and episodes that begin at the level they are said to have."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from support.messages import Said, shown
from support.numbered import on_host
from support.tiny import walk

from shoal.core.errors import BadInput
from shoal.environments import registry
from shoal.environments.gymnasium import gymnasium_environment
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import LARGEST, Levels, Span, at_levels, check_levels, draw, level_key

SPANS = Levels(train=(0, 3), validation=5, test=5).spans()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"train": 200, "validation": 50, "test": 60}, [(0, 200), (200, 250), (250, 310)]),
        ({"train": [0, 200]}, [(0, 200), (200, 100_200), (100_200, 200_200)]),
        ({"train": 16, "validation": [100, 200], "test": 10}, [(200, 216), (100, 200), (216, 226)]),
        ({"train": [50, 60], "validation": 5.0, "test": [0, 50]}, [(50, 60), (60, 65), (0, 50)]),
        ({"train": [2**31 - 3, 2**31], "validation": [0, 1], "test": [1, 2]}, [(2**31 - 3, 2**31), (0, 1), (1, 2)]),
    ],
)
def test_numbers_lie_behind_pairs_and_one_another(given: dict[str, Any], found: list[tuple[int, int]]) -> None:
    spans = Levels(**given).spans()
    assert list(spans) == ["train", "validation", "test"] and [tuple(span) for span in spans.values()] == found
    assert Levels(**spans).spans() == spans


@pytest.mark.parametrize(
    "given",
    [
        {"train": [0, 10], "test": [9, 20]},
        {"validation": [3, 4], "test": [3, 4]},
        *({"train": x} for x in ([4, 4], [5, 4], [-1, 4], 0, -3, "many", True)),
        *({"train": x} for x in ([1], [1, 2, 3], [0, 1.5], None, float("inf"))),
        {"train": [0, 2**31 + 1]},
    ],
    ids=shown,
)
def test_what_are_no_levels(given: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as error:
        Levels(**given).spans()
    said(error.value)


def test_levels_on_the_device() -> None:
    """Every episode begins as its level does, and each level comes up; sets never mix."""
    environment, seen = walk(), {}
    for name, span in SPANS.items():
        within = at_levels(environment, span)

        def begin(key: jax.Array, span: Span = span, within: Any = within) -> tuple[jax.Array, ...]:
            level = draw(key, span)
            return level, within.reset(key)[0], environment.reset(level_key(level))[0]

        levels, obs, expected = jax.jit(jax.vmap(begin))(jax.random.split(jax.random.key(7), 64))
        assert set(levels.tolist()) == set(range(*span))
        np.testing.assert_array_equal(obs, expected)
        seen[name] = {start.tobytes() for start in np.asarray(obs)}
        assert len(seen[name]) == span.end - span.first
    assert len(set().union(*seen.values())) == sum(map(len, seen.values()))


def test_levels_are_drawn_evenly_up_to_the_last() -> None:
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = jax.jit(jax.vmap(draw, (0, None)))  # the numbers are traced, as in a compiled evaluation
    counts = np.bincount(np.asarray(drawn(keys, Span(np.uint32(0), np.uint32(4)))), minlength=4)
    assert np.square(counts - 1000).sum() / 1000 < 16.3  # chi squared with 3 degrees of freedom: 0.1%
    last = drawn(keys, Span(np.uint32(LARGEST - 2), np.uint32(LARGEST)))
    assert set(np.asarray(last).tolist()) == {2**31 - 2, 2**31 - 1}


def test_levels_of_gymnasium_are_its_seeds() -> None:
    """Also after automatic resets, and where an episode is given up; drawn by the seeds of the copies."""
    known = {level: gymnasium.make("CartPole-v1").reset(seed=level)[0].tobytes() for level in range(SPANS["test"].end)}
    environment = gymnasium_environment("CartPole-v1", {"max_episode_steps": 2})
    seen: dict[str, set[bytes]] = {}
    for name, span in SPANS.items():
        vector = at_levels(environment, span).open(3)
        first = vector.reset([5, 6, 7])
        starts = [*first]
        for _ in range(30):
            step, _ = vector.step(np.zeros(3, np.int32))
            starts += [*step.obs[step.terminated | step.truncated]]
        starts += [*vector.reset_copies(np.array([0, 1]))]
        np.testing.assert_array_equal(vector.reset([5, 6, 7]), first)
        vector.close()
        seen[name] = {start.tobytes() for start in starts}
        assert seen[name] == {known[level] for level in range(*span)}
    assert len(set().union(*seen.values())) == sum(map(len, seen.values()))


@pytest.mark.parametrize(
    ("env", "has"),
    [
        ("gymnax:CartPole-v1", True),
        ("gym:CartPole-v1", True),
        ("support.probes:recall", True),
        ("support.probes:delayed_reward", False),
        ("gym:CliffWalking-v1", False),
    ],
)
def test_environments_that_always_begin_alike_have_none(env: str, has: bool, said: Said) -> None:
    environment = registry.make(env, {})
    if has:
        return check_levels(environment, env, SPANS)
    with pytest.raises(BadInput) as error:
        check_levels(environment, env, SPANS)
    said(error.value)


def test_a_host_environment_may_have_none(said: Said) -> None:
    environment = registry.make("gym:CartPole-v1", {})._replace(at_levels=None)
    with pytest.raises(BadInput) as error:
        check_levels(environment, "mine:env", SPANS)
    said(error.value)


def test_an_environment_is_asked_for_the_levels_of_the_experiment_alone() -> None:
    """Others may be ones that it does not have."""
    environment, asked = on_host(), []
    assert environment.at_levels is not None

    def within(first: int, end: int) -> HostEnvironment:
        asked.append((first, end))
        return environment.at_levels(first, end)

    check_levels(environment._replace(at_levels=within), "mine:env", SPANS)
    assert asked == [tuple(span) for span in SPANS.values()]
