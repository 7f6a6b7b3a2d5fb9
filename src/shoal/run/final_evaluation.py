"""The end of a run: the champion is selected among candidates, and plays held-out episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.candidates import Candidate
from shoal.core.errors import STRUCTURE
from shoal.core.keys import derive
from shoal.core.population import PopulationStats, Seed, of_row
from shoal.environments.games.environment import knowledge
from shoal.environments.games.exploitability import payoff_matrix
from shoal.experiment.structures import choices
from shoal.members.acting import Policy
from shoal.members.protocol import Shard
from shoal.members.rollouts.episodes import statistics, with_interval
from shoal.records.callback import describe_method
from shoal.records.generation import finite_or_none
from shoal.run.context import Context, State
from shoal.run.final_selection import episodes_of, select_champion

MATCHED = 16  # members of a game at most, that are matched with one another


def final_evaluation(c: Context, state: State) -> dict[str, Any]:
    """Find the champion by the final selection, evaluate it on held-out episodes, and return what result.json holds."""
    champion, e, method = state.champion, c.experiment, describe_method(c.plan)
    shared = state.members.share({}, False, state.clock)
    tested: dict[str, Any] = {}
    if champion.learned is not None and c.leading:
        c.control.enter(state.done - 1, "champion")
        if e.fitness.final_selection:
            episodes = episodes_of(e, state.steps, state.episode_length)
            champion, tested = select_champion(e, state.shard, state.candidates.ordered, episodes)
        tested |= _tested(c, state.shard, champion)
        c.files.save(state.done - 1, {}, None, 0, champion, c.plan.kind.spec)
    payoffs = _payoffs(c, state.shard, shared.stats) if e.fitness.exact else {}
    of_champion = {
        "uid": champion.uid,
        "generation": champion.generation,
        "selection_fitness": champion.fitness,
        **tested,
        "hyper": champion.hyper,
    }
    if chosen := choices(e):
        of_champion["config"] = {
            name: values[int(champion.hyper[f"{STRUCTURE}{name}"])] for name, values in chosen.items()
        }
    # The steps of the final selection do not bring a budget to its end.
    return {
        "status": "done" if state.over(c.plan) else "stopped",
        "stopped_by": state.stopped_by(c.plan) or None,
        "env": e.env_name,
        "method": method["name"],
        "traits": method["traits"],
        "agent": e.agent_name,
        "population": e.population,
        "generations": state.done,
        "seed": e.seed,
        "fitness": dict(zip(map(str, shared.stats.uid), finite_or_none(shared.stats.fitness), strict=True)),
        "champion": of_champion if tested else None,
        **payoffs,
        "environment_steps": state.steps,
        "evaluation_steps": shared.evaluation_steps + tested.get("final_selection", {"steps": 0})["steps"],
        "seconds": state.seconds,
        "compile_seconds": state.compile_seconds,
    }


def _payoffs(c: Context, shard: Shard, stats: PopulationStats) -> dict[str, Any]:
    """Payoffs of the fittest members of all processes against one another in a game, for result.json."""
    kind, fittest = c.plan.kind, np.argsort(-np.nan_to_num(stats.fitness, nan=-np.inf), kind="stable")[:MATCHED]
    game, own = kind.compiled.environment.game, shard.stats()
    known, mine = knowledge(game), np.flatnonzero(np.isin(own.uid, stats.uid[fittest]))
    policies = np.empty((len(mine), 1 + game.legal.size))  # the uid of each, and its probabilities
    for policy, row in zip(policies, mine.tolist(), strict=True):
        learned, hyper = shard.snapshot(row)[0], of_row(own.hyper, row)
        functions: Any = kind.policy_factory_for(hyper).policy(learned, hyper)
        policy[:] = own.uid[row], *np.asarray(functions.probabilities(learned, known)).flat
    policies = c.processes.exchange.gather(policies)
    rows = [np.flatnonzero(policies[:, 0] == uid)[0] for uid in stats.uid[fittest]]
    matrix = payoff_matrix(game, policies[rows, 1:].reshape(-1, *game.legal.shape))
    return {"payoffs": {"uid": stats.uid[fittest].tolist(), "mean": [_recorded(row) for row in matrix]}}


def _tested(c: Context, shard: Shard, champion: Candidate) -> dict[str, Any]:
    """Evaluate the champion on held-out episodes, for result.json; where there are levels, of those of each purpose."""
    e, key = c.experiment, derive((c.experiment.seed,), "champion")

    def play(key: Seed, levels: str) -> np.ndarray:
        policy = Policy(champion.learned, champion.hyper)
        return shard.test([policy], key, e.final_episodes, levels).returns[0]

    if e.levels is None:
        returns = play(key, "test")
        exact = {"exact": True} if e.fitness.exact else {}
        return {"evaluation": statistics(returns) | exact, "returns": _recorded(returns)}
    played = {name: play(derive(key, name), name) for name in e.levels.spans()}
    levels = {name: with_interval(statistics(returns)) for name, returns in played.items()}
    return {"evaluation": levels["test"], "levels": levels, "returns": _recorded(played["test"])}


def _recorded(returns: np.ndarray) -> list[float | None]:
    """Returns of single episodes in as few digits as a figure of them needs."""
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in np.asarray(returns).tolist()]
