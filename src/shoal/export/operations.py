"""Operations of JAX as nodes of ONNX (opset 17).

Each entry of OPERATIONS is called with the graph, the step of the program, and the values of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
from jax.extend.core import Literal
from jax.lax import GatherScatterMode

from shoal.export.elementwise import ELEMENTWISE
from shoal.export.graph import Graph, Known, Unsupported, Value, element
from shoal.export.sampling import called

SAME_NUMBERS = ("broadcast_in_dim", "reshape", "squeeze", "transpose")  # the same elements in another order or shape


def translate(graph: Graph, program: Any, constants: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    """Add the nodes of a program, with constants folded. Returns its outputs.

    Raises Unsupported.
    """
    values: dict[Any, Value] = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))

    def read(x: Any) -> Value:
        # A number of Python in it, such as the 0 of a comparison, has the type that JAX took it for.
        return Known(np.asarray(x.val, x.aval.dtype)) if isinstance(x, Literal) else values[x]  # type: ignore[attr-defined]

    for step in program.eqns:
        kind, given = step.primitive.name, [read(x) for x in step.invars]
        known = [x for x in given if isinstance(x, Known)]
        if inner := called(step):
            made: Any = translate(graph, inner[0], [Known(np.asarray(x)) for x in inner[1]], given)
        elif len(known) == len(given) and all(isinstance(n, int) for x in step.outvars for n in x.aval.shape):
            made = step.primitive.bind(*(x.array for x in known), **step.params)
            name = {"name": known[0].name} if kind in SAME_NUMBERS else {}
            made = [Known(np.asarray(x), **name) for x in (made if step.primitive.multiple_results else [made])]
        elif kind in OPERATIONS:
            made = OPERATIONS[kind](graph, step, *given)
        else:
            raise Unsupported(f"the operation {kind}")
        values.update(zip(step.outvars, made if isinstance(made, list) else [made], strict=True))
    return [read(x) for x in program.outvars]


def _broadcast(graph: Graph, step: Any, x: Value, *sizes: Value) -> Value:
    shape, before = step.outvars[0].aval.shape, step.invars[0].aval.shape
    sides: list[Any] = [1] * len(shape)
    for axis, length in zip(step.params["broadcast_dimensions"], before, strict=True):
        sides[axis] = length
    narrow = x if tuple(sides) == before else graph.reshape(x, sides)
    return narrow if tuple(sides) == shape else graph.repeat(narrow, shape)


def _reshape(graph: Graph, step: Any, x: Value, *sizes: Value) -> Value:
    if step.primitive.name == "reshape" and step.params["dimensions"] is not None:
        raise Unsupported("the operation reshape in another order")
    return graph.reshape(x, step.outvars[0].aval.shape)


def _stack(graph: Graph, step: Any, *values: Value) -> Value:
    axis = step.params["axis"]
    return graph.add("Concat", *(graph.add("Unsqueeze", x, [axis]) for x in values), axis=axis)


def _split(graph: Graph, step: Any, x: Value) -> Value | list[Value]:
    sizes = step.params["sizes"]
    return graph.add("Split", x, sizes, outputs=len(sizes), axis=step.params["axis"])


def _slice(graph: Graph, step: Any, x: Value) -> Value:
    shape, options = step.invars[0].aval.shape, step.params
    strides = options["strides"] or [1] * len(shape)
    return _cut(graph, x, shape, list(zip(options["start_indices"], options["limit_indices"], strides, strict=True)))


def _cut(graph: Graph, x: Value, shape: Sequence[Any], parts: Sequence[tuple[Any, Any, Any]]) -> Value:
    """Slice; parts: start, stop and step of every axis."""
    cut = {axis: part for axis, (n, part) in enumerate(zip(shape, parts, strict=True)) if part != (0, n, 1)}
    if not cut:
        return x
    if any(not isinstance(n, (int, np.integer)) for part in cut.values() for n in part):
        raise Unsupported("the operation slice of a batch")
    first, last, by = zip(*cut.values(), strict=True)
    return graph.add("Slice", x, first, last, [*cut], by)


def _pad(graph: Graph, step: Any, x: Value, value: Value) -> Value:
    before, after, between = zip(*step.params["padding_config"], strict=True)
    if any(between):
        raise Unsupported("the operation pad between elements")
    shape = step.invars[0].aval.shape
    rest = [(max(-b, 0), n + min(a, 0), 1) for n, b, a in zip(shape, before, after, strict=True)]
    x, more = _cut(graph, x, shape, rest), [max(n, 0) for n in (*before, *after)]
    return graph.add("Pad", x, more, value) if any(more) else x


def _pick(graph: Graph, step: Any, x: Value, where: Value) -> Value:
    """Index some axes, as x[..., 0] does."""
    along, shape = step.params["dimension_numbers"].start_index_map, step.invars[0].aval.shape
    if not isinstance(where, Known) or where.array.shape != (len(along),):
        raise Unsupported("the operation gather")
    first, sizes = [0] * len(shape), step.params["slice_sizes"]
    for axis, index in zip(along, where.array.tolist(), strict=True):
        last = shape[axis] - sizes[axis]
        if not isinstance(last, int):
            raise Unsupported("the operation gather of a batch")
        first[axis] = min(max(index, 0), last)
        if first[axis] != index and step.params["mode"] != GatherScatterMode.CLIP:
            raise Unsupported("the operation gather out of bounds")
    parts = [(first[axis], first[axis] + size, 1) for axis, size in enumerate(sizes)]
    return graph.reshape(_cut(graph, x, shape, parts), step.outvars[0].aval.shape)


def _reduce(operation: str) -> Callable:
    """Reduce over some axes; to ONNX no axes would be all of them."""

    def add(graph: Graph, step: Any, x: Value) -> Value:
        axes = list(step.params["axes"])
        if not axes:
            return x
        if operation == "ReduceSum":  # it takes them as an input since opset 13
            return graph.add(operation, x, axes, keepdims=0)
        return graph.add(operation, x, axes=axes, keepdims=0)

    return add


def _all(graph: Graph, step: Any, x: Value) -> Value:
    if step.invars[0].aval.dtype != bool:
        raise Unsupported("the operation reduce_and of integers")
    least = _reduce("ReduceMin")(graph, step, graph.add("Cast", x, to=element(np.int32)))
    return graph.add("Cast", least, to=element(np.bool_))


def _largest(graph: Graph, step: Any, x: Value) -> Value:
    (axis,) = step.params["axes"]
    shape = step.invars[0].aval.shape
    if axis == len(shape) - 1:
        graph.logits.append((x, shape[-1]))
    return graph.add("Cast", graph.add("ArgMax", x, axis=axis, keepdims=0), to=element(step.params["index_dtype"]))


def _product(graph: Graph, step: Any, a: Value, b: Value) -> Value:
    """A product of tensors, in a type that holds its inputs and its result, such as int32 for two of int8."""
    types = [x.aval.dtype for x in (*step.invars, *step.outvars)]
    if len({*types}) > 1:
        wide = element(np.result_type(*types))
        made = _of_one_type(graph, step, *(graph.add("Cast", x, to=wide) for x in (a, b)))
        return graph.add("Cast", made, to=element(types[-1]))
    return _of_one_type(graph, step, a, b)


def _of_one_type(graph: Graph, step: Any, a: Value, b: Value) -> Value:
    (of_a, of_b), (batch_a, batch_b) = step.params["dimension_numbers"]
    left, right = (len(x.aval.shape) for x in step.invars)
    if not batch_a and right == 2 and tuple(of_a) == (left - 1,) and tuple(of_b) == (0,) and left > 1:
        return graph.add("MatMul", a, b)
    names_a, names_b = list(ascii_lowercase[:left]), list(ascii_lowercase[left : left + right])
    for i, j in (*zip(of_a, of_b, strict=True), *zip(batch_a, batch_b, strict=True)):
        names_b[j] = names_a[i]
    free = [x for i, x in enumerate(names_a) if i not in (*of_a, *batch_a)]
    free += [x for j, x in enumerate(names_b) if j not in (*of_b, *batch_b)]
    result = [names_a[i] for i in batch_a] + free
    return graph.add("Einsum", a, b, equation=f"{''.join(names_a)},{''.join(names_b)}->{''.join(result)}")


def _convolve(graph: Graph, step: Any, x: Value, kernel: Value) -> Value:
    p = step.params
    if any(n != 1 for n in p["lhs_dilation"]) or p["batch_group_count"] != 1 or not p["padding"]:
        raise Unsupported("the operation conv_general_dilated, transposed or without a window")
    of_x, of_kernel, of_result = p["dimension_numbers"]
    begins, ends = zip(*p["padding"], strict=True)
    y = graph.add(
        "Conv",
        graph.transpose(x, of_x),
        graph.transpose(kernel, of_kernel),
        strides=list(p["window_strides"]),
        dilations=list(p["rhs_dilation"]),
        pads=[*begins, *ends],
        group=p["feature_group_count"],
    )
    return graph.transpose(y, np.argsort(of_result).tolist())


OPERATIONS: dict[str, Callable] = {
    **ELEMENTWISE,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast,
    "transpose": lambda graph, step, x: graph.transpose(x, step.params["permutation"]),
    "concatenate": lambda graph, step, *values: graph.add("Concat", *values, axis=step.params["dimension"]),
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "pad": _pad,
    "gather": _pick,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_and": _all,
    "argmax": _largest,
    "dot_general": _product,
    "conv_general_dilated": _convolve,
}
