"""Hyperparameters that change linearly with the progress of a run, from update to update.

Evolution sees and changes the initial value alone; the progress of the run multiplies it, so that a new initial value keeps
the phase of its schedule.
"""

from __future__ import annotations

import jax.numpy as jnp

from shoal.core.space import declared
from shoal.core.types import Array, Hyper, RunProgress


def share_done(progress: RunProgress, i: Array) -> Array:
    """The share of the run that is done after iteration i of an interval, in [0, 1]."""
    return jnp.minimum((progress.done + progress.per_iteration * jnp.float32(i + 1)) / progress.total, 1.0)


def scheduled(hyper: Hyper, done: Array) -> Hyper:
    """The hyperparameters of an update after this share of the run, in [0, 1].

    One that another declares to schedule falls linearly: from its value at the start to that share of it at the end.
    """
    now = hyper._asdict()
    for name, number in declared(type(hyper)).items():
        for of in number.schedules:
            now[of] = now[of] * (1 - done * (1 - now[name]))  # by exactly 1 where the share is 1
    return hyper._replace(**now)
