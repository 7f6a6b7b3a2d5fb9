"""Sentences about a plan, which a run begins with and `shoal doctor` gives; empty where there is nothing to say. No JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.environments.host import HostEnvironment

if TYPE_CHECKING:
    from shoal.experiment.plan import Plan

LONG = 2.0  # from this lengthening of training on, users are warned


def evaluation(plan: Plan, seen: float | None = None) -> str:
    """The size of an evaluation; empty where there is none, or no limit of its episodes is known.

    seen: as a share of the steps of an interval, in a dry run
    """
    kind, limit = plan.kind.compiled, plan.experiment.fitness.step_limit
    if kind is None or not (plan.steps and kind.environment.episode_limit) or plan.evaluation.source == "training":
        return ""
    limit = min(kind.environment.episode_limit, limit)
    episodes = plan.evaluation.episodes * plan.evaluation.purposes
    share = episodes * limit / plan.steps
    early = "" if seen is None else f"{seen:.0%} in the dry run, "
    return f"{episodes:,} episodes of at most {limit:,} steps: {early}up to {share:.0%} of the steps of an interval"


def generation(plan: Plan) -> str:
    """The size of a generation: steps or episodes of each member, or steps of all where some end."""
    number, unit, whose = plan.evaluation.episodes, "episode", "each"
    if plan.steps:
        number, unit = plan.steps, "step"
    if len(plan.rung_sizes) > 1:
        number, whose = number * plan.experiment.population, "of all members"
    return f"{number:,} {unit}{'s' * (number > 1)} {whose}"


def whole_run(plan: Plan) -> str:
    """The environment steps of a run, in total and per member; empty for a single member, or if unknown."""
    e, n = plan.experiment, plan.experiment.population
    if n == 1 or not plan.steps or e.ends_by != ["generations"]:
        return ""
    each, most = e.generations * plan.steps, "at most " * e.stops_early
    total = f"{most}{n * each:,} environment steps in total"
    if len(plan.rung_sizes) > 1:
        return f"{n} members: {total}; a member that survives all rungs trains for {each * plan.share_made(1.0):,.0f}"
    return f"{n} members × {each:,} steps each: {total}"


def rungs(plan: Plan) -> str:
    """The shares of the run after which members end, with advice if training takes long; empty without rungs."""
    planned, sizes = plan.method.rung_sizes(plan.experiment.population), plan.rung_sizes
    parts = []
    if len(sizes) > 1:
        then = ", ".join(f"{n} after {share:.0%} of the run" for share, n in sizes[1:])
        parts.append(f"{sizes[0][1]} members: {then}; the surviving members get the freed steps")
    if late := planned[len(sizes) :]:
        parts.append(f"too few generations for the rungs that leave {', '.join(f'{n}' for _, n in late)}")
    if parts and plan.lengthening > LONG:  # what has no rungs may have no device of JAX
        longer = f"{plan.lengthening:.3g} times as long as with all members training to the end"
        parts.append(f"the same steps take about {longer} (method: pbt)")
    return "; ".join(parts)


def too_few_tuned(plan: Plan) -> str:
    """Advice where default members leave too few tuned ones for one to copy another; those of a workspace copy members of
    other workers, and where a rung ends members the last ones copy nobody anyway."""
    e, method = plan.experiment, plan.method
    if method.ends_members or e.exchange.name == "directory" or not method.too_few_tuned(e.population):
        return ""
    return "too few tuned members for one to copy another: raise population, or lower method.default_members"


def normalised(plan: Plan) -> str:
    """A warning where the environment itself normalises what it gives, with what to do; else nothing."""
    kind = plan.kind.compiled
    environment = kind.environment if kind else None
    if not (isinstance(environment, HostEnvironment) and environment.normalising):
        return ""
    return (
        f"{', '.join(environment.normalising)} of the environment: each of its copies has statistics of its own, "
        "which are neither saved nor copied to children. Leave that to the agent: ppo has config.normalize_rewards "
        "and config.normalize_observations"
    )
