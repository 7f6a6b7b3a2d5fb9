"""How a program of JAX becomes an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal

from shoal.export.graph import Graph, Known, Unsupported, Value, plain
from shoal.export.operations import OPERATIONS

# Operations that hold a program, and the name that they have for it.
CALLS = {
    **dict.fromkeys(("jit", "pjit", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vmap_call": "call",
}
SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose")  # in another order, or another shape


def translate(graph: Graph, program: Any, constants: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    """Add the nodes of a program. What depends on known numbers alone is computed here. Returns its outputs.

    Raises Unsupported.
    """
    values: dict[Any, Value] = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))

    def read(x: Any) -> Value:
        return Known(np.asarray(x.val)) if isinstance(x, Literal) else values[x]

    for step in program.eqns:
        kind, given = step.primitive.name, [read(x) for x in step.invars]
        if kind in CALLS:
            inner = step.params[CALLS[kind]]
            known = [Known(np.asarray(x)) for x in getattr(inner, "consts", ())]
            results = translate(graph, getattr(inner, "jaxpr", inner), known, given)
        elif all(isinstance(x, Known) for x in given) and _is_plain(step.outvars):
            results = _computed(step, given)
        elif kind in OPERATIONS:
            made = OPERATIONS[kind](graph, step, *given)
            results = made if isinstance(made, list) else [made]
        else:
            raise Unsupported(f"the operation {kind}")
        values.update(zip(step.outvars, results, strict=True))
    return [read(x) for x in program.outvars]


def _computed(step: Any, given: Sequence[Any]) -> list[Value]:
    made = step.primitive.bind(*(x.array for x in given), **step.params)
    arrays = [np.asarray(x) for x in (made if step.primitive.multiple_results else [made])]
    return [Known(x, given[0].name) if step.primitive.name in SAME_NUMBERS else Known(x) for x in arrays]


def _is_plain(outputs: Sequence[Any]) -> bool:
    return all(isinstance(plain(n), int) for x in outputs for n in x.aval.shape)
