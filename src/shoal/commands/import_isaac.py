"""An experiment from what Isaac Lab's population-based training is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from shoal.commands.isaac_flags import NONE, IsaacFlags
from shoal.core.errors import BadField, BadInput, unknown
from shoal.core.visible import visible
from shoal.core.yaml_text import parse, read_yaml, write_yaml
from shoal.experiment.experiment import Experiment, check
from shoal.experiment.files import from_dict
from shoal.trainers.rl_games_hyper import LIVE, hyperparameters

# The keys of `pbt`, with Isaac Lab's defaults; start_after is DexPBT's.
KEYS: dict[str, Any] = {
    "enabled": False,
    "policy_idx": 0,
    "num_policies": 8,
    "directory": "",
    "workspace": "pbt_workspace",
    "objective": "Episode_Reward/success",
    "interval_steps": 100_000,
    "threshold_std": 0.1,
    "threshold_abs": 0.05,
    "mutation_rate": 0.25,
    "change_range": [1.1, 2.0],
    "mutation": {},
    "start_after": 0,
}
SCALES = {"mutate_float": "log", "mutate_discount": "one_minus_log"}  # in which Shoal's `mutate` does what they do
PARTS = ("params", "pbt")  # of an agent
PREFIX = "agent.params.config."
WRAPPER = {  # of `params.env`, what the wrapper of environments takes, and its name in `env_options`
    "clip_observations": "clip_obs",
    "clip_actions": "clip_actions",
    "obs_groups": "obs_groups",
    "concate_obs_groups": "concate_obs_groups",
}
MUTATION = "agent.pbt.mutation."
REACH = {
    "mutate_float": 100.0,
    "mutate_discount": 10.0,
}  # how far, as a factor, values may move: Isaac Lab has no bounds


def translate(
    file: Path,
    overrides: Sequence[str] = (),
    task: str | None = None,
    workers: int = 1,
    flags: IsaacFlags = NONE,
) -> str:
    """An experiment file, as text. Raises BadInput for what is wrong in the file or cannot be had.

    file:      of a task's agent for rl_games: `params` and `pbt`, at the top or under `agent`
    overrides: as Hydra takes them, such as `agent.pbt.num_policies=4`; they win over the file
    task:      the id of the task, such as `Isaac-Cartpole-v0`
    workers:   machines, or processes, that share a directory; each gets as many policies
    flags:     of Isaac Lab's own command
    """
    content, lines = _read(file)
    under = "agent" if "agent" in content else ""
    agent = content["agent"] if under else content
    if not isinstance(agent, Mapping) or not isinstance(agent.get("params"), Mapping):
        raise _in(file, BadInput("it has no `params`: give the file of a task's agent for rl_games"))
    given = _nested([*flags.overrides(), *overrides])
    changed = given.get("agent", {})
    for name in changed:
        if name not in PARTS:
            raise unknown("agent", name, PARTS)
    try:
        told = _merged("pbt", agent.get("pbt") or {}, changed.get("pbt", {}))
        params = _merged("params", agent["params"], changed.get("params", {}))
        notes, experiment = _experiment(told, params)
        wrapper = _part(params, "env")
    except BadField as error:
        if any(f"{error.path}.".startswith(f"{path}.") for path, _ in _leaves(changed)):
            raise
        raise _in(file, BadInput(str(error), error.within(under).line_in(lines))) from error
    experiment |= {"agent": f"rl_games:{file}", **flags.fields()}
    if changed.get("params"):
        experiment["config"]["params"] = changed["params"]
    options = {"task": task} if task else {}
    options |= dict(_leaves(given.get("env", {})))
    if options:
        options |= {WRAPPER[name]: x for name, x in wrapper.items() if name in WRAPPER}
        experiment["env_options"], experiment["config"]["imports"] = options, ["isaac_task"]
        notes.append("config.imports: isaac_task.py, of Shoal's experiments/isaac, registers the task with rl_games")
    else:
        notes.append("name the task: --task ID, or a module that registers it with rl_games in config.imports")
    lost = [name for name in wrapper if not options or name not in WRAPPER]
    notes += [f"params.env.{name} is left out: it does not reach the environments" for name in lost]
    notes += flags.notes()
    _share(experiment, told, workers)
    check(from_dict(experiment))
    ordered = {option.name: experiment[option.name] for option in fields(Experiment) if option.name in experiment}
    return "".join(f"# {visible(note)}\n" for note in notes) + write_yaml(ordered)


def _experiment(told: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """What cannot be translated, in words, and most of the experiment. Raises BadField."""
    for name in told:
        if name not in KEYS:
            raise unknown("pbt", name, KEYS)
    pbt = {**KEYS, **told}
    for name in ("num_policies", "interval_steps", "start_after"):
        if not (isinstance(pbt[name], (int, float)) and pbt[name] >= 0 and float(pbt[name]).is_integer()):
            raise BadField(f"pbt.{name}", "must be a whole number", value=pbt[name])
    if pbt["num_policies"] < 2:
        raise BadField(
            "pbt.num_policies", "must be at least 2, which learn from one another", value=pbt["num_policies"]
        )
    if not isinstance(pbt["mutation"], Mapping) or not pbt["mutation"]:
        raise BadField("pbt.mutation", "names no hyperparameters", "without them nothing is tuned")
    settings = _part(params, "config")
    notes, space = _space(pbt["mutation"], settings, params)
    select = {name: pbt[name] for name in ("threshold_std", "threshold_abs")}
    explore = {name: pbt[name] for name in ("mutation_rate", "change_range")}
    method: dict[str, Any] = {"name": "pbt"}
    if pbt["start_after"]:
        method["start_after"] = int(pbt["start_after"])
    method |= {"select": {"name": "threshold", **select}, "explore": {"name": "mutate", **explore}}
    interval = int(pbt["interval_steps"])
    experiment = {
        "env": settings.get("env_name", "rlgpu"),
        "method": method,
        "population": int(pbt["num_policies"]),
        "interval": interval,
        "processes": {"count": 1, "gpus": [0]},
        "fitness": {"source": "training"},
        "space": space,
        "config": {"objective": pbt["objective"]},
    }
    frames = settings.get("max_frames")
    if isinstance(frames, (int, float)) and 0 < frames < math.inf:
        experiment["generations"] = -(-int(frames) // max(1, interval))
    else:
        notes.append(
            "generations: 20 by default; Isaac Lab goes on for max_epochs, which depend on the number of environments"
        )
    if "seed" in params:
        notes.append("params.seed is left out: all that is random derives from the experiment's own seed")
    return notes, experiment


def _space(
    mutation: Mapping[str, Any], settings: Mapping[str, Any], params: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """What is not tuned, in words, and the ranges of the rest. Raises BadField."""
    notes: list[str] = []
    space: dict[str, Any] = {}
    algorithm = _part(params, "algo").get("name")
    try:
        live = hyperparameters(settings, algorithm == "a2c_continuous")
    except (TypeError, ValueError) as error:
        raise BadField("params.config", f"a hyperparameter is no number: {error}") from error
    for path, rule in mutation.items():
        place, name = f"pbt.mutation.{path}", path.removeprefix(PREFIX)
        if not path.startswith(PREFIX) or name not in LIVE:
            raise BadField(place, "cannot change on a live member", f"known are {', '.join(PREFIX + x for x in LIVE)}")
        if not isinstance(rule, str) or rule not in SCALES:
            raise BadField(place, f"is neither {' nor '.join(SCALES)}", value=rule)
        start = live.get(name)
        if name == "learning_rate" and settings.get("lr_schedule") == "adaptive":
            notes.append("learning_rate is not tuned: the adaptive schedule sets it; tune kl_threshold")
        elif start is None:
            notes.append(f"{name} is not tuned: with these settings of the task it has no effect")
        elif rule == "mutate_float" and start == 0:
            notes.append(f"{name} is not tuned: it is 0, and stays so when it is multiplied")
        else:
            space[name] = _range(name, rule, start, place)
    return notes, space


def _range(name: str, rule: str, start: float, place: str) -> dict[str, Any]:
    """A range around a first value."""
    by, live = REACH[rule], LIVE[name]
    if rule == "mutate_discount":
        if not 0 < start < 1:
            raise BadField(
                place, f"mutate_discount changes 1 - x, and {name} is {start:g}", "it must lie between 0 and 1"
            )
        low, high = max(0.0, round(1 - (1 - start) * by, 9)), round(1 - (1 - start) / by, 9)
    else:
        low, high = max(live.low, start / by), min(live.high, start * by)
    found = {"low": low, "high": high, "scale": SCALES[rule], "start": start}
    return found | {"integer": True} if live.integer else found


def _share(experiment: dict[str, Any], told: Mapping[str, Any], workers: int) -> None:
    """Divide the policies among workers that share a directory. Raises BadInput."""
    policies = experiment["population"]
    if workers < 1 or policies % workers or policies // workers < 2:
        problem = f"must divide num_policies = {policies} into groups of at least 2"
        raise BadField("--workers", problem, value=workers)
    if workers > 1:
        pbt = {**KEYS, **told}
        experiment["population"] = policies // workers
        experiment["exchange"] = "directory"
        experiment["workspace"] = str(Path(str(pbt["directory"])) / str(pbt["workspace"]))


def _read(file: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """A file's values, and the line of every dotted path. Raises BadInput."""
    try:
        values, lines = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{file}: not a text file") from error
    except BadInput as error:
        raise _in(file, error) from error
    if not isinstance(values, dict):
        raise BadInput(f"{file}: it has no `params`: give the file of a task's agent for rl_games")
    return values, lines


def _nested(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides as nested mappings, under `agent` and `env`. Raises BadInput."""
    values: dict[str, Any] = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        path = path.lstrip("+")  # Hydra's sign for a key that is new
        first, *rest = path.split(".")
        if not equals or first not in ("agent", "env") or not rest:
            raise BadInput(f"{override}: write agent.NAME=VALUE or env.NAME=VALUE, such as agent.pbt.num_policies=4")
        try:
            value = read_yaml(text)
        except BadInput as error:
            raise BadInput(f"{override}: {error}") from error
        # What stands in `mutation` has dots in its name.
        inside = path.removeprefix(MUTATION)
        *above, last = path.split(".") if inside == path else [*MUTATION.split(".")[:-1], inside]
        place = values
        for part in above:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise BadInput(f"{override}: {part} has a value already")
        place[last] = value
    return values


def _part(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping in `params`; an empty one where there is none. Raises BadField."""
    part = params.get(name) or {}
    if not isinstance(part, Mapping):
        raise BadField(f"params.{name}", "must be a mapping")
    return part


def _merged(place: str, below: Any, above: Any) -> dict[str, Any]:
    """Nested mappings as one, where `above` wins. Raises BadField about `place` where one is none."""
    for x in (below, above):
        if not isinstance(x, Mapping):
            raise BadField(place, "must be a mapping")
    merged = {**below, **above}
    for name, x in above.items():
        if isinstance(x, Mapping) and isinstance(below.get(name), Mapping):
            merged[name] = _merged(f"{place}.{name}", below[name], x)
    return merged


def _leaves(values: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """The values of nested mappings by their dotted paths."""
    found: list[tuple[str, Any]] = []
    for name, x in values.items():
        found += _leaves(x, f"{path}{name}.") if isinstance(x, Mapping) else [(f"{path}{name}", x)]
    return found


def _in(file: Path, error: BadInput) -> BadInput:
    error.file = file
    return error
