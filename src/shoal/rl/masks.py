"""Action masks: choices that are illegal are never made (Huang & Ontañón 2022, arXiv 2006.14171)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from shoal.core.errors import BadField
from shoal.core.spec import MASK
from shoal.rl.networks import outputs

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree

ILLEGAL = -1e9  # a logit or value far below all others: its probability is 0 in float32, and 0 times it is no NaN


class ActionMask:
    """The legal choices of an environment, by its observations; all are, where these have no mask.

    keys: those of an observation that are needed
    """

    def __init__(self, spec: Spec):
        """Raise BadInput where the mask does not have one number for each choice of each action."""
        self.keys = (MASK,) if spec.masked else ()
        wanted = (outputs(spec.action),)
        if spec.masked and spec.obs_shape[MASK] != wanted:
            problem = f"its observations have an {MASK} of shape {spec.obs_shape[MASK]}"
            raise BadField("env", problem, f"it must have one number for each choice: {wanted}")

    def apply(self, obs: PyTree, scores: jax.Array) -> jax.Array:
        """Lower the scores, logits or values [..., choices], of what is illegal in observations [..., *].

        Where nothing is legal they stay as they are: after an episode's last step nobody acts.
        """
        if not self.keys:
            return scores
        legal = (obs[MASK] != 0).astype(jnp.float32)
        none = legal.max(-1, keepdims=True) == 0
        return jnp.where((legal == 0) & ~none, ILLEGAL, scores)
