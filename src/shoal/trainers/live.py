"""Hyperparameters that can change on a live model, of each adapter's library; what they are called in Shoal's own agents, so
that a schedule can go from one to the other. For both sides; needs no package.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple  # noqa: UP035 (Python 3.8)

INFINITE = float("inf")


class Live(NamedTuple):
    """A hyperparameter that can change on a live model.

    low, high: its possible values
    range:     what is tuned by default, where the default lies in it: lowest, highest, and the scale if it is not linear
    standard:  what means the same in Shoal's own agents, where that has another name there
    factor:    what makes the value there of the one here
    integer:   whether it is an integer
    """

    low: float = 0.0
    high: float = INFINITE
    range: tuple[Any, ...] = ()
    standard: str = ""
    factor: float = 1.0
    integer: bool = False

    def value(self, x: float) -> float:
        """A value as the library takes it."""
        return round(x) if self.integer else float(x)


LIVE = {
    "sb3": {
        "learning_rate": Live(range=(1e-5, 1e-2, "log")),
        "gamma": Live(high=1, range=(0.9, 0.9999, "one_minus_log"), standard="discount"),
        "gae_lambda": Live(high=1, range=(0.8, 0.995, "one_minus_log")),
        "clip_range": Live(range=(0.1, 0.4)),
        "clip_range_vf": Live(),
        "ent_coef": Live(range=(0.0, 0.05), standard="entropy_coefficient"),
        "vf_coef": Live(standard="value_coefficient", factor=2.0),  # of the mean square of errors; there of half of it
        "max_grad_norm": Live(standard="max_gradient_norm"),
        "target_kl": Live(),
        "n_steps": Live(low=2, integer=True),
        "n_epochs": Live(low=1, standard="epochs", integer=True),
        "batch_size": Live(low=2, integer=True),
        "tau": Live(high=1, range=(1e-3, 0.05, "log")),
        "train_freq": Live(low=1, integer=True),
        "gradient_steps": Live(low=1, integer=True),
        "target_entropy": Live(low=-INFINITE),
        "target_update_interval": Live(low=1, integer=True),
        "policy_delay": Live(low=1, integer=True),
        "target_policy_noise": Live(standard="target_noise"),
        "target_noise_clip": Live(standard="noise_clip"),
        "top_quantiles_to_drop_per_net": Live(integer=True),
        "exploration_final_eps": Live(high=1, range=(0.01, 0.2, "log"), standard="final_epsilon"),
        "noise_std": Live(range=(0.02, 0.5, "log"), standard="exploration_noise"),
    },
    "rl_games": {
        "learning_rate": Live(range=(1e-5, 1e-2, "log")),
        "kl_threshold": Live(range=(1e-3, 0.1, "log")),
        "gamma": Live(high=1, range=(0.9, 0.9999, "one_minus_log"), standard="discount"),
        "tau": Live(high=1, range=(0.8, 0.999, "one_minus_log"), standard="gae_lambda"),
        "e_clip": Live(range=(0.05, 0.4), standard="clip_range"),
        "entropy_coef": Live(range=(0.0, 0.05), standard="entropy_coefficient"),
        "critic_coef": Live(range=(0.1, 10.0, "log"), standard="value_coefficient"),
        "bounds_loss_coef": Live(range=(1e-5, 0.1, "log")),
        "grad_norm": Live(range=(0.1, 10.0, "log"), standard="max_gradient_norm"),
        "mini_epochs": Live(low=1, standard="epochs", integer=True),
    },
}
FIXED = {  # by SB3's algorithm
    "QRDQN": {"batch_size"},  # the optimiser's epsilon is made from it
    "RecurrentPPO": {"n_steps"},  # its buffer keeps the shape
    "SAC": {"target_update_interval"},  # counts within one round of updates, which mostly has one
    "TQC": {"target_update_interval"},
}


def of_sb3(algorithm: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return those arguments of an algorithm that can change live, with their values in `values`; an infinite one, such as
    a `max_grad_norm` that clips nothing, stays as it is."""
    live = LIVE["sb3"]
    names = (name for name in sorted(live.keys() & values) if name not in FIXED.get(algorithm, ()))
    numbers = {name: values[name] for name in names if type(values[name]) in (int, float)}
    return {name: float(x) for name, x in numbers.items() if live[name].low <= x <= live[name].high and x < INFINITE}


def of_rl_games(config: Mapping[str, Any], continuous: bool) -> dict[str, float]:
    """Return what can change live, with the values of the task's file. Raises TypeError or ValueError for what is no number.

    An adaptive schedule finds the learning rate by itself, so that only its `kl_threshold` is one.
    """
    adaptive = config.get("lr_schedule") == "adaptive"
    effect = {
        "learning_rate": not adaptive,
        "kl_threshold": adaptive,
        "grad_norm": config.get("truncate_grads", False),
        "bounds_loss_coef": continuous,
    }
    names = (name for name in LIVE["rl_games"] if config.get(name) is not None and effect.get(name, True))
    return {name: float(config[name]) for name in names}


def translate(
    values: Mapping[str, float], source: Mapping[str, Live], known: Iterable[str], target: Mapping[str, Live]
) -> dict[str, float]:
    """Values under the names of another agent; those that it does not have are left out.

    source, target: the entry of LIVE of the agent that they come from, and of the one that they go to; {} for none
    known: the hyperparameters of the latter
    """
    other = Live()  # what has the same name everywhere
    wanted = {target.get(name, other).standard or name: name for name in known}
    translated = {}
    for name, value in values.items():
        live = source.get(name, other)
        if there := wanted.get(live.standard or name):
            translated[there] = value * live.factor / target.get(there, other).factor
    return translated
