"""Agents whose functions are compiled, each once for all tests of a file."""

from __future__ import annotations

import jax

from shoal.core.types import Agent


def compiled(agent: Agent) -> Agent:
    """The agent with compiled functions."""
    functions = {name: jax.jit(getattr(agent, name)) for name in ("init", "act", "act_deterministic", "update")}
    return agent._replace(**functions)
