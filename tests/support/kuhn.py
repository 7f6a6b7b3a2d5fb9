"""Kuhn poker by its rules, written out: what policies win from one another, without the tables of Shoal."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from shoal.environments.games.tree import Tables

Policy = dict[
    tuple[int, str], float
]  # the probability of a bet, by the player's card and the moves so far, such as "pb"
MOVES = {(0, 0, 0, 0): "", (1, 0, 0, 0): "p", (0, 1, 0, 0): "b", (1, 0, 0, 1): "pb"}  # by how they are seen


def by_rules(tables: Tables, policy: np.ndarray) -> Policy:
    """A policy [I, A] by what the players know: after their number they see their card, and the moves."""
    known = [
        (int(information_state[2:5].argmax()), MOVES[tuple(map(int, information_state[5:9]))])
        for information_state in tables.information_state
    ]
    return dict(zip(known, policy[:, 1].tolist(), strict=True))


def wins(first: Policy, second: Policy) -> float:
    """The payoff of the first policy, as player 0, against the second one as player 1: the mean of all deals."""
    deals = list(permutations(range(3), 2))
    return sum(_wins(first, second, deal, "") for deal in deals) / len(deals)


def _wins(first: Policy, second: Policy, deal: tuple[int, ...], moves: str) -> float:
    stronger = 1 if deal[0] > deal[1] else -1
    ends = {"pp": stronger, "bp": 1, "bb": 2 * stronger, "pbp": -1, "pbb": 2 * stronger}
    if moves in ends:
        return ends[moves]
    player = len(moves) % 2
    bet = (first, second)[player][deal[player], moves]
    after = {move: _wins(first, second, deal, moves + move) for move in "pb"}
    return (1 - bet) * after["p"] + bet * after["b"]
