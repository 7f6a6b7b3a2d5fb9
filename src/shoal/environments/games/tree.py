"""A game as a tree, and the tables that are made of it once by walking it.

The walk goes move by move: level 0 is the start, and level k + 1 is what follows level k. Equal states of a level are one
node, so that a game of perfect information needs no more nodes than it has positions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from shoal.core.errors import BadField

CHANCE, OVER = -1, -2  # in place of the player to move
LARGEST = 1_000_000  # nodes
PLAYERS = "`current_player` must be 0, 1, -1 where chance moves, or -2 where the game is over"
State = Hashable


@runtime_checkable
class GameTree(Protocol):
    """A finite two-player zero-sum game: of the players 0 and 1, one wins what the other loses.

    States may be any values that can be hashed. Players must have perfect recall, or know all.
    """

    @property
    def action_names(self) -> Sequence[str]:
        """Names of the actions, in order of their numbers."""

    def initial_state(self) -> State:
        """Return the state that every game begins in."""

    def current_player(self, state: Any) -> int:
        """Return the player to move: 0, 1, CHANCE or OVER."""

    def chance_outcomes(self, state: Any) -> Sequence[tuple[float, State]]:
        """Return (probability, state) for each outcome at a chance node."""

    def children(self, state: Any) -> Mapping[int, State]:
        """Return the state after each legal action."""

    def returns(self, state: Any) -> float:
        """Return the payoff of player 0 at a terminal state."""

    def information_state(self, state: Any) -> Sequence[float]:
        """Return what the player to move knows, float [F]. States it cannot tell apart give equal values."""

    def to_string(self, state: Any) -> str:
        """Return the information state as text."""


def one_hot(size: int, place: int | None) -> list[int]:
    """Zeros, and a one at a place."""
    return [int(i == place) for i in range(size)]


class Tables(NamedTuple):
    """A game of S nodes, I information sets and A actions; chance has C outcomes at most, and K = max(A, C).

    Nodes stand level by level, information sets in the order of their first nodes.
    """

    player: np.ndarray  # int8 [S]: 0, 1, CHANCE or OVER
    child: np.ndarray  # int32 [S, K], the node after each action or outcome; 0 where there is none
    chance: np.ndarray  # float64 [S, K], the probabilities of outcomes; 0 where a player moves
    payoff: np.ndarray  # float64 [S], of player 0 where the game is over; else 0
    information_set: np.ndarray  # int32 [S], its row; I where no player moves
    levels: list[tuple[int, int]]  # first <= node < end of each
    information_state: np.ndarray  # float32 [I, F]
    legal: np.ndarray  # bool [I, A]
    action_names: tuple[str, ...]
    game: GameTree | None = None  # that the tables are made of; its states, by node:
    states: Sequence[State] = ()

    @property
    def mover(self) -> np.ndarray:
        """The player of each information set, int8 [I]."""
        mover = np.zeros(len(self.legal), np.int8)
        moved = self.player >= 0
        mover[self.information_set[moved]] = self.player[moved]
        return mover


def tabulate(game: GameTree, env: str = "the game") -> Tables:
    """Walk a game. Raises BadInput, which names it as `env`, where it is too large, or its players,
    moves or information states are wrong."""
    states, levels, sets = [game.initial_state()], [(0, 1)], _InformationSets(env)
    actions, nodes = range(len(game.action_names)), list[_Node]()
    while levels[-1][0] < levels[-1][1]:
        first, end = levels[-1]
        numbers: dict[State, int] = {}  # of the nodes of the next level
        for state in states[first:end]:
            player = game.current_player(state)
            if player not in (0, 1, CHANCE, OVER):
                raise BadField("env", f"{env} has player {player!r} at the state {state!r}", PLAYERS)
            if player == OVER:
                node = _Node(player, payoff=float(game.returns(state)))
            elif player == CHANCE:
                outcomes = game.chance_outcomes(state)
                after = {i: numbers.setdefault(x, end + len(numbers)) for i, (_, x) in enumerate(outcomes)}
                node = _Node(player, after, [probability for probability, _ in outcomes])
            else:
                moves = game.children(state)
                if not moves:
                    raise BadField(
                        "env", f"{env} has no legal action of player {player} at the state {state!r}", PLAYERS
                    )
                if wrong := [action for action in moves if action not in actions]:
                    problem = f"{env} has the action {wrong[0]!r} at the state {state!r}"
                    raise BadField("env", problem, f"they are counted from 0, and `action_names` has {len(actions)}")
                after = {action: numbers.setdefault(x, end + len(numbers)) for action, x in moves.items()}
                row = sets.find(player, game.information_state(state), tuple(sorted(moves)), len(levels))
                node = _Node(player, after, information_set=row)
            nodes.append(node)
        states += numbers
        levels.append((end, len(states)))
        if len(states) > LARGEST:
            raise BadField("env_options", f"{env} has more than {LARGEST:,} nodes", "choose a smaller one")
    width = max(len(actions), *(1 + max(node.after, default=0) for node in nodes))
    information_set = np.array([node.information_set for node in nodes], np.int32)
    return Tables(
        np.array([node.player for node in nodes], np.int8),
        np.array([[node.after.get(i, 0) for i in range(width)] for node in nodes], np.int32),
        np.array([[*node.chance, *[0.0] * (width - len(node.chance))] for node in nodes]),
        np.array([node.payoff for node in nodes]),
        np.where(information_set < 0, len(sets.legal), information_set),
        levels[:-1],
        np.array(sets.information_states, np.float32),
        np.array([[action in legal for action in actions] for legal in sets.legal]),
        tuple(game.action_names),
        game,
        states,
    )


def check(tables: Tables, env: str) -> None:
    """Raise BadInput, which names the game as `env`, where no player moves, or numbers of its tables are wrong."""
    if not len(tables.legal):
        raise BadField("env", f"{env} has no move of a player: there is nothing to learn")
    player, chance, payoff = tables.player, tables.chance, tables.payoff
    # Steps find the last outcome where probabilities sum to 1 - 1e-6 at least.
    improbable = ~((chance >= 0).all(-1) & (abs(chance.sum(-1) - 1) < 5e-7))
    for what, values, wrong, advice in (
        ("player", player, ~np.isin(player, (0, 1, CHANCE, OVER)), PLAYERS),
        ("the probabilities", chance, (player == CHANCE) & improbable, "they must be 0 or more, and sum to 1"),
        ("the payoff", payoff, ~(abs(payoff) <= np.finfo(np.float32).max), "it must be finite, in float32"),
    ):
        if wrong.any():
            node = int(wrong.argmax())
            place = f"the state {tables.states[node]!r}" if tables.states else f"node {node}"
            raise BadField("env", f"{env} has {what} {values[node].tolist()} at {place}", advice)


class _Node(NamedTuple):
    """A node as the walk meets it; `after` has the numbers of its children, by action or outcome."""

    player: int
    after: Mapping[int, int] = MappingProxyType({})
    chance: Sequence[float] = ()
    payoff: float = 0.0
    information_set: int = -1


class _InformationSets:
    """The information sets that a walk has met: the information state, the legal actions, and the level of each."""

    def __init__(self, env: str) -> None:
        self._env = env
        self.information_states: list[tuple[float, ...]] = []
        self.legal: list[tuple[int, ...]] = []
        self._levels: list[int] = []
        self._rows: dict[tuple[int, tuple[float, ...]], int] = {}

    def find(self, player: int, information_state: Sequence[float], legal: tuple[int, ...], level: int) -> int:
        """The number of the set of a player with this information state. Raises BadInput."""
        key = player, tuple(map(float, information_state))
        row = self._rows.setdefault(key, len(self.information_states))
        if row == len(self.information_states):
            self.information_states.append(key[1])
            self.legal.append(legal)
            self._levels.append(level)
            if len(key[1]) != (first := len(self.information_states[0])) or not np.isfinite(key[1]).all():
                wanted = f"`information_state` must give finite numbers, as many as at the first move: {first}"
                raise BadField("env", f"{self._env}: player {player} has the information state {list(key[1])}", wanted)
        if self.legal[row] != legal or self._levels[row] != level:
            problem = f"{self._env}: player {player} has the information state {list(key[1])}"
            differ = "where its legal moves, or how many there were before, differ"
            raise BadField("env", f"{problem} {differ}", "let `information_state` tell such states apart")
        return row
