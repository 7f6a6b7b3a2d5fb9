"""An agent that learns nothing, and remembers the hyperparameter that each of its updates got."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from shoal.core.space import HyperparameterSpec, Range, end_factor
from shoal.core.spec import Spec
from shoal.core.types import Agent, Member

UPDATES = 64  # at most


class Hyper(NamedTuple):
    rate: Annotated[Any, HyperparameterSpec("that is remembered", Range(1.0, 4.0))] = 2.0
    rate_end_factor: Annotated[Any, end_factor("rate")] = 1.0


def clocked(spec: Spec) -> Agent:
    """Two steps in two environments for each update."""

    def init(key: Any, hyper: Any) -> Member:
        return Member({"rates": jnp.zeros(UPDATES), "made": jnp.int32(0)}, (), ())

    def act_deterministic(learned: Any, obs: Any, carry: Any) -> tuple[Any, Any]:
        return jnp.zeros(obs.shape[:1], jnp.int32), carry

    def act(learned: Any, hyper: Any, obs: Any, carry: Any, key: Any) -> tuple[Any, Any, Any]:
        return *act_deterministic(learned, obs, carry), ()

    def update(member: Member, hyper: Any, rollout: Any, key: Any) -> tuple[Member, dict[str, Any]]:
        made = member.learned["made"]
        rates = member.learned["rates"].at[made].set(hyper.rate)
        return member._replace(learned={"rates": rates, "made": made + 1}), {"rate": jnp.float32(hyper.rate)}

    return Agent(init, act, act_deterministic, update, lambda shape: (), Hyper(), 2, 2)
