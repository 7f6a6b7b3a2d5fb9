"""Memory that a population takes on the devices."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np
from rich.filesize import decimal

from shoal.core.errors import BadField
from shoal.experiment.plan import Plan
from shoal.members.devices import free_memory

COPIES_TO_SAVE = 3  # of the state in memory: the one at work, one that waits to be written, one as a file


class Memory(NamedTuple):
    """Bytes while members train. state: of members and environments; replay: the part of it that is replay buffers;
    rollout: of one member."""

    state: int
    replay: int
    rollout: int
    need: int


def reckoned(plan: Plan, members: int) -> Memory:
    """Reckon the memory that so many compiled members take."""
    kind = plan.kind.compiled
    spec, agent = kind.spec, kind.agent
    own, replay = kind.memory(members)
    state = own + members * agent.num_envs * kind.environment_bytes()
    seen = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(spec.obs))
    step = (1 if agent.value else 2) * seen + 4 * math.prod(spec.action.shape) + 16
    rollout = agent.rollout_length * agent.num_envs * step
    changing = 2 * (state + members * rollout) - replay  # two of each for a while; replay buffers are updated in place
    return Memory(state, replay, rollout, max(changing, COPIES_TO_SAVE * own))


def at_a_time(plan: Plan, members: int) -> int:
    """The members that are on the devices at a time, of those of this machine: on an accelerator a shard, for shards take
    turns there, and wait in the memory of the machine."""
    return members if jax.default_backend() == "cpu" else plan.experiment.population // plan.shards


def check_memory(plan: Plan, members: int) -> None:
    """Raise BadInput where the members of this machine do not fit into the memory of the devices."""
    if plan.kind.compiled is None:
        return  # it is in the processes of its trainers: the devices are not even asked, for that would take some of theirs
    members, free = at_a_time(plan, members), free_memory()
    state, replay = plan.kind.memory(members)
    need = state * (COPIES_TO_SAVE if jax.default_backend() == "cpu" else 1)
    if free is not None and need > free:
        advice = "lower config.buffer_size or population" if replay > state / 2 else "lower population or config.layers"
        raise BadField(
            "population",
            f"{members} members take {decimal(state)}, {decimal(replay)} of it replay "
            f"buffers, which makes {decimal(need)} while they are saved, and {decimal(free)} are free",
            advice,
            value=plan.experiment.population,
        )
