"""A term of one's own in the loss of a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.errors import BadField
from shoal.core.user_code import call_own, import_from

FIELD = "config.auxiliary_loss"


def make_auxiliary_loss(given: Any) -> Callable[[Any, Any, jax.Array], jax.Array] | None:
    """Auxiliary loss of the policy at each step: (batch, distribution, like) -> float32, of the shape of `like`.

    given: module:function, or the function, of a batch and of the distribution of the policy's actions in it; None: nothing.
    Raises BadInput; what is made of it does too, when it is traced.
    """
    if given is None:
        return None
    function = import_from(given, FIELD) if isinstance(given, str) else given
    if not callable(function):
        raise BadField(FIELD, "write module:function", value=repr(given))

    def auxiliary_loss(batch: Any, distribution: Any, like: jax.Array) -> jax.Array:
        made = call_own(FIELD, "it", function, batch, distribution)
        if jnp.shape(made) != like.shape:
            problem = f"gives {jnp.shape(made)} for a batch of {like.shape}"
            raise BadField(FIELD, problem, "it must give one number for each step")
        return jnp.asarray(made, jnp.float32)

    return auxiliary_loss
