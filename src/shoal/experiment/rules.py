"""Rules for experiments, whatever their environment and agent: each combination that is refused is an entry of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from operator import attrgetter
from typing import Any, NamedTuple

from shoal.core.env_parameters import PREFIX
from shoal.core.errors import CHOOSE, STRUCTURE, BadField, type_in_words, unknown
from shoal.core.schema import build, explained
from shoal.core.yaml_text import plain
from shoal.experiment.experiment import OF_EXCHANGE, ExchangeSettings, Experiment
from shoal.experiment.structures import choices, structures
from shoal.members.protocol import Kind
from shoal.methods import METHODS
from shoal.methods.components import make_method
from shoal.methods.method import Method
from shoal.methods.ranges import validate

INT32, INT64 = 2**31 - 1, 2**63 - 1
# The least and the most of each. Checkpoints are named by eight digits.
LIMITS = {
    "population": (1, 1_000_000),
    "generations": (1, 99_999_999),
    "interval": (1, INT64),
    "budget": (1, INT64),
    "time_limit": (0.001, INT32),
    "stop.patience": (1, INT32),
    "shards": (1, 1_000_000),
    "seed": (0, INT32),
    "final_episodes": (1, INT32),
    "fitness.episodes": (1, INT32),
    "fitness.step_limit": (1, INT32),
    "fitness.final_selection": (0, 1),
    "checkpoint.every": (1, INT32),
    "checkpoint.keep": (1, INT32),
}
PATHS = ("run_dir", "exchange.workspace", "init_from")
SCALARS = (type(None), bool, int, float, str)  # that a file has


class Rule(NamedTuple):
    """A combination of fields that is refused.

    field: the one that is said to be wrong. broken: true where it is, called with the experiment, its method and, in
    `OF_KIND`, the kind of its members. problem, advice: both with `{e}` for the experiment
    """

    field: str
    broken: Callable[..., Any]
    problem: str
    advice: str = ""


def _beside(field: str, other: str, there: Callable[[Experiment], bool]) -> Rule:
    """A field that means something only beside another one."""
    value = attrgetter(field)
    return Rule(field, lambda e, m: value(e) != value(Experiment()) and not there(e), f"goes with {other}")


def _not_of_trainers(field: str, problem: str, advice: str = "") -> Rule:
    """A field that trainers decide for themselves."""
    value = attrgetter(field)
    return Rule(field, lambda e, m: e.external and value(e) != value(Experiment()), problem, advice)


def _exchanged(name: str) -> Callable[[Experiment], bool]:
    return lambda e: e.exchange.name == name


_worker = _exchanged("directory")


RULES = (
    Rule(
        "population",
        lambda e, m: e.auto and (e.exchange.name != "local" or e.shards is not None),
        "is measured for one process without shards",
        "write a number",
    ),
    *(_beside(f"exchange.{option}", f"exchange: {name}", _exchanged(name)) for option, name in OF_EXCHANGE.items()),
    Rule(
        "exchange",
        lambda e, m: _worker(e) and e.exchange.workspace is None,
        "needs a workspace, the directory that workers share",
        "write exchange: {{name: directory, workspace: ...}}",
    ),
    Rule(
        "method",
        lambda e, m: m.ends_members and e.divided,
        "ends members before the run does, which needs one shard in one process",
        "write method: pbt",
    ),
    Rule(
        "budget",
        lambda e, m: _worker(e) and e.budget is not None,
        "workers of a directory do not know what others have spent",
        "give each its generations",
    ),
    Rule(
        "method",
        lambda e, m: choices(e) and (not (m.tunes and m.rank_based) or m.copies),
        "its members cannot have several structures, for weights are copied or shared, and config has choices",
        "write method: independent, or {{name: successive_halving, between: none}}",
    ),
    Rule(
        "config",
        lambda e, m: choices(e) and (e.divided or e.init_from is not None or e.auto),
        "choices of structures need one process, and no shards, init_from or population: auto",
    ),
    Rule(
        "run_dir",
        lambda e, m: _worker(e) and e.run_dir is not None,
        "the run of a worker lies in its workspace",
        "leave run_dir out",
    ),
    Rule(
        "fitness.source",
        lambda e, m: e.levels is not None and e.fitness.source == "training",
        "training is on the levels of train alone: write evaluation",
    ),
    _beside("fitness.levels", "levels", lambda e: e.levels is not None),
    Rule(
        "space",
        lambda e, m: e.space and not m.tunes,
        "method {e.method_name} tunes nothing",
        "give hyperparameters fixed values under hyper",
    ),
    _beside(
        "fitness.direction",
        "fitness.objective; returns are always maximised",
        lambda e: e.fitness.objective is not None,
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m: e.fitness.tie_breaker is not None and e.fitness.source == "training",
        "is read in evaluations only",
        "write fitness.source: evaluation",
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m: e.fitness.tie_breaker is not None and not m.rank_based,
        "breaks ties, and method {e.method_name} needs more of the fitness than its order",
        "leave it out",
    ),
    Rule(
        "fitness.source",
        lambda e, m: m.race and e.fitness.source == "training",
        "method.race lets members play evaluations: write evaluation",
    ),
    _beside("python", "trainers, such as agent: sb3:PPO", lambda e: e.external),
    _beside("processes", "trainers, such as agent: sb3:PPO", lambda e: e.external),
    Rule(
        "method",
        lambda e, m: e.external and not m.supports_external_trainers,
        "its members are agents of Shoal's own, and {e.agent} is a trainer",
        f"write {', '.join(name for name, method in METHODS.items() if method().supports_external_trainers)}",
    ),
    _not_of_trainers("fitness.deterministic", "trainers are evaluated with deterministic actions"),
    _not_of_trainers("fitness.objective", "trainers are measured by their returns"),
    _not_of_trainers("fitness.tie_breaker", "trainers are measured by their returns alone"),
    _not_of_trainers("levels", "trainers have environments of their own, with levels that Shoal cannot choose"),
    _not_of_trainers(
        "fitness.step_limit", "trainers play their own episodes, and end them where they choose", "leave it out"
    ),
)


def of_game(kind: Kind) -> bool:
    """True where the members play a game that is known as a whole."""
    return kind.compiled is not None and getattr(kind.compiled.environment, "game", None) is not None


# Those that the kind of the members decides, when every default is filled in.
OF_KIND = (
    Rule(
        "exchange",
        lambda e, m, kind: _worker(e) and kind.sampled and kind.together,
        "with method {e.method_name} members share a critic: they need one process",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: kind.sampled and e.fitness.source == "training",
        "with method {e.method_name} members train in their evaluations alone",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: e.fitness.exact and not of_game(kind),
        "is of games that are known as a whole, and {e.env_name} is none",
        "write evaluation",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: not e.fitness.exact and kind.spec is not None and kind.spec.turns,
        "a member plays as both players of a game, so that it loses what it wins",
        "write exploitability, where the game is known as a whole",
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m, kind: e.fitness.tie_breaker is not None and of_game(kind),
        "exploitability is exact: there are no ties to be broken",
    ),
    Rule(
        "levels",
        lambda e, m, kind: e.levels is not None and of_game(kind),
        "exploitability counts all that chance may do",
    ),
    Rule(
        "init_from",
        lambda e, m, kind: e.init_from is not None and kind.together and not kind.sampled,
        "with method {e.method_name} members share a critic, which would begin anew and lead them astray",
    ),
    Rule(
        "shards",
        lambda e, m, kind: e.shards > 1 and kind.together,
        "with method {e.method_name} members share a critic: it needs one shard",
    ),
    Rule(
        "population",
        lambda e, m, kind: kind.side_by_side == 2 and e.population % (2 * e.shards),
        "method {e.method_name} perturbs in mirrored pairs",
        "it must be a multiple of 2 x {e.shards} shards",
    ),
)


def refuse(rules: Iterable[Rule], e: Experiment, *facts: Any) -> None:
    """Raise BadInput for the first rule that is broken."""
    for rule in rules:
        if rule.broken(e, *facts):
            value = e.method_name if rule.field == "method" else attrgetter(rule.field)(e)
            value = value.name if isinstance(value, ExchangeSettings) else value
            shown = value if isinstance(value, (str, int)) else None
            raise BadField(rule.field, rule.problem.format(e=e), rule.advice.format(e=e), value=shown)


def beyond_limits(name: str, value: float) -> BadField | None:
    """The error for a value of a field that is not within `LIMITS`; None where it is."""
    least, most = LIMITS[name]
    if least <= value <= most:
        return None
    return BadField(name, f"must be at {f'least {least}' if value < least else f'most {most}'}", value=value)


def check(e: Experiment) -> Method:
    """The method that an experiment names. Raises BadInput for all that is wrong whatever the environment and agent."""
    for name in LIMITS:
        value = attrgetter(name)(e)
        if isinstance(value, (int, float)) and (error := beyond_limits(name, value)):
            *above, _ = name.split(".")
            holder = attrgetter(*above)(e) if above else e
            raise explained(error, type(holder), *(f"{x}." for x in above))
    for name in PATHS:
        path = attrgetter(name)(e) or ""
        if "\0" in path or path.encode(errors="ignore").decode() != path:
            problem = "a path must be text in UTF-8, without \\0, to be written in a run's files"
            raise BadField(name, problem, "rename what is not", value=f"{path!r}")
    _check_plain("env_options", e.env_options)
    _check_plain("config", e.config, named=True)
    if e.levels is not None:
        e.levels.spans()
    method = make_method(e.method_or_default)
    refuse(RULES, e, method)
    if isinstance(e.agent, str) and ":" not in e.agent and e.agent not in method.agents:
        raise no_agent(e.agent, e.method_name, method)
    for name, number in e.hyper.items():
        if not math.isfinite(number):
            raise BadField(f"hyper.{name}", "must be a finite number", value=number)
        if name in (e.space or {}):
            advice = f"remove it here, and to start a tuned one somewhere set space.{name}.initial"
            raise BadField(f"hyper.{name}", "a hyperparameter is either fixed or tuned", advice)
    for name, r in (e.space or {}).items():
        validate(name, r)
    _check_names(e, method)
    return method


def _check_names(e: Experiment, method: Method) -> None:
    """Raise BadInput for settings and hyperparameters that an agent of Shoal's own lacks, environment parameters aside."""
    agent = method.agent_or_default(e.agent)
    for config in structures(e):
        whole_config(method, agent, config)
    if declaration := method.declaration(agent):
        for place, names in (("hyper", e.hyper), ("space", e.space or {})):
            for name in names:
                if name.startswith(STRUCTURE):
                    raise BadField(place, "is no hyperparameter", CHOOSE, name=name)
                if name not in declaration.hyper._fields and not name.startswith(PREFIX):
                    raise unknown(place, name, declaration.hyper._fields)


def whole_config(method: Method, agent: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of an agent, of Shoal's own with every default filled in. Raises BadInput."""
    declaration = method.declaration(agent)
    if declaration is None:
        return given
    config = asdict(build(declaration.config, given, "config."))
    for name, value in config.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int) and number > INT32:
                raise BadField(f"config.{name}", f"must be at most {INT32}", value=plain(value))
    return config


def _check_plain(place: str, value: Any, named: bool = False) -> None:
    """Raise BadInput for an option that the file of a run cannot hold. named: it holds functions and classes by name."""
    if isinstance(value, (dict, list, tuple)):
        for name, x in value.items() if isinstance(value, dict) else enumerate(value):
            _check_plain(f"{place}.{name}", x, named)
    elif type(value) not in SCALARS and getattr(value, "ndim", None) != 0 and not (named and callable(value)):
        problem = f"is {type_in_words(value)}, which the file of a run cannot hold"
        raise BadField(place, problem, "give numbers, text, lists and mappings, and make the rest of them in your code")


def no_agent(agent: Any, name: str, method: Method) -> BadField:
    """The error for an agent that the method cannot train."""
    known = f"{', '.join(method.agents)}, or module:factory of your own"
    if not isinstance(agent, str):
        return BadField("agent", f"write one of {known}", value=f"{agent!r}")
    others = [other for other, kind in METHODS.items() if agent in kind.agents]
    if not others:
        return unknown("agent", agent, method.agents)
    advice = f"{agent} goes with method {' or '.join(others)}"
    return BadField("agent", f"method {name} trains {known}", advice, value=agent)
