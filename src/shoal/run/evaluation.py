"""Evaluation of the champion of a run, or another member, on held-out episodes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.backend import on_jax
from shoal.core.env_parameters import unlike
from shoal.core.errors import BadField, BadInput, unknown
from shoal.core.keys import derive
from shoal.core.schema import at_least
from shoal.environments.error_boundary import callbacks_attributed
from shoal.experiment.build import evaluation_of, kind_of
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import whole_fitness
from shoal.experiment.validation import check
from shoal.members.acting import Policy
from shoal.members.devices import prepare
from shoal.members.protocol import Setup
from shoal.members.rollouts.episodes import statistics
from shoal.run.champion import load_champion


@on_jax()
def evaluate(
    run: str | Path,
    episodes: int | None = None,
    seed: int | None = None,
    trust_code: bool = False,
    levels: str | None = None,
    member: int | None = None,
    generation: int | None = None,
    stochastic: bool = False,
    **given: Any,
) -> dict[str, Any]:
    """Evaluate the champion on held-out episodes.

    Returns a dict with mean, standard_error, episodes, min, max and selection_fitness, in units of return or of
    `fitness.objective`; and exact for games. standard_error is None for a single episode, and selection_fitness where it is
    not known. Broken episodes have no return and do not count. Raises BadInput, also if no episode has a return.

    episodes, seed: how many episodes, and their seed (default: 100 and 0); not for games, whose measure is exact
    trust_code: import code that the run names
    levels: train, validation or test, for a run with levels; by default test
    member, generation: evaluate this member instead, see `load_champion`
    stochastic: sample actions instead of taking the setting of the run (`fitness.deterministic`)
    given: fields that the run was started with as objects without an importable name
    """
    prepare()
    champion = load_champion(run, trust_code, member, generation, **given)
    if champion.experiment.fitness.exact and (stochastic or episodes is not None or seed is not None):
        raise BadInput("exploitability is exact: leave out episodes, seed and stochastic")
    episodes = at_least(1, 100 if episodes is None else episodes, "episodes")
    seed = at_least(0, 0 if seed is None else seed, "seed")
    experiment = with_stochastic_actions(champion.experiment) if stochastic else champion.experiment
    if levels is not None:
        if champion.experiment.levels is None:
            raise BadField("levels", f"{run} was trained without levels", value=levels)
        if levels not in (known_levels := champion.experiment.levels.spans()):
            raise unknown("levels", levels, known_levels)
    e, kind = kind_of(experiment)
    with closing(kind):
        if kind.spec != champion.spec:
            raise BadInput(f"{run}: its champion was trained by another experiment than its experiment.yaml states")
        if differing := unlike(champion.hyper, kind.tunable, kind.env_parameters):
            raise BadInput(f"{run}: its champion is not that of its experiment.yaml: hyper {differing}")
        e = replace(e, fitness=whole_fitness(e, kind))
        evaluation = replace(evaluation_of(e), episodes=min(episodes, 64))
        with closing(kind.tester(Setup(e.seed, evaluation))) as tester, callbacks_attributed(e.env_name):
            key = derive((e.seed,), "evaluate", seed)
            played = tester.test([Policy(champion.learned, champion.hyper)], key, episodes, levels or "test")
    (returns,) = played.returns
    finite = returns[np.isfinite(returns)]
    if not len(finite):
        raise BadInput(f"{run}: no episode has a return: rewards or observations of its environment are not finite")
    extremes = {"min": float(finite.min()), "max": float(finite.max())}
    exact = {"exact": True} if e.fitness.exact else {}
    return statistics(returns) | exact | extremes | {"selection_fitness": champion.fitness}


def with_stochastic_actions(e: Experiment) -> Experiment:
    """Return the experiment with sampled actions in evaluations. Raises BadInput if members have none."""
    made = replace(e, fitness=replace(e.fitness, deterministic=False))
    check(made)
    return made
