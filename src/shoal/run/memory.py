"""What a population takes of the memory of the devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.types import Population
from shoal.core.visible import readable
from shoal.experiment.resolve import Resolved
from shoal.members.devices import free_memory
from shoal.trainers.trainers import Trainers

COPIES_TO_SAVE = 3  # of the state in memory: the one at work, one that waits to be written, one as a file


def memory_needed(resolved: Resolved) -> int:
    """Bytes that the state of the whole population takes on the devices, replay memory included."""
    if isinstance(resolved.learner, Trainers):  # it is in their processes
        return 0
    return tree.size_in_bytes(_population(resolved))


def replay_size(resolved: Resolved) -> int:
    """Bytes of it that are replay memory."""
    if isinstance(resolved.learner, Trainers):
        return 0
    population = _population(resolved)
    return tree.size_in_bytes((population.members.memory, getattr(population.shared, "memory", ())))


def check_memory(resolved: Resolved) -> None:
    """Raise BadInput where the population does not fit into the memory of the devices."""
    population, free = resolved.experiment.population, free_memory()
    state = memory_needed(resolved)
    need = state * (COPIES_TO_SAVE if jax.default_backend() == "cpu" else 1)
    if free is not None and need > free:
        share = replay_size(resolved)
        advice = "lower config.capacity or population" if share > state / 2 else "lower population or config.layers"
        raise BadField(
            "population",
            f"{population} members take {readable(state)}, {readable(share)} of it replay "
            f"memory, which makes {readable(need)} while they are saved, and {readable(free)} are free",
            advice,
            value=population,
        )


def _population(resolved: Resolved) -> Population:
    assert not isinstance(resolved.learner, Trainers)
    n = resolved.experiment.population
    hyper = jax.tree.map(lambda x: jax.ShapeDtypeStruct((n,), jnp.float32), resolved.agent.hyper)
    return jax.eval_shape(resolved.learner.init, jax.random.key(0), jax.ShapeDtypeStruct((n,), jnp.uint32), hyper)
