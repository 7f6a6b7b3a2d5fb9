"""Operations of JAX on each element by itself, as nodes of ONNX.

Each entry of ELEMENTWISE is called with the graph, the step of the program, and the values of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import RoundingMethod

from shoal.export.graph import Graph, Known, Unsupported, Value, Wire, element


def _together(step: Any, values: Sequence[Value]) -> Sequence[Value]:
    """Inputs of a node that broadcasts; one of them has the full shape."""
    narrow = [x.narrow if isinstance(x, Wire) and x.narrow is not None else x for x in values]
    whole = [var.aval.shape == step.outvars[0].aval.shape for var in step.invars]
    return narrow if any(n is x and w for n, x, w in zip(narrow, values, whole, strict=True)) else values


def _each(operation: str, **attributes: Any) -> Callable:
    """An elementwise operation of ONNX."""
    return lambda graph, step, *values: graph.add(operation, *_together(step, values), **attributes)


def _like(step: Any, number: float) -> np.ndarray:
    return np.asarray(number, step.invars[0].aval.dtype)


def _cast(graph: Graph, step: Any, x: Value) -> Value:
    """Convert. From floats to integers JAX takes the nearest limit, and 0 for NaN; in ONNX both are undefined."""
    old, new = step.invars[0].aval.dtype, np.dtype(step.params["new_dtype"])
    if old == new:
        return x
    if jnp.issubdtype(old, jnp.floating) and jnp.issubdtype(new, jnp.integer):
        low, high = (np.float64(limit) for limit in (np.iinfo(new).min, np.iinfo(new).max))
        x = graph.add("Where", graph.add("IsNaN", x), _like(step, 0), x)
        x = _clamp(graph, step, low, graph.add("Cast", x, to=element(np.float64)), high)
    return graph.add("Cast", x, to=element(new))


def _clamp(graph: Graph, step: Any, low: Any, x: Value, high: Any) -> Value:
    return graph.add("Min", graph.add("Max", x, low), high)


def _round(graph: Graph, step: Any, x: Value) -> Value:
    """Round. ONNX rounds halves to even; away from zero, those that it rounded down are one too low."""
    if step.params["rounding_method"] == RoundingMethod.TO_NEAREST_EVEN:
        return graph.add("Round", x)
    size = graph.add("Abs", x)
    even = graph.add("Round", size)
    low = graph.add("Equal", graph.add("Sub", size, even), _like(step, 0.5))
    rounded = graph.add("Add", even, graph.add("Cast", low, to=element(step.invars[0].aval.dtype)))
    return graph.add("Mul", graph.add("Sign", x), rounded)


def _expm1(graph: Graph, step: Any, x: Value) -> Value:
    """Near 0, where 1 would cancel, by tanh(x / 2)."""
    t = graph.add("Tanh", graph.add("Mul", x, _like(step, 0.5)))
    near = graph.add("Div", graph.add("Add", t, t), graph.add("Sub", _like(step, 1), t))
    far = graph.add("Sub", graph.add("Exp", x), _like(step, 1))
    return graph.add("Where", graph.add("Less", graph.add("Abs", x), _like(step, 1)), near, far)


def _log1p(graph: Graph, step: Any, x: Value) -> Value:
    """Near 0, where x would be lost beside 1, by atanh(x / (x + 2))."""
    t = graph.add("Atanh", graph.add("Div", x, graph.add("Add", x, _like(step, 2))))
    far = graph.add("Log", graph.add("Add", x, _like(step, 1)))
    return graph.add("Where", graph.add("Less", graph.add("Abs", x), _like(step, 0.5)), graph.add("Add", t, t), far)


def _power(graph: Graph, step: Any, x: Value) -> Value:
    """By squaring, as in JAX: Pow would compute integers in floating point."""
    y, result = step.params["y"], x
    if y == 0:
        return graph.add("Pow", x, _like(step, 0))
    for bit in f"{abs(y):b}"[1:]:
        result = graph.add("Mul", result, result)
        result = graph.add("Mul", result, x) if bit == "1" else result
    return graph.add("Reciprocal", result) if y < 0 else result


def _divide(operation: str, **attributes: Any) -> Callable:
    """Divide. An integer by 0 is a number in JAX, and an error in onnxruntime."""

    def add(graph: Graph, step: Any, a: Value, b: Value) -> Value:
        known = b.narrow if isinstance(b, Wire) else b
        safe = isinstance(known, Known) and known.array.all()
        if jnp.issubdtype(step.invars[1].aval.dtype, jnp.integer) and not safe:
            raise Unsupported("a division of integers by what may be 0")
        return _each(operation, **attributes)(graph, step, a, b)

    return add


def _choose(graph: Graph, step: Any, which: Value, *cases: Value) -> Value:
    if len(cases) != 2 or step.invars[0].aval.dtype != bool:
        raise Unsupported("the operation select_n of more than two cases")
    known = which.narrow if isinstance(which, Wire) else which
    if isinstance(known, Known) and np.unique(known.array).size == 1:  # such as: has it been trained yet?
        return cases[int(known.array.flat[0])]
    return graph.add("Where", *_together(step, (which, cases[1], cases[0])))


SAME_NAME = "add sub mul max min neg abs exp log tanh sqrt sin cos erf sign floor ceil pow and or xor not"
COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
ELEMENTWISE: dict[str, Callable] = {
    **{name: _each(name.title()) for name in SAME_NAME.split()},
    **{name: _each(operation) for name, operation in COMPARISONS.items()},
    **dict.fromkeys(("stop_gradient", "copy"), lambda graph, step, x: x),
    "logistic": _each("Sigmoid"),
    "div": _divide("Div"),
    "rem": _divide("Mod", fmod=1),
    "round": _round,
    "ne": lambda graph, step, a, b: graph.add("Not", graph.add("Equal", *_together(step, (a, b)))),
    "square": lambda graph, step, x: graph.add("Mul", x, x),
    "rsqrt": lambda graph, step, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "expm1": _expm1,
    "log1p": _log1p,
    "integer_pow": _power,
    "clamp": _clamp,
    "select_n": _choose,
    "is_finite": lambda graph, step, x: graph.add("Not", graph.add("Or", graph.add("IsInf", x), graph.add("IsNaN", x))),
    "convert_element_type": _cast,
}
