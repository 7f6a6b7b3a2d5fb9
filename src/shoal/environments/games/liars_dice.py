"""Liar's dice of two players with one die each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shoal.core.errors import BadField
from shoal.environments.games.tree import CHANCE, OVER, one_hot


class Rolled(NamedTuple):
    """The dice of the players, as far as they are rolled, and the actions since."""

    dice: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()


@dataclass(frozen=True)
class LiarsDice:
    """Liar's dice. A bid says how many of the two dice show a face at least, and is above the one before it; the highest
    face counts as any. Whoever is called a liar wins if the last bid was true."""

    sides: int = 4
    """of a die; with 6 of them the game has 294,883 nodes"""

    def __post_init__(self) -> None:
        if not 2 <= self.sides <= 6:
            raise BadField("sides", "must be from 2 to 6", value=self.sides)

    @property
    def action_names(self) -> tuple[str, ...]:
        bids = (f"{count} x {face + 1}" for count in (1, 2) for face in range(self.sides))
        return (*bids, "liar")

    def initial_state(self) -> Rolled:
        return Rolled()

    def current_player(self, state: Rolled) -> int:
        if len(state.dice) < 2:
            return CHANCE
        return OVER if 2 * self.sides in state.actions else len(state.actions) % 2

    def chance_outcomes(self, state: Rolled) -> list[tuple[float, Rolled]]:
        return [(1 / self.sides, Rolled((*state.dice, face))) for face in range(self.sides)]

    def children(self, state: Rolled) -> dict[int, Rolled]:
        lowest = state.actions[-1] + 1 if state.actions else 0
        highest = 2 * self.sides - (not state.actions)  # nobody is a liar before a bid
        return {action: Rolled(state.dice, (*state.actions, action)) for action in range(lowest, highest + 1)}

    def returns(self, state: Rolled) -> float:
        *_, bid, _ = state.actions
        count, face = divmod(bid, self.sides)
        true = sum(die in (face, self.sides - 1) for die in state.dice) > count
        bidder = len(state.actions) % 2
        return 1.0 if true == (bidder == 0) else -1.0

    def information_state(self, state: Rolled) -> list[int]:
        player = len(state.actions) % 2
        made = [int(action in state.actions) for action in range(2 * self.sides + 1)]
        return one_hot(2, player) + one_hot(self.sides, state.dice[player]) + made

    def to_string(self, state: Rolled) -> str:
        bids = ", ".join(self.action_names[action] for action in state.actions)
        return f"die {state.dice[len(state.actions) % 2] + 1}, bids {bids or 'none'}"
