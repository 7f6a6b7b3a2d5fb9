"""Writes tests/support/open_spiel.json with the package open_spiel: random games, and exploitabilities.

Policies follow from what a player sees, as `weights` says, so that any program can make them again.
"""

import json
import zlib
from pathlib import Path

import numpy as np

GAMES = {
    "kuhn": "kuhn_poker",
    "leduc": "leduc_poker",
    "liars_dice": "liars_dice(dice_sides=4)",
    "tic_tac_toe": "tic_tac_toe",
    "connect": "connect_four(rows=3,columns=3,x_in_row=3)",
}
PLAYED, POLICIES = 200, 20


def weights(policy, seen, actions):
    """The weights of all actions at an information set: equal ones of policy 0, else random ones."""
    if policy == 0:
        return np.ones(actions)
    key = zlib.crc32(bytes(int(x) for x in seen))
    return np.random.default_rng([policy, key]).exponential(size=actions)


def seen(state):
    tensor = state.get_game().get_type().provides_information_state_tensor
    return state.information_state_tensor() if tensor else state.observation_tensor()


def name(state):
    """An information set's name; games of perfect information are known by their boards."""
    recalled = state.get_game().get_type().provides_information_state_tensor
    return state.information_state_string() if recalled else state.observation_string()


def played(game, rng, numbers):
    """A game of random moves: all actions, then at each move the information set's number and the legal actions; payoff."""
    state, actions, moves = game.new_initial_state(), [], []
    while not state.is_terminal():
        if state.is_chance_node():
            legal = [outcome for outcome, _ in state.chance_outcomes()]
        else:
            legal = state.legal_actions()
            key = state.current_player(), name(state)
            moves.append([numbers.setdefault(key, len(numbers)), sum(1 << action for action in legal)])
        actions.append(int(rng.choice(legal)))
        state.apply_action(actions[-1])
    return [actions, moves, state.returns()[0]]


def information_states(game):
    """By name, what is seen and the legal actions."""
    found = {}

    def walk(state):
        if state.is_terminal():
            return
        if not state.is_chance_node():
            found.setdefault(state.information_state_string(), (tuple(seen(state)), state.legal_actions()))
        for action in state.legal_actions():
            walk(state.child(action))

    walk(game.new_initial_state())
    return found


def exploitability(pyspiel, game, states, policy):
    made = {sees: weights(policy, sees, game.num_distinct_actions()) for sees in {sees for sees, _ in states.values()}}
    table = {
        key: [(action, made[sees][action] / made[sees][legal].sum()) for action in legal]
        for key, (sees, legal) in states.items()
    }
    return pyspiel.nash_conv(game, table) / 2


def main():
    import pyspiel

    recorded = {}
    for ours, theirs in GAMES.items():
        game, numbers = pyspiel.load_game(theirs), {}
        rng = np.random.default_rng(0)
        games = [played(game, rng, numbers) for _ in range(PLAYED)]
        states, exact = information_states(game), []
        for policy in range(POLICIES + 1):
            exact.append(exploitability(pyspiel, game, states, policy))
            print(ours, exact[-1], flush=True)
        recorded[ours] = {"open_spiel": theirs, "games": games, "exploitability": exact}
        text = json.dumps(recorded, separators=(",", ":")).replace(']],"', ']],\n"').replace("]],-", "]],\n-")
        Path(__file__).with_name("open_spiel.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
