"""The operations of JAX that a network is made of, each as nodes of ONNX (opset 17).

Each entry of OPERATIONS is called with the graph, the step of the program, and the values of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.export.graph import Graph, Known, Unsupported, Value, Wire, element

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _together(step: Any, values: Sequence[Value]) -> list[Value]:
    """Inputs of a node that repeats them to one shape by itself; one of them has that shape."""
    shape = step.outvars[0].aval.shape

    def narrow(x: Value) -> Value:
        return x.narrow if isinstance(x, Wire) and x.narrow is not None else x

    whole = [narrow(x) is x and var.aval.shape == shape for x, var in zip(values, step.invars, strict=True)]
    return [narrow(x) for x in values] if any(whole) else list(values)


def _each(operation: str, **attributes: Any) -> Callable:
    """An operation on each element that ONNX has too."""
    return lambda graph, step, *values: graph.add(operation, *_together(step, values), **attributes)


def _like(step: Any, number: float) -> np.ndarray:
    return np.asarray(number, step.invars[0].aval.dtype)


def _same(graph: Graph, step: Any, x: Value) -> Value:
    return x


def _cast(graph: Graph, step: Any, x: Value) -> Value:
    new = step.params["new_dtype"]
    return x if step.invars[0].aval.dtype == new else graph.add("Cast", x, to=element(new))


def _power(graph: Graph, step: Any, x: Value) -> Value:
    y = step.params["y"]
    return graph.add("Mul", x, x) if y == 2 else graph.add("Pow", x, _like(step, y))


def _clamp(graph: Graph, step: Any, low: Value, x: Value, high: Value) -> Value:
    return graph.add("Min", graph.add("Max", x, low), high)


def _choose(graph: Graph, step: Any, which: Value, *cases: Value) -> Value:
    if len(cases) != 2 or step.invars[0].aval.dtype != bool:
        raise Unsupported("the operation select_n of more than two cases")
    return graph.add("Where", *_together(step, (which, cases[1], cases[0])))


def _is_finite(graph: Graph, step: Any, x: Value) -> Value:
    return graph.add("Not", graph.add("Or", graph.add("IsInf", x), graph.add("IsNaN", x)))


def _broadcast(graph: Graph, step: Any, x: Value, *sizes: Value) -> Value:
    shape, before = step.params["shape"], step.invars[0].aval.shape
    sides: list[Any] = [1] * len(shape)
    for axis, length in zip(step.params["broadcast_dimensions"], before, strict=True):
        sides[axis] = length
    narrow = x if tuple(sides) == tuple(before) else graph.reshape(x, sides)
    return narrow if tuple(sides) == tuple(shape) else graph.repeat(narrow, shape)


def _reshape(graph: Graph, step: Any, x: Value, *sizes: Value) -> Value:
    if step.primitive.name == "reshape" and step.params["dimensions"] is not None:
        raise Unsupported("the operation reshape in another order")
    return graph.reshape(x, step.outvars[0].aval.shape)


def _transpose(graph: Graph, step: Any, x: Value) -> Value:
    return graph.add("Transpose", x, perm=list(step.params["permutation"]))


def _concatenate(graph: Graph, step: Any, *values: Value) -> Value:
    return graph.add("Concat", *values, axis=step.params["dimension"])


def _stack(graph: Graph, step: Any, *values: Value) -> Value:
    axis = step.params["axis"]
    parts = [graph.add("Unsqueeze", x, np.array([axis], np.int64)) for x in values]
    return graph.add("Concat", *parts, axis=axis)


def _split(graph: Graph, step: Any, x: Value) -> list[Value]:
    sizes, axis = np.array(step.params["sizes"], np.int64), step.params["axis"]
    made = graph.add("Split", x, sizes, outputs=len(sizes), axis=axis)
    return made if len(sizes) > 1 else [made]


def _slice(graph: Graph, step: Any, x: Value) -> Value:
    shape, options = step.invars[0].aval.shape, step.params
    strides = options["strides"] or [1] * len(shape)
    return _cut(graph, x, shape, list(zip(options["start_indices"], options["limit_indices"], strides, strict=True)))


def _cut(graph: Graph, x: Value, shape: Sequence[Any], parts: Sequence[tuple[Any, Any, Any]]) -> Value:
    """From, to and step of every axis."""
    cut = {axis: part for axis, (n, part) in enumerate(zip(shape, parts, strict=True)) if part != (0, n, 1)}
    if not cut:
        return x
    if any(not isinstance(n, (int, np.integer)) for part in cut.values() for n in part):
        raise Unsupported("the operation slice of a batch")
    first, last, by = (np.array(numbers, np.int64) for numbers in zip(*cut.values(), strict=True))
    return graph.add("Slice", x, first, last, np.array(list(cut), np.int64), by)


def _pad(graph: Graph, step: Any, x: Value, value: Value) -> Value:
    shape, around = step.invars[0].aval.shape, step.params["padding_config"]
    if any(between for _, _, between in around):
        raise Unsupported("the operation pad between elements")
    rest = [
        (max(-before, 0), n + after if after < 0 else n, 1) for n, (before, after, _) in zip(shape, around, strict=True)
    ]
    x = _cut(graph, x, shape, rest)
    more = [max(before, 0) for before, _, _ in around] + [max(after, 0) for _, after, _ in around]
    return graph.add("Pad", x, np.array(more, np.int64), value) if any(more) else x


def _pick(graph: Graph, step: Any, x: Value, where: Value) -> Value:
    """One place along some axes, as x[..., 0] asks for it."""
    along, shape = step.params["dimension_numbers"].start_index_map, step.invars[0].aval.shape
    if not isinstance(where, Known) or where.array.shape != (len(along),):
        raise Unsupported("the operation gather")
    first = dict(zip(along, where.array.tolist(), strict=True))
    parts = [
        (first[axis], first[axis] + size, 1) if axis in first else (0, size, 1)
        for axis, size in enumerate(step.params["slice_sizes"])
    ]
    return graph.reshape(_cut(graph, x, shape, parts), step.outvars[0].aval.shape)


def _reduce(operation: str) -> Callable:
    def translated(graph: Graph, step: Any, x: Value) -> Value:
        return graph.add(operation, x, axes=list(step.params["axes"]), keepdims=0)

    return translated


def _all(graph: Graph, step: Any, x: Value) -> Value:
    least = _reduce("ReduceMin")(graph, step, graph.add("Cast", x, to=element(np.int32)))
    return graph.add("Cast", least, to=element(np.bool_))


def _sum(graph: Graph, step: Any, x: Value) -> Value:
    return graph.add("ReduceSum", x, np.array(step.params["axes"], np.int64), keepdims=0)


def _largest(graph: Graph, step: Any, x: Value) -> Value:
    (axis,) = step.params["axes"]
    shape = step.invars[0].aval.shape
    if axis == len(shape) - 1:
        graph.scores.append((x, shape[-1]))
    return graph.add("Cast", graph.add("ArgMax", x, axis=axis, keepdims=0), to=element(step.params["index_dtype"]))


def _product(graph: Graph, step: Any, a: Value, b: Value) -> Value:
    (of_a, of_b), (batch_a, batch_b) = step.params["dimension_numbers"]
    left, right = (len(x.aval.shape) for x in step.invars)
    if not batch_a and right == 2 and tuple(of_a) == (left - 1,) and tuple(of_b) == (0,) and left > 1:
        return graph.add("MatMul", a, b)
    names_a, names_b = list(LETTERS[:left]), list(LETTERS[left : left + right])
    for i, j in (*zip(of_a, of_b, strict=True), *zip(batch_a, batch_b, strict=True)):
        names_b[j] = names_a[i]
    free = [x for i, x in enumerate(names_a) if i not in (*of_a, *batch_a)]
    free += [x for j, x in enumerate(names_b) if j not in (*of_b, *batch_b)]
    result = [names_a[i] for i in batch_a] + free
    return graph.add("Einsum", a, b, equation=f"{''.join(names_a)},{''.join(names_b)}->{''.join(result)}")


def _convolve(graph: Graph, step: Any, x: Value, kernel: Value) -> Value:
    p = step.params
    if any(n != 1 for n in p["lhs_dilation"]) or p["batch_group_count"] != 1:
        raise Unsupported("the operation conv_general_dilated, transposed")
    of_x, of_kernel, of_result = p["dimension_numbers"]
    begins, ends = zip(*p["padding"], strict=True)
    y = graph.add(
        "Conv",
        graph.add("Transpose", x, perm=list(of_x)),
        Known(kernel.array.transpose(of_kernel), kernel.name)
        if isinstance(kernel, Known)
        else graph.add("Transpose", kernel, perm=list(of_kernel)),
        strides=list(p["window_strides"]),
        dilations=list(p["rhs_dilation"]),
        pads=[*begins, *ends],
        group=p["feature_group_count"],
    )
    return graph.add("Transpose", y, perm=np.argsort(of_result).tolist())


OPERATIONS: dict[str, Callable] = {
    **{name: _each(name.title()) for name in ("add", "sub", "mul", "div", "max", "min", "neg", "abs", "exp", "log")},
    **{name: _each(name.title()) for name in ("tanh", "sqrt", "sin", "cos", "erf", "sign", "floor", "ceil", "pow")},
    **{name: _each(name.title()) for name in ("and", "or", "xor", "not")},
    **{"logistic": _each("Sigmoid"), "rem": _each("Mod", fmod=1), "round": _each("Round")},
    **{"eq": _each("Equal"), "lt": _each("Less"), "le": _each("LessOrEqual")},
    **{"gt": _each("Greater"), "ge": _each("GreaterOrEqual")},
    **dict.fromkeys(("stop_gradient", "copy"), _same),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "ne": lambda graph, step, a, b: graph.add("Not", graph.add("Equal", *_together(step, (a, b)))),
    "square": lambda graph, step, x: graph.add("Mul", x, x),
    "rsqrt": lambda graph, step, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "expm1": lambda graph, step, x: graph.add("Sub", graph.add("Exp", x), _like(step, 1)),
    "log1p": lambda graph, step, x: graph.add("Log", graph.add("Add", x, _like(step, 1))),
    "integer_pow": _power,
    "clamp": _clamp,
    "select_n": _choose,
    "is_finite": _is_finite,
    "convert_element_type": _cast,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "pad": _pad,
    "gather": _pick,
    "reduce_sum": _sum,
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_and": _all,
    "argmax": _largest,
    "dot_general": _product,
    "conv_general_dilated": _convolve,
}
