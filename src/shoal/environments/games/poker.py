"""Poker of two players, small enough to solve: Kuhn (1950), and Leduc (Southey et al. 2005, arXiv 1207.1411)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shoal.environments.games.tree import CHANCE, OVER, one_hot


def encode_moves(moves: str, letters: str, most: int) -> list[int]:
    """Each move as a one among the letters, and zeros for those to come, `most` in all."""
    bits = [bit for move in moves for bit in one_hot(len(letters), letters.index(move))]
    return bits + [0] * (most * len(letters) - len(bits))


class Dealt(NamedTuple):
    """A state of Kuhn poker: the cards of the players so far, and their moves, such as "pb"."""

    cards: tuple[int, ...] = ()
    moves: str = ""


@dataclass(frozen=True)
class Kuhn:
    """Kuhn poker: one of three cards each, an ante of 1, and one bet of 1."""

    action_names = ("pass", "bet")

    def initial_state(self) -> Dealt:
        return Dealt()

    def current_player(self, state: Dealt) -> int:
        if len(state.cards) < 2:
            return CHANCE
        return OVER if state.moves in ("pp", "bp", "bb", "pbp", "pbb") else len(state.moves) % 2

    def chance_outcomes(self, state: Dealt) -> list[tuple[float, Dealt]]:
        left = [card for card in range(3) if card not in state.cards]
        return [(1 / len(left), Dealt((*state.cards, card))) for card in left]

    def children(self, state: Dealt) -> dict[int, Dealt]:
        return {action: state._replace(moves=state.moves + name[0]) for action, name in enumerate(self.action_names)}

    def returns(self, state: Dealt) -> float:
        if state.moves.endswith("bp"):  # whoever passes after a bet loses the ante
            return 1.0 if len(state.moves) == 2 else -1.0
        stake = 2.0 if state.moves.endswith("bb") else 1.0
        return stake if state.cards[0] > state.cards[1] else -stake

    def information_state(self, state: Dealt) -> list[int]:
        player = len(state.moves) % 2
        return one_hot(2, player) + one_hot(3, state.cards[player]) + encode_moves(state.moves, "pb", 3)

    def to_string(self, state: Dealt) -> str:
        return f"card {'JQK'[state.cards[len(state.moves) % 2]]}, moves {state.moves or 'none'}"


class Hand(NamedTuple):
    """A state of Leduc poker: the cards of both players and the public one, as far as they are dealt; the moves of each
    round, of f, c and r."""

    cards: tuple[int, ...] = ()
    rounds: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Leduc:
    """Leduc poker: six cards of three ranks, an ante of 1; a round of betting, a public card, and another round, with two
    raises at most in each, of 2 and then of 4."""

    action_names = ("fold", "call", "raise")

    def initial_state(self) -> Hand:
        return Hand()

    def current_player(self, state: Hand) -> int:
        now = state.rounds[-1]
        over = now.endswith("f") or (len(now) > 1 and now.endswith("c"))
        if over and (len(state.rounds) == 2 or now.endswith("f")):
            return OVER
        return CHANCE if over or len(state.cards) < 2 else len(now) % 2

    def chance_outcomes(self, state: Hand) -> list[tuple[float, Hand]]:
        left = [card for card in range(6) if card not in state.cards]
        rounds = state.rounds if len(state.cards) < 2 else (*state.rounds, "")
        return [(1 / len(left), Hand((*state.cards, card), rounds)) for card in left]

    def children(self, state: Hand) -> dict[int, Hand]:
        *before, now = state.rounds
        legal = [1]
        if now.endswith("r"):
            legal.insert(0, 0)
        if now.count("r") < 2:
            legal.append(2)
        return {action: state._replace(rounds=(*before, now + self.action_names[action][0])) for action in legal}

    def returns(self, state: Hand) -> float:
        paid = self._paid(state)
        if state.rounds[-1].endswith("f"):
            lost = (len(state.rounds[-1]) - 1) % 2
            return float(-paid[0] if lost == 0 else paid[1])
        first, second, public = (card // 2 for card in state.cards)
        if first == second:
            return 0.0
        wins = first == public or (second != public and first > second)
        return float(paid[1] if wins else -paid[0])

    def _paid(self, state: Hand) -> list[int]:
        """The stakes of both players so far."""
        paid = [1, 1]
        for moves, size in zip(state.rounds, (2, 4), strict=False):
            for i, move in enumerate(moves):
                if move != "f":
                    paid[i % 2] = max(paid) + size * (move == "r")
        return paid

    def information_state(self, state: Hand) -> list[int]:
        player = len(state.rounds[-1]) % 2
        public = state.cards[2] if len(state.cards) > 2 else None
        made = [bit for moves in (*state.rounds, "")[:2] for bit in encode_moves(moves, "cr", 4)]
        return one_hot(2, player) + one_hot(6, state.cards[player]) + one_hot(6, public) + made

    def to_string(self, state: Hand) -> str:
        ranks = ["JQK"[card // 2] for card in state.cards]
        public = f", public {ranks[2]}" if len(ranks) > 2 else ""
        return f"card {ranks[len(state.rounds[-1]) % 2]}{public}, moves {' / '.join(state.rounds) or 'none'}"
