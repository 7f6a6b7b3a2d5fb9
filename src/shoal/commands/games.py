"""Champions of games: against one another, move by move, and against a person in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.commands.output import console
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.interrupts import DONE
from shoal.core.keys import derive, draws
from shoal.core.user_code import attributed
from shoal.environments.games.environment import knowledge
from shoal.environments.games.exploitability import payoff
from shoal.environments.games.tree import CHANCE, OVER, Tables
from shoal.experiment.build import kind_of
from shoal.experiment.rules import of_game
from shoal.records.words import text
from shoal.run.champion import load_champion


class Player(NamedTuple):
    """A champion of a game: its policy [I, A]."""

    game: str
    tables: Tables
    policy: np.ndarray


@on_jax()
def load_player(run: Path, trust_code: bool, member: int | None = None, generation: int | None = None) -> Player:
    """The player that `load_champion` finds. Raises BadInput, also where the run is of no game."""
    champion = load_champion(run, trust_code, member, generation)
    e, kind = kind_of(champion.experiment)
    with closing(kind):
        if not of_game(kind):
            raise BadInput(f"{run} was trained on {e.env_name}, which is not a two-player game")
        tables, probabilities = kind.compiled.environment.game, champion.policy.probabilities
    assert probabilities is not None
    return Player(e.env_name, tables, np.asarray(probabilities(champion.learned, knowledge(tables))))


def show_payoff(run: Path, against: Path, trust_code: bool, member: int | None, generation: int | None) -> int:
    """Print the payoff of a run's champion, or member, against another run's champion. Returns the exit code."""
    first, second = play_against(load_player(run, trust_code, member, generation), load_player(against, trust_code))
    found = f"{text((first + second) / 2)} a game (as player 0 {text(first)}, as player 1 {text(second)})"
    console().print(f"payoff against {against}: {found}", soft_wrap=True)
    return DONE


def show_games(player: Player, seeds: Iterable[int], person: int | None) -> int:
    """Print a game of each seed move by move; a person is one of the players, or nobody is. Returns the exit code."""
    for seed in seeds:
        for line in moves(player, seed, person, ask_person):
            console().print(line, soft_wrap=True)
    return DONE


def play_against(one: Player, other: Player) -> tuple[float, float]:
    """The exact payoff of one player against the other as player 0, and as player 1. Raises BadInput."""
    if one.game != other.game or one.tables.legal.shape != other.tables.legal.shape:
        raise BadInput(f"one champion plays {one.game}, the other {other.game}, or with other env_options")
    first, second = (x.policy[None].astype(float) for x in (one, other))
    return float(payoff(one.tables, first, second)[0]), -float(payoff(one.tables, second, first)[0])


def moves(player: Player, seed: int, person: int | None, ask: Callable[[str, list[str]], int]) -> Iterator[str]:
    """A game move by move, a line for each.

    person: the player, 0 or 1, that a person is, who sees nothing but what that one does
    ask: (what is seen, the legal actions by name) -> which of these
    """
    tables, node = player.tables, 0
    luck = draws(derive((seed,), "game"), np.zeros(1, np.int64), len(tables.levels))[0]
    for chance in luck:
        if (mover := tables.player[node]) == OVER:
            break
        row = tables.information_set[node]
        likely = tables.chance[node] if mover == CHANCE else player.policy[row].astype(float)
        choice = int((np.cumsum(likely) <= chance * likely.sum()).sum())
        if mover != CHANCE:
            legal = np.flatnonzero(tables.legal[row])
            with attributed("env", f"{player.game} failed"):
                text = tables.game.to_string(tables.states[node]) if tables.game else f"node {node}"
            if mover == person:
                choice = int(legal[ask(text, [tables.action_names[i] for i in legal])])
            odds = ", ".join(f"{tables.action_names[i]} {likely[i]:.0%}" for i in legal)
            shown = f"{text} ({odds})" if person is None else ""
            yield f"player {mover}: {tables.action_names[choice]}  {shown}".rstrip()
        node = tables.child[node, choice]
    won = tables.payoff[node]
    yield f"player {0 if won > 0 else 1} wins {abs(won):g}" if won else "a draw"


def ask_person(text: str, names: list[str]) -> int:
    """The number of the action that a person chooses, by its name or its number: by its number alone where names are numbers
    too, or several actions have one. Raises BadInput where the input ends."""
    print(text)
    own = [str(name) for name in names]
    clear = len(set(own)) == len(own) and not any(name.isdecimal() for name in own)
    listed = ", ".join(f"{i + 1} {name}" if clear else f"{i + 1} ({name})" for i, name in enumerate(own))
    question = f"your move, of {listed}: " if clear else f"your move by its number, of {listed}: "
    while True:
        try:
            given = input(question).strip()
        except EOFError:
            print()
            raise BadInput("no more moves are given: the game is not over") from None
        if clear and given in own:
            return own.index(given)
        if given.isdecimal() and 1 <= int(given) <= len(names):
            return int(given) - 1
