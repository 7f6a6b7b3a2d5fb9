"""Jumanji's games as environments of Shoal: what is seen, how episodes end, and that its mazes can be solved."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.messages import Said, shown
from support.tiny import same

from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.environments import registry, suites
from shoal.environments.levels import Span, at_levels

MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # up, right, down, left


def open_game(name: str, **options: Any) -> Any:
    pytest.importorskip("jumanji")
    return registry.make(suites.resolve(f"jumanji:{name}"), options)


def way(picture: np.ndarray) -> list[int]:
    """The shortest way from the agent to the target, found by breadth first in the planes of a maze."""
    walls, agent, target = (picture[..., i] > 0 for i in range(3))
    start, goal = (tuple(map(int, np.argwhere(plane)[0])) for plane in (agent, target))
    ways: dict[Any, list[int]] = {start: []}
    queue = deque([start])
    while queue:
        place = queue.popleft()
        for action, (down, right) in enumerate(MOVES):
            after = place[0] + down, place[1] + right
            inside = 0 <= after[0] < len(walls) and 0 <= after[1] < walls.shape[1]
            if inside and not walls[after] and after not in ways:
                ways[after] = [*ways[place], action]
                queue.append(after)
    return ways[goal]


def legal(picture: np.ndarray) -> list[int]:
    """The moves of a maze that no wall is in the way of."""
    walls, (row, column) = picture[..., 0] > 0, np.argwhere(picture[..., 1])[0]
    after = [(row + down, column + right) for down, right in MOVES]
    return [i for i, (r, c) in enumerate(after) if 0 <= r < len(walls) and 0 <= c < walls.shape[1] and not walls[r, c]]


@pytest.mark.slow
def test_mazes() -> None:
    environment = open_game("Maze-v0", num_rows=6, num_cols=7)
    shapes = {"picture": (6, 7, 3), "action_mask": (4,)}
    assert environment.spec == Spec(shapes, "float32", Discrete(4)) and not environment.fresh_resets
    within = at_levels(environment, Span(20, 24))
    first, states = jax.jit(jax.vmap(within.reset))(jax.random.split(jax.random.key(3), 40))
    assert len({picture.tobytes() for picture in np.asarray(first["picture"])}) == 4
    step = jax.jit(environment.step)
    for row in range(8):
        state, obs = jax.tree.map(lambda x, row=row: x[row], (states, first))
        assert np.asarray(obs["picture"])[..., 1:].sum((0, 1)).tolist() == [1, 1], "one agent, one target"
        actions = way(np.asarray(obs["picture"]))
        for turn, action in enumerate(actions, 1):
            assert np.flatnonzero(obs["action_mask"]).tolist() == legal(np.asarray(obs["picture"]))
            obs, state, reward, terminated, truncated = step(jax.random.key(0), state, jnp.int32(action))
            last = turn == len(actions)
            assert (float(reward), bool(terminated), bool(truncated)) == (float(last), last, False)
        assert (obs["picture"][..., 1] == obs["picture"][..., 2]).all(), "the agent is at the target"
    elsewhere = next(
        a for a in range(4) if a not in way(np.asarray(first["picture"])[0])
    )  # which never leads to the target
    state = jax.tree.map(lambda x: x[0], states)
    ends = []
    for _ in range(42):  # as many steps as cells
        _, state, _, terminated, truncated = step(jax.random.key(0), state, jnp.int32(elsewhere))
        ends.append((bool(terminated), bool(truncated)))
    assert ends == [(False, False)] * 41 + [(False, True)]


@pytest.mark.slow
def test_snake() -> None:
    """It goes to the side with more room, and an episode that has reached its time limit is truncated."""
    environment = open_game("Snake-v1", time_limit=3)
    reset, step, ends = jax.jit(environment.reset), jax.jit(environment.step), []
    obs, state = reset(jax.random.key(5))
    assert not same(obs, reset(jax.random.key(6))[0])
    head = np.argwhere(np.asarray(obs["picture"])[..., 1])[0]
    for _ in range(3):
        obs, state, _, terminated, truncated = step(jax.random.key(0), state, jnp.int32(1 if head[1] < 6 else 3))
        ends.append((bool(terminated), bool(truncated)))
    assert ends == [(False, False), (False, False), (False, True)]
    assert environment.spec.obs_shape == {"picture": (12, 12, 5), "action_mask": (4,)}
    assert obs["picture"].shape == (12, 12, 5) and obs["picture"].dtype == jnp.float32


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("jumanji:Maze-v1", {}),
        ("jumanji:TSP-v1", {}),
        ("jumanji:Maze-v0", {"rows": 3}),
        ("jumanji:Snake-v1", {"time_limit": 0}),
        pytest.param("jumanji:Maze-v0", {"num_rows": "many"}, marks=pytest.mark.slow),
    ],
    ids=shown,
)
def test_what_is_refused(env: str, options: dict[str, Any], said: Said) -> None:
    pytest.importorskip("jumanji")
    with pytest.raises(BadInput) as error:
        registry.make(suites.resolve(env), options)
    said(error.value)


def test_a_bare_name_finds_it() -> None:
    pytest.importorskip("jumanji")
    assert suites.resolve("Maze-v0") == "jumanji:Maze-v0"
    assert suites.names("jumanji") == ["Maze-v0", "Snake-v1"]
