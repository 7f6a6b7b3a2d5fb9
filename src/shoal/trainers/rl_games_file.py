"""A task's file as rl_games reads it: how it is merged, and what no member can have. For both sides; needs no package."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Tuple  # noqa: UP035 (Python 3.8)

Unfit = Tuple[str, str]  # noqa: UP006 (the dotted path of what cannot be had, and why)

PPO = ("a2c_continuous", "a2c_discrete")  # as rl_games calls it
PRINTED = "Hydra prints with --cfg job --resolve"
# Of `params.config`, with what cannot be had; false or absent is what a member needs.
REFUSED = {
    "multi_gpu": "a member is trained by one process",
    "self_play_config": "its opponents are kept by rl_games' own loop",
    "use_action_masks": "a champion acts by observations alone, without masks",
    "schedule_entropy": "it would overwrite entropy_coef",
}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Dict[str, Any]:  # noqa: UP006
    """Nested mappings as one, where `above` wins."""
    both = [name for name, x in above.items() if isinstance(x, Mapping) and isinstance(below.get(name), Mapping)]
    return {**below, **above, **{name: merged(below[name], above[name]) for name in both}}


def composed(content: Mapping[str, Any]) -> Unfit | None:
    """Find the part of a file that needs Hydra, which composes it from several files."""
    others = content.get("defaults") or []
    if others in ([], ["_self_"]):
        return None
    return "defaults", f"only Hydra reads the files that it names; give the whole file, which {PRINTED}"


def unfit(params: Mapping[str, Any]) -> Unfit | None:
    """Find the part of `params` that members cannot have."""
    algo, config = params.get("algo"), params.get("config")
    name = algo.get("name") if isinstance(algo, Mapping) else algo
    if name not in PPO:
        return "params.algo.name", f"{name} is not rl_games' PPO; choose from {', '.join(PPO)}"
    for path, text in _interpolations(params, "params"):
        return path, f"only Hydra resolves {text}; write the value, or the one that {PRINTED}"
    for option, why in REFUSED.items():
        if isinstance(config, Mapping) and config.get(option):
            return f"params.config.{option}", f"cannot be given: {why}"
    return None


def _interpolations(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Find what Hydra would resolve in nested values, by path."""
    if isinstance(value, Mapping):
        for name, x in value.items():
            yield from _interpolations(x, f"{path}.{name}")
    elif isinstance(value, list):
        for x in value:
            yield from _interpolations(x, path)
    elif isinstance(value, str) and "${" in value:
        yield path, value
