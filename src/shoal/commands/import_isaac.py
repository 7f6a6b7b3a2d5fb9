"""An experiment file from a configuration of Isaac Lab's population-based training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.commands.isaac_flags import LEFT_OUT, NO_ISAAC_FLAGS, PLACED
from shoal.core.errors import BadField, BadInput, check_least, check_names, error_context
from shoal.core.escape import escape
from shoal.core.schema import build, dotted
from shoal.core.yaml_text import read_yaml, write_yaml
from shoal.experiment.files import attribute_errors, from_dict, text_of
from shoal.experiment.validation import check
from shoal.trainers.live import LIVE, of_rl_games
from shoal.trainers.rl_games_file import Unfit, composed, merged, unfit


@dataclass(frozen=True)
class IsaacPbt:
    """`pbt` of a file, with the defaults of Isaac Lab; `start_after` is DexPBT's, `launcher` rl_games' own."""

    enabled: bool = False
    policy_idx: int = 0
    num_policies: int = 8
    directory: str = ""
    workspace: str = "pbt_workspace"
    objective: str = "Episode_Reward/success"
    interval_steps: int = 100_000
    threshold_std: float = 0.1
    threshold_abs: float = 0.05
    mutation_rate: float = 0.25
    change_range: tuple[float, float] = (1.1, 2.0)
    mutation: Mapping[str, Any] = field(default_factory=dict)
    start_after: int = 0
    launcher: str = ""

    def __post_init__(self) -> None:
        check_least(2, self, "num_policies")
        check_least(1, self, "interval_steps")
        if not self.mutation:
            raise BadField("mutation", "names no hyperparameters", "without them nothing is tuned")


KNOWN = LIVE["rl_games"]
# The rules of `mutation`: the scale in which `mutate` does the same, and the factor by which values may move at most.
RULES = {  # Isaac Lab has no bounds
    "mutate_float": ("log", 100.0),
    "mutate_discount": ("one_minus_log", 10.0),
}
# Of `params.env`, what the wrapper of environments takes, and its name in `env_options`.
WRAPPER = {name: name for name in ("clip_actions", "obs_groups", "concate_obs_groups")}
WRAPPER["clip_observations"] = "clip_obs"
PARTS = ("params", "pbt", "seed")  # of an agent
# Settings that are not read, and the reason; then those of a task that isaac_task.py makes.
UNREAD = {
    "agent.seed": LEFT_OUT["seed"],
    "params.seed": LEFT_OUT["seed"],
    "params.load_checkpoint": LEFT_OUT["checkpoint"],
    "params.config.score_to_win": LEFT_OUT["max_iterations"],
}
UNREAD_OF_TASK = {
    "params.config.num_actors": "the simulator sets the number of environments",
    "params.config.env_config": "Isaac Lab hands it to no environment",
}
PREFIX = "agent.params.config."
MUTATION = "agent.pbt.mutation."


def translate(
    file: Path, overrides: Sequence[str] = (), task: str | None = None, workers: int = 1, flags: Any = NO_ISAAC_FLAGS
) -> str:
    """An experiment file as text. Raises BadInput for errors in the file and settings that Shoal lacks.

    file:      of a task's agent for rl_games: `params` and `pbt`, at the top or under `agent`
    overrides: as Hydra takes them, such as `agent.pbt.num_policies=4`; they win over the file
    task:      the id of the task, such as `Isaac-Cartpole-v0`
    workers:   machines, or processes, that share a directory; each gets as many policies
    flags:     `IsaacFlags`
    """
    with attribute_errors(file):
        content = read_yaml(text_of(file))
    under = "agent" if isinstance(content, Mapping) and "agent" in content else ""
    agent = content["agent"] if under else content
    scene = [] if flags.num_envs is None else [f"{PLACED['num_envs']}={flags.num_envs}"]
    given = _nested([*overrides, *scene])  # Isaac Lab sets its flag behind the overrides
    changed = given.get("agent", {})
    check_names("agent", changed, PARTS)
    with attribute_errors(file, dotted(changed), within=under):
        _check(composed(content if isinstance(content, Mapping) else {}))
        if not isinstance(agent, Mapping) or not isinstance(agent.get("params"), Mapping):
            raise BadInput("it has no `params`: give the file of a task's agent for rl_games")
        pbt = build(IsaacPbt, _merged("pbt", agent.get("pbt") or {}, changed.get("pbt", {})), "pbt.")
        params = _merged("params", agent["params"], changed.get("params", {}))
        settings, wrapper = _part(params, "config"), _part(params, "env")
        _check(unfit(params))
        notes, space = _space(pbt.mutation, settings, _part(params, "algo").get("name") == "a2c_continuous")
    policies = pbt.num_policies
    if workers < 1 or policies % workers or policies // workers < 2:
        problem = f"must divide num_policies = {policies} into groups of at least 2"
        raise BadField("--workers", problem, value=workers)
    frames, generations = settings.get("max_frames"), None
    if isinstance(frames, (int, float)) and 0 < frames < math.inf:
        generations = math.ceil(frames / pbt.interval_steps)
    else:
        longer = "Isaac Lab goes on for max_epochs, which depend on the number of environments"
        notes.append(f"generations: 20 by default; {longer}")
    above, options = changed.get("params", {}), ({"task": task} if task else {}) | dotted(given.get("env", {}))
    unread, reaching = (UNREAD | UNREAD_OF_TASK, WRAPPER) if options else (UNREAD, {})
    if options:
        above = merged(above, {"config": {"env_config": None}}) if settings.get("env_config") else above
        notes.append("config.imports: isaac_task.py, of Shoal's experiments/isaac, registers the task with rl_games")
    else:
        notes.append("name the task: --task ID, or a module that registers it with rl_games in config.imports")
    config = {"objective": pbt.objective, "imports": ["isaac_task"] if options else None, "params": above or None}
    named = {place.partition("wandb.")[2]: getattr(flags, name) for name, place in PLACED.items()}
    select = {"name": "threshold", "threshold_std": pbt.threshold_std, "threshold_abs": pbt.threshold_abs}
    explore = {"name": "mutate", "mutation_rate": pbt.mutation_rate, "change_range": pbt.change_range}
    experiment = {
        "env": settings.get("env_name", "rlgpu"),
        "method": {"name": "pbt", "select": select, "explore": explore, "burn_in": pbt.start_after},
        "agent": f"rl_games:{file}",
        "population": policies // workers,
        "generations": generations,
        "interval": pbt.interval_steps,
        "exchange": {"name": "directory", "workspace": str(Path(pbt.directory) / pbt.workspace)}
        if workers > 1
        else None,
        "python": pbt.launcher or None,
        "processes": {"count": 1, "gpus": [0]},
        "fitness": {"source": "training"},
        "space": space,
        "config": _given(config),
        "env_options": options | {reaching[name]: x for name, x in wrapper.items() if name in reaching} or None,
        "wandb": {field: x for field, x in named.items() if field and x is not None} if flags.track else None,
    }
    check(from_dict(_given(experiment)))
    known = {"agent": {"seed": changed.get("seed", agent.get("seed"))}, "params": params}
    left = {place: why for place, why in unread.items() if _is_set(known, place)}
    left |= {f"params.env.{name}": "it does not reach the environments" for name in wrapper if name not in reaching}
    left |= {f"--{name}": why for name, why in LEFT_OUT.items() if getattr(flags, name) not in (None, False)}
    notes += [f"{place} is left out: {why}" for place, why in left.items()]
    return "".join(f"# {escape(note)}\n" for note in notes) + write_yaml(_given(experiment))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: x for name, x in values.items() if x is not None}


def _check(unfit: Unfit | None) -> None:
    """Raise BadField for a setting that no member can have."""
    if unfit:
        raise BadField(*unfit)


def _is_set(values: Mapping[str, Any], place: str) -> bool:
    """True if there is something at a path or below it, other than none, false or -1."""
    inside = [x for path, x in dotted(values).items() if f"{path}.".startswith(f"{place}.")]
    return any(x is not None and x is not False and x != -1 for x in inside)


def _space(mutation: Mapping, settings: Mapping, continuous: bool) -> tuple[list[str], dict[str, Any]]:
    """Notes on what is not tuned, and the ranges of the rest. Raises BadField."""
    notes: list[str] = []
    space: dict[str, Any] = {}
    try:
        live = of_rl_games(settings, continuous)
    except (TypeError, ValueError) as error:
        raise BadField("params.config", f"a hyperparameter is no number: {error}") from error
    for path, rule in mutation.items():
        place, name = f"pbt.mutation.{path}", path.removeprefix(PREFIX)
        if not path.startswith(PREFIX) or name not in KNOWN:
            raise BadField(place, "cannot change on a live member", f"known are {', '.join(PREFIX + x for x in KNOWN)}")
        if not isinstance(rule, str) or rule not in RULES:
            raise BadField(place, f"is neither {' nor '.join(RULES)}", value=rule)
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
    """A range around the initial value."""
    (scale, by), live = RULES[rule], KNOWN[name]
    if scale == "log":
        low, high = max(live.low, start / by), min(live.high, start * by)
    elif 0 < start < 1:
        low, high = max(0.0, round(1 - (1 - start) * by, 9)), round(1 - (1 - start) / by, 9)
    else:
        raise BadField(place, f"{rule} changes 1 - x, and {name} is {start:g}", "it must lie between 0 and 1")
    found = {"low": low, "high": high, "scale": scale, "initial": start}
    return found | {"integer": True} if live.integer else found


def _nested(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides as nested mappings, under `agent` and `env`; later ones win. Raises BadInput."""
    values: dict[str, Any] = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        if path.startswith("~"):
            raise BadInput(f"{override}: Hydra would delete this key; delete it in the file")
        path = path.lstrip("+")  # Hydra's sign for a key that is new
        first, *rest = path.split(".")
        if not equals or first not in ("agent", "env") or not rest:
            raise BadInput(f"{override}: write agent.NAME=VALUE or env.NAME=VALUE, such as agent.pbt.num_policies=4")
        inside = path.removeprefix(MUTATION)  # what stands in it has dots in its name
        parts = [first, *rest] if inside == path else [*MUTATION.split(".")[:-1], inside]
        with error_context(override):
            nested = read_yaml(text)
        for part in reversed(parts):
            nested = {part: nested}
        values = merged(values, nested)
    return values


def _part(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping in `params`, empty if it is missing. Raises BadField."""
    return _merged(f"params.{name}", params.get(name) or {}, {})


def _merged(place: str, below: Any, above: Any) -> dict[str, Any]:
    """Merge nested mappings; `above` wins. Raises BadField about `place` if one is no mapping."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        raise BadField(place, "must be a mapping")
    return merged(below, above)
