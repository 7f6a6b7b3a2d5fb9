"""A builder of ONNX graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Unsupported(Exception):
    """An operation that ONNX export does not support."""


class Known(NamedTuple):
    """A constant. name: of the weights it comes from."""

    array: np.ndarray
    name: str = "constant"


class Wire(NamedTuple):
    """An output of a node, by name. narrow: the value before it was broadcast, which most nodes do by themselves."""

    name: str
    narrow: Known | Wire | None = None


Value = Known | Wire


class Graph:
    """Nodes and weights. obs: an input whose first axis is the batch; batch: the symbol of its size."""

    def __init__(self, obs: str, batch: Any):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.logits: list[tuple[Value, int]] = []  # inputs of argmax, and their lengths
        self._obs, self._batch = Wire(obs), batch
        self._written: dict[int, tuple[Known, str]] = {}

    def add(self, operation: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node. Returns its wire or wires. inputs: values, arrays, or integers, which become int64."""
        names = [f"{operation.lower()}.{len(self.nodes)}" + (f".{i}" if i else "") for i in range(outputs)]
        given = [x if isinstance(x, Value) else Known(np.asarray(x, getattr(x, "dtype", np.int64))) for x in inputs]
        self.nodes.append(helper.make_node(operation, [*map(self.name, given)], names, names[0], **attributes))
        wires = [Wire(name) for name in names]
        return wires[0] if outputs == 1 else wires

    def name(self, value: Value) -> str:
        """The name of a value; constants become weights of the graph."""
        if isinstance(value, Wire):
            return value.name
        if id(value.array) not in self._written:
            name, number = value.name, 1
            while name in self.weights:
                name, number = f"{value.name}.{number}", number + 1
            self.weights[name] = numpy_helper.from_array(np.asarray(value.array, order="C"), name)
            self._written[id(value.array)] = value, name
        return self._written[id(value.array)][1]

    def output(self, name: str, value: Value, dtype: Any, shape: Sequence[Any]) -> onnx.ValueInfoProto:
        """Make a value an output of the graph. Returns its declaration."""
        self.nodes.append(helper.make_node("Cast", [self.name(value)], [name], name, to=element(dtype)))
        return typed(name, dtype, shape)

    def needed(self, outputs: Collection[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes and weights that these outputs depend on."""
        names, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if names.intersection(node.output):
                nodes.append(node)
                names.update(node.input)
        return nodes[::-1], [x for name, x in self.weights.items() if name in names]

    def reshape(self, x: Value, shape: Sequence[Any]) -> Value:
        """Reshape; at most one side may be symbolic."""
        sides = [n if isinstance(n, int) else -1 for n in shape]
        if sides.count(-1) > 1:
            raise Unsupported("a shape with two sides that depend on the batch")
        if isinstance(x, Known):
            return Known(x.array.reshape(sides), x.name)
        if 0 in sides:  # it would keep the length of the input
            raise Unsupported("an array without elements")
        return self.add("Reshape", x, sides)

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """Transpose to this order of axes."""
        if isinstance(x, Known):
            return Known(x.array.transpose(axes), x.name)
        return self.add("Transpose", x, perm=list(axes))

    def repeat(self, x: Value, shape: Sequence[Any]) -> Value:
        """Broadcast to this shape."""
        if all(isinstance(n, int) for n in shape):
            return self.add("Expand", x, shape)._replace(narrow=x)
        if any(not isinstance(n, int) and n != self._batch for n in shape):
            raise Unsupported("a broadcast that depends on the batch size")
        parts = [[n] if isinstance(n, int) else self._batch_size for n in shape]
        return self.add("Expand", x, self.add("Concat", *parts, axis=0))._replace(narrow=x)

    @cached_property
    def _batch_size(self) -> Wire:
        return self.add("Shape", self._obs, start=0, end=1)


def element(dtype: Any) -> int:
    """The element type of ONNX for a dtype."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def typed(name: str, dtype: Any, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    """The declaration of an input or output."""
    return helper.make_tensor_value_info(name, element(dtype), [n if isinstance(n, int) else str(n) for n in shape])
