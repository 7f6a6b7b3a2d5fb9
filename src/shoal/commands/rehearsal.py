"""Evolution rehearsed on invented members: who will copy whom, and whether exploration can find anything."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shoal.commands.findings import Finding, doubt, fine, problem
from shoal.core.evolution import Cards, Decision, Explore, Range
from shoal.experiment.plan import Plan
from shoal.methods import explore as explorers
from shoal.methods import select as selectors
from shoal.methods.ranges import at_bound, sample
from shoal.methods.schedule import Schedule
from shoal.methods.successive_halving import is_due
from shoal.report.words import many

REHEARSALS = 100  # of selection and exploration
MANY = 10_000  # generations that are gone through one by one


def evolution(plan: Plan) -> Iterator[Finding]:
    """Who will copy whom, how often, and whether it comes to that at all."""
    e, method = plan.experiment, plan.method
    n, generations = e.population, many(e.generations, "generation")
    select = getattr(method, "select", None)  # of some methods; others decide in their evolver
    if isinstance(method, Schedule):
        rows = many(len(method.rows), "generation")
        yield fine("schedule", f"the hyperparameters of {rows} are followed; no member copies or explores")
        return
    if not method.copies:
        yield fine("selection", f"method {e.method_name}: no member copies another")
        return
    if isinstance(select, selectors.KeepWeights):
        way = "every member explores in place" if select.explore else "every member goes its own way: a control"
        yield fine("selection", f"no member copies another; {way}")
        return
    episodes = plan.measurement.episodes if e.fitness.source == "evaluation" else 10
    try:
        rehearsed = {members: _rehearse(plan, members, episodes) for _, members in plan.sizes}
    except Exception as error:  # a selector of one's own
        yield problem("selection", f"it failed on invented cards: {type(error).__name__}: {error}")
        return
    counts, safe = rehearsed[n]
    share = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    yield (fine if max(counts) else doubt)("selection", f"{share} of {many(n, 'member')} copy in a generation")
    if isinstance(select, selectors.TTest) and episodes < 2:
        yield doubt("selection", "t_test never copies on one episode: set fitness.episodes to 2 or more")
    if isinstance(select, selectors.Truncation) and select.bottom * n < 1:
        text = f"bottom = {select.bottom:g} of {n} is less than one member; one is replaced all the same"
        yield doubt("selection", text)
    if not safe:
        yield doubt("selection", "the best member can be overwritten (the champion is saved, but lost to the run)")
    burn_in = getattr(method, "burn_in", 0)
    copying = {members for members, (found, _) in rehearsed.items() if max(found)}
    count, first = _copying(plan, copying, burn_in)
    if e.generations == 1:
        yield doubt("evolution", "never takes effect: there is no second generation")
    elif max(counts) and not count and e.generations * (plan.steps or 1) <= burn_in:
        yield doubt("evolution", f"never takes effect: {generations} end before burn_in = {burn_in:,} steps")
    elif max(counts) and not count:
        yield doubt("evolution", "never takes effect: each generation after which members could copy ends with a rung")
    elif count:
        yield fine("evolution", f"{many(count, 'time')}, first after generation {first} of {e.generations}")


def _copying(plan: Plan, copying: set[int], burn_in: int) -> tuple[int, int]:
    """After how many generations members copy, and after which first. copying: the numbers of members that copy at all."""
    total, steps, rung, count, first = plan.experiment.generations, 0, 0, 0, 0
    population = plan.experiment.population
    for generation in range(1, min(total, MANY)):
        members = plan.sizes[rung][1]
        steps += (plan.steps or 1) * population // members
        if rung + 1 < len(plan.sizes) and is_due(plan.sizes[rung + 1][0], generation / total, generation):
            rung += 1
        elif members in copying and steps >= burn_in:
            count, first = count + 1, first or generation
    rest = max(total - MANY, 0) * (plan.sizes[rung][1] in copying)
    return count + rest, first


def _rehearse(plan: Plan, n: int, episodes: int) -> tuple[list[int], bool]:
    """How many of n members copy when all of them clearly differ, and whether the best one never does."""
    method, counts, safe = plan.method, list[int](), True
    evolver = method.evolver(plan.search, n)
    rows, steps = np.arange(n), np.full(n, max(plan.steps, getattr(method, "burn_in", 0), 1))
    deviation, played = np.full(n, 0.01 if episodes > 1 else np.nan), np.full(n, episodes)
    state, hyper = evolver.init((0,), rows)
    for i in range(REHEARSALS):
        fitness = np.random.default_rng(i).permutation(n).astype(np.float64)
        cards = Cards(rows, np.full(n, i), steps, fitness, deviation, played, hyper)
        state, decision = evolver.decide((i,), state, cards, rows)
        assert isinstance(decision, Decision)  # of members that copy
        counts.append(int((decision.parents != rows).sum()))
        safe &= bool(decision.parents[fitness.argmax()] == fitness.argmax())
    return counts, safe


def hyperparameters(plan: Plan) -> Iterator[Finding]:
    """What is tuned, and whether the ranges let it."""
    e, method = plan.experiment, plan.method
    if not method.tunes:
        return
    space, explore = plan.space, getattr(method, "explore", None)
    if not space:
        yield doubt("tuned", "nothing: space is empty, so that members differ by luck alone")
        return
    fixed = ", ".join(f"{name} {value:g}" for name, value in e.hyper.items()) or "nothing"
    yield fine("tuned", f"{', '.join(space)}; fixed: {fixed}")
    keeps = isinstance(explore, explorers.KeepValues)
    if keeps and not isinstance(getattr(method, "select", None), selectors.KeepWeights):
        yield doubt("exploration", "explore: keep copies values as they were drawn at the start, and finds no new")
    for name, r in space.items():
        default = float(plan.defaults[name])
        if r.start is not None and at_bound(r, np.array([r.start]))[0]:
            yield doubt(name, f"start = {r.start:g} lies at a bound: half of all perturbations come back from it")
        if r.low is not None and r.high is not None and not r.low <= default <= r.high:
            yield doubt(name, f"the default {default:g} lies outside [{r.low:g}, {r.high:g}]")
        if explore is not None and strides(r, explore) < 1:
            yield doubt(name, f"[{r.low:g}, {r.high:g}] is narrower than one perturbation: values jump about")
    if explore is not None and not keeps:
        yield from unmoved(space, explore)


def unmoved(space: dict[str, Range], explore: Explore) -> Iterator[Finding]:
    """Which values exploration leaves where they are, however often it is asked."""
    uid = np.arange(16)
    hyper = {name: sample(r, uid / len(uid)) for name, r in space.items()}
    tries = [explore((i,), hyper, space, uid) for i in range(REHEARSALS)]
    for name, x in hyper.items():
        moves = np.sum([t[name] != x for t in tries], axis=0)
        if not moves.any():
            yield doubt(name, "exploration never changes it")
        elif moves.mean() > REHEARSALS / 5 and not moves.all():
            yield doubt(name, f"exploration cannot leave {x[moves == 0][0]:g}")


def strides(r: Range, explore: Explore) -> float:
    """The width of a range in units of the largest perturbation."""
    if r.low is None or r.high is None:
        return math.inf
    if isinstance(explore, explorers.Perturb):
        factor = max(max(f, 1 / f) for f in explore.factors)
    elif isinstance(explore, explorers.Mutate):
        factor = (explore.discount_range if r.scale == "one_minus_log" else explore.change_range)[1]
    else:
        return math.inf
    if r.scale == "linear":
        return (r.high - r.low) / ((factor - 1) * max(abs(r.low + r.high) / 2, (r.high - r.low) / 20))
    low, high = (r.low, r.high) if r.scale == "log" else (1 - r.high, 1 - r.low)
    return math.log(high / low) / math.log(factor)
