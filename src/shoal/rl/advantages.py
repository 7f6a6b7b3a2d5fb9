"""Returns and advantages of a rollout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from shoal.core.types import Array


def generalised_advantages(
    reward: Array,
    value: Array,
    bootstrap_value: Array,
    terminated: Array,
    truncated: Array,
    discount: Array,
    trace: Array,
) -> jax.Array:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16).

    All of [T, B] but `discount` and `trace` (lambda), scalars. `bootstrap_value` is the value of the observation before any
    automatic reset: a termination does not bootstrap from it, a truncation does; both cut the trace.
    Returns the advantages [T, B]; the value targets are advantages + value.
    """
    delta = reward + discount * bootstrap_value * (1 - terminated) - value
    keep = discount * trace * (1 - jnp.maximum(terminated, truncated))

    def backwards(advantage: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, keep = step
        advantage = delta + keep * advantage
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, keep), reverse=True, unroll=8)[1]
