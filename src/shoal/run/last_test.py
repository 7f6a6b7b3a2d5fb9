"""The end of a run: a play-off finds the champion, which plays held-out episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.keys import derive
from shoal.core.population import ChampionSoFar, Contenders, Seed
from shoal.members.rollouts.episodes import statistics, with_interval
from shoal.run.result import summarise
from shoal.run.start import Context, State


def last_test(c: Context, state: State) -> dict[str, Any]:
    """A play-off finds the champion, which plays held-out episodes; then everything that result.json holds."""
    champion = state.champion
    shared = c.members.share({}, False)
    tested: dict[str, Any] = {}
    if champion.learned is not None and c.leading:
        c.control.enter(state.done - 1, "champion")
        champion, played = _play_off(c, state.contenders)
        tested = played | _tested(c, champion)
        c.files.save(state.done - 1, {}, None, 0, champion, c.plan.kind.spec)
    totals = state.steps, shared.evaluation_steps, c.elapsed(state), c.compile_seconds
    return summarise(c.plan, shared.stats, champion, state.done, tested, *totals)


def _play_off(c: Context, contenders: Contenders) -> tuple[ChampionSoFar, dict[str, Any]]:
    """The one that does best on new episodes, the same for all, and what result.json says of them: what the fittest of many
    measurements returned was partly luck. Of equal ones the fittest."""
    best, e = contenders.best, c.experiment
    if len(best) == 1:
        return best[0], {}
    key, levels = derive((e.seed,), "play-off"), "test" if e.levels is None else e.fitness.levels
    share = (
        1 if c.plan.kind.sampled else len(best)
    )  # a search compiles its test for so many episodes, and plays them at once
    episodes = -(-e.final_episodes // share)
    played = [statistics(c.shard.test(x.learned, x.hyper, key, episodes, levels)) for x in best]
    means = [-np.inf if told["mean"] is None else told["mean"] for told in played]
    first = int(np.argmax(means))
    return best[first], {"final_candidates": {"contenders": len(best), **played[first]}}


def _tested(c: Context, champion: ChampionSoFar) -> dict[str, Any]:
    """What result.json says of the champion's new episodes; where there are levels, of those of each purpose."""
    e, key = c.experiment, derive((c.experiment.seed,), "champion")

    def play(key: Seed, levels: str) -> dict[str, Any]:
        return statistics(c.shard.test(champion.learned, champion.hyper, key, e.final_episodes, levels))

    if e.levels is None:
        return {"evaluation": play(key, "test")}
    levels = {name: with_interval(play(derive(key, name), name)) for name in e.levels.spans()}
    return {"evaluation": levels["test"], "levels": levels}
