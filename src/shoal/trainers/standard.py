"""What Shoal's own agents call the hyperparameters of the adapters, so that a schedule can go from one to the other.

Only those are here that mean the same, if need be after a multiplication, and have another name there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Standard(NamedTuple):
    """The name in Shoal's own agents, and the factor that makes their value of the adapter's."""

    name: str
    factor: float = 1.0


STANDARD: dict[str, dict[str, Standard]] = {
    "sb3": {
        "gamma": Standard("discount"),
        "ent_coef": Standard("entropy_coefficient"),
        "vf_coef": Standard("value_coefficient", 2.0),  # of the mean square of errors; elsewhere of half of it
        "max_grad_norm": Standard("max_gradient_norm"),
        "n_epochs": Standard("epochs"),
        "noise_std": Standard("exploration_noise"),
        "target_policy_noise": Standard("target_noise"),
        "target_noise_clip": Standard("noise_clip"),
        "exploration_final_eps": Standard("epsilon"),
    },
    "rl_games": {
        "gamma": Standard("discount"),
        "tau": Standard("gae_lambda"),
        "e_clip": Standard("clip_range"),
        "entropy_coef": Standard("entropy_coefficient"),
        "critic_coef": Standard("value_coefficient"),
        "grad_norm": Standard("max_gradient_norm"),
        "mini_epochs": Standard("epochs"),
    },
}


def translate(
    values: Mapping[str, float], source: Mapping[str, Standard], known: Iterable[str], target: Mapping[str, Standard]
) -> dict[str, float]:
    """Values under the names of another agent; those that it does not have are left out.

    source, target: the entry of STANDARD of the agent that they come from, and of the one that they go to; {} for none
    known: the hyperparameters of the latter
    """
    wanted = {target.get(name, Standard(name)).name: name for name in known}
    translated = {}
    for name, value in values.items():
        common, factor = source.get(name, Standard(name))
        if common in wanted:
            there = wanted[common]
            translated[there] = value * factor / target.get(there, Standard(there)).factor
    return translated
