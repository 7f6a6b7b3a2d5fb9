"""Games: their tables and what can be exploited in policies, against OpenSpiel (`tests/support/record_open_spiel.py`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.kuhn import by_rules, wins
from support.messages import Said
from support.record_open_spiel import weights

from shoal.core.errors import BadInput
from shoal.environments.device import DeviceEnvironment
from shoal.environments.games.boards import Connect
from shoal.environments.games.environment import GAMES, _most_in_a_row, knowledge, of_game
from shoal.environments.games.exploitability import exploitability, payoff, payoff_matrix
from shoal.environments.games.poker import Kuhn
from shoal.environments.games.tree import CHANCE, OVER, Tables, tabulate
from shoal.environments.registry import make
from shoal.environments.suites import resolve

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "support" / "open_spiel.json").read_text())
POLICIES = 8  # of those that are recorded: each goes everywhere
VALUES = {"kuhn": -1 / 18, "tic_tac_toe": 0.0}  # of the games


@cache
def tables_of(name: str) -> Tables:
    return tabulate(Connect(3, 3, 3) if name == "connect" else GAMES[name]())


def as_recorded(name: str, information_state: np.ndarray) -> np.ndarray:
    """What OpenSpiel's tensor of the same information set is: boards have no players there, and other planes."""
    if name not in ("tic_tac_toe", "connect"):
        return information_state
    planes = information_state[2:].reshape(3, -1)
    return (planes[::-1] if name == "tic_tac_toe" else planes).reshape(-1)


def policies_of(name: str, tables: Tables) -> np.ndarray:
    """Uniform and random policies [POLICIES, I, A]."""
    rows = [as_recorded(name, information_state) for information_state in tables.information_state]
    every = [
        [weights(policy, information_state, len(tables.action_names)) for information_state in rows]
        for policy in range(POLICIES)
    ]
    legal = np.array(every) * tables.legal
    return legal / legal.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", GAMES)
def test_random_games_are_as_in_open_spiel(name: str) -> None:
    """Legal actions, payoffs, and which information sets are told apart; chance has its outcomes in the same order."""
    tables, numbers = tables_of(name), {}
    for actions, moves, payoff_ in RECORDED[name]["games"]:
        node, expected, hidden = 0, iter(moves), []
        for action in actions:
            if tables.player[node] == CHANCE:
                deck = [x for x in range(len(tables.chance[0])) if name == "liars_dice" or x not in hidden]
                hidden.append(action)
                node = tables.child[node, deck.index(action)]
                continue
            number, legal = next(expected)
            row = tables.information_set[node]
            assert numbers.setdefault(number, row) == row
            assert sum(1 << i for i in np.flatnonzero(tables.legal[row]).tolist()) == legal
            node = tables.child[node, action]
        assert tables.player[node] == OVER
        assert tables.payoff[node] == payoff_
    assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("name", GAMES)
def test_exploitability_is_that_of_open_spiel(name: str) -> None:
    tables = tables_of(name)
    policies = policies_of(name, tables)
    recorded = RECORDED[name]["exploitability"][:POLICIES]
    np.testing.assert_allclose(exploitability(tables, policies), recorded, atol=1e-6)
    both = payoff(tables, policies[:1], policies[1:2]), payoff(tables, policies[:1], policies[:1])
    assert all(abs(x) <= tables.payoff.max() for x in both)


def test_best_play_cannot_be_exploited() -> None:
    """Kuhn's equilibrium (alpha = 1/3) with its value -1/18; tic-tac-toe by minimax is a draw."""
    kuhn, board = tables_of("kuhn"), tables_of("tic_tac_toe")
    bets = {"100": {"": 1 / 3, "b": 0, "p": 1 / 3, "pb": 0}, "010": {"": 0, "b": 1 / 3, "p": 0, "pb": 2 / 3}}
    bets |= {"001": {"": 1, "b": 1, "p": 1, "pb": 1}}
    moves = {"000000": "", "010000": "b", "100000": "p", "100100": "pb"}
    told = ["".join(str(int(x)) for x in information_state[2:]) for information_state in kuhn.information_state]
    bet = np.array([bets[x[:3]][moves[x[3:]]] for x in told])
    policy = np.stack([1 - bet, bet], -1)[None]
    assert exploitability(kuhn, policy) == pytest.approx(0, abs=1e-12)
    assert payoff(kuhn, policy, policy) == pytest.approx(-1 / 18)
    value = board.payoff.copy()
    best = np.zeros(board.legal.shape)
    for first, end in reversed(board.levels):
        for node in range(first, end):
            if (player := board.player[node]) != OVER:
                row = board.information_set[node]
                after = np.where(board.legal[row], value[board.child[node]] * (1 - 2 * player), -np.inf)
                best[row, after.argmax()] = 1
                value[node] = after.max() * (1 - 2 * player)
    assert value[0] == 0
    assert exploitability(board, best[None]) == 0


def test_payoffs_are_those_of_the_rules_of_kuhn_poker() -> None:
    """Who always bets wins the ante of who always passes, as either player; random policies as their games are walked."""
    tables = tables_of("kuhn")
    bet = np.random.default_rng(0).random((6, len(tables.legal)))
    bet[:2] = [[0], [1]]
    policies = np.stack([1 - bet, bet], -1)
    known = [by_rules(tables, policy) for policy in policies]
    expected = np.array([[wins(first, second) for second in known] for first in known])
    assert expected[:2, :2].tolist() == [[0, -1], [1, 0]]
    found = [payoff(tables, np.broadcast_to(policy, policies.shape), policies) for policy in policies]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(payoff_matrix(tables, policies), (expected - expected.T) / 2, atol=1e-12)


def test_steps_follow_the_tables() -> None:
    """Random games of Leduc in JAX: observations, chance with its frequencies, and payoffs at the end."""
    environment = make("game:leduc", {})
    assert isinstance(environment, DeviceEnvironment) and environment.game is not None
    tables, rng = environment.game, np.random.default_rng(0)
    known = jax.tree.map(np.asarray, knowledge(tables))
    reset, step = jax.jit(jax.vmap(environment.reset)), jax.jit(jax.vmap(environment.step))
    obs, node = reset(jax.random.split(jax.random.key(0), 3000))
    first = np.bincount(obs["information_state"][:, 2:8].argmax(-1), minlength=6)
    assert np.abs(first - 500).max() < 80
    for t in range(4):
        row = tables.information_set[np.asarray(node)]
        for name, x in obs.items():
            np.testing.assert_array_equal(x, known[name][row])
        action = (rng.random(tables.legal[row].shape) * tables.legal[row]).argmax(-1).astype(np.int32)
        after = tables.child[np.asarray(node), action]
        obs, node, reward, terminated, _ = step(jax.random.split(jax.random.key(t + 1), 3000), node, action)
        chance = tables.player[after] == CHANCE
        np.testing.assert_array_equal(np.asarray(node)[~chance], after[~chance])
        np.testing.assert_array_equal(terminated, tables.player[np.asarray(node)] == OVER)
        np.testing.assert_array_equal(reward, tables.payoff[np.asarray(node)])
        going = np.flatnonzero(~np.asarray(terminated))
        node, obs = jax.tree.map(
            lambda x, going=going: np.resize(np.asarray(x)[going], (3000, *x.shape[1:])), (node, obs)
        )


class Coins:
    """A game of one move, after which chance tosses two coins: player 0 wins what they show in binary."""

    action_names = ("toss",)

    def initial_state(self) -> tuple[int, ...]:
        return ()

    def current_player(self, state: tuple[int, ...]) -> int:
        return (0, CHANCE, CHANCE, OVER)[len(state)]

    def chance_outcomes(self, state: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
        return [(0.75, (*state, 0)), (0.25, (*state, 1))]

    def children(self, state: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        return {0: (0,)}

    def returns(self, state: tuple[int, ...]) -> float:
        return float(2 * state[1] + state[2])

    def information_state(self, state: tuple[int, ...]) -> list[int]:
        return [1]

    def to_string(self, state: tuple[int, ...]) -> str:
        return "a coin"


def test_chance_may_move_twice_after_a_move() -> None:
    environment = of_game(Coins())
    _, node = jax.jit(environment.reset)(jax.random.key(0))
    step = jax.jit(jax.vmap(environment.step, (0, None, None)))
    _, _, payoffs, terminated, _ = step(jax.random.split(jax.random.key(0), 4000), node, np.int32(0))
    assert np.asarray(terminated).all()
    found = np.bincount(np.asarray(payoffs, int), minlength=4) / 4000
    np.testing.assert_allclose(found, [9 / 16, 3 / 16, 3 / 16, 1 / 16], atol=0.03)


@pytest.mark.parametrize(
    ("name", "at_start", "after_a_move"), [("kuhn", 2, 0), ("leduc", 2, 1), ("liars_dice", 2, 0), ("connect", 0, 0)]
)
def test_chance_moves_as_often_as_the_rules_say(name: str, at_start: int, after_a_move: int) -> None:
    """A card or a die for each player at the start; only Leduc poker has a public card, after the first round."""
    assert _most_in_a_row(tables_of(name)) == (at_start, after_a_move)
    assert _most_in_a_row(tabulate(Coins())) == (0, 2)


class Forgetful(Kuhn):
    """A game that hides from players how many moves there were."""

    def information_state(self, state: Any) -> list[int]:
        return [1]


def failing(*_: Any) -> Any:
    raise ZeroDivisionError("of my own")


LONGER: dict[str, Any] = {
    "current_player": lambda game, state: (0, 0, CHANCE, OVER)[len(state)],
    "children": lambda game, state: {0: (*state, 0)},
}
WRONG: dict[str, dict[str, Any]] = {
    "weights": {"chance_outcomes": lambda game, state: [(1, (*state, 0)), (1, (*state, 1)), (2, (*state, 2))]},
    "negative": {"chance_outcomes": lambda game, state: [(1.5, (*state, 0)), (-0.5, (*state, 1))]},
    "NaN": {"chance_outcomes": lambda game, state: [(float("nan"), (*state, 0)), (1, (*state, 1))]},
    "no outcome": {"chance_outcomes": lambda game, state: []},
    "too many actions": {"children": lambda game, state: {0: (0,), 1: (1,)}},
    "counted from 1": {"action_names": ("toss", "none"), "children": lambda game, state: {1: (0,), 2: (1,)}},
    "negative action": {"children": lambda game, state: {-1: (0,)}},
    "by name": {"children": lambda game, state: {"toss": (0,)}},
    "no action": {"children": lambda game, state: {}},
    "another player": {"current_player": lambda game, state: 2},
    "no player": {"current_player": lambda game, state: None},
    "no number": {"returns": lambda game, state: float("nan")},
    "too large": {"returns": lambda game, state: 1e39},
    "no move": {
        "current_player": lambda game, state: (CHANCE, CHANCE, OVER)[len(state)],
        "returns": lambda game, state: 0,
    },
    "sees NaN": {"information_state": lambda game, state: [float("nan")]},
    "sees more later": LONGER | {"information_state": lambda game, state: [1, *state]},
    "forgets": LONGER,
    "payoff fails": {"returns": failing},
    "names fail": {"action_names": property(failing)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_game_of_ones_own(wrong: str, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the environment, and the state or the place in the code."""
    for name, value in WRONG[wrong].items():
        monkeypatch.setattr(Coins, name, value)
    with pytest.raises(BadInput) as error:
        make(f"{__name__}:Coins", {})
    said(error.value)


def test_tables_of_ones_own_are_checked(said: Said) -> None:
    kuhn = tables_of("kuhn")
    for changes in ({"chance": 2 * kuhn.chance}, {"payoff": np.nan * kuhn.payoff}, {"player": kuhn.player + 1}):
        with pytest.raises(BadInput) as error:
            of_game(kuhn._replace(game=None, states=(), **changes))
        said(error.value)


def test_games_of_ones_own(said: Said) -> None:
    """A class, or tables; what players see must tell apart what they can do."""
    assert make(f"{Kuhn.__module__}:Kuhn", {}).spec == make("game:kuhn", {}).spec
    assert of_game(tables_of("kuhn")).spec == make("game:kuhn", {}).spec
    assert resolve("leduc") == "game:leduc"
    with pytest.raises(BadInput) as error:
        tabulate(Forgetful())
    said(error.value)
    for name, options in {"liars_dice": {"sides": 9}, "kuhn": {"sides": 4}, "connect": {"in_a_row": 5}}.items():
        with pytest.raises(BadInput) as error:
            make(f"game:{name}", options)
        said(error.value)
