"""Operations of JAX as nodes of ONNX: onnxruntime computes the same numbers, or the operation is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax import lax
from onnx import helper
from support.champions import made
from support.messages import Said

from shoal.core.errors import BadInput
from shoal.export.graph import Graph, Known, Unsupported, Wire, typed
from shoal.export.onnx_file import IR, OPSET, write_onnx
from shoal.export.operations import translate

INT8 = np.array([[-128, 127, 3], [100, 100, 7]], np.int8)
INTEGERS = np.array([-7, 7, 0, 5, -5, 2**31 - 1, -(2**31), 3, 46341], np.int32)
FLOATS = np.array([0, -0.0, 1e-8, -1e-8, 3e-5, 0.3, -0.3, -0.99, 1, -7, 88, 1e30, np.inf, -np.inf, np.nan], np.float32)
IMAGES = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609, -3.2, np.inf, np.nan], np.float32)


def exported(function: Callable, x: np.ndarray) -> np.ndarray:
    """The result of a function as onnxruntime computes it. Raises Unsupported."""
    program = jax.make_jaxpr(function)(x)
    graph, (result,) = Graph("x", len(x)), program.jaxpr.outvars
    (value,) = translate(graph, program.jaxpr, [*map(Known, map(np.asarray, program.consts))], [Wire("x")])
    output = graph.output("y", value, result.aval.dtype, result.aval.shape)
    nodes, weights = graph.needed(["y"])
    made = helper.make_graph(nodes, "function", [typed("x", x.dtype, x.shape)], [output], weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


def dot(x: jax.Array, dtype: str) -> jax.Array:
    return lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type=np.dtype(dtype))


SAME: dict[str, tuple[Callable, np.ndarray]] = {
    "round away from zero": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), HALVES),
    "round to even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), HALVES),
    "expm1": (lax.expm1, FLOATS),
    "log1p": (lax.log1p, FLOATS),
    "integer power": (lambda x: lax.integer_pow(x, 5), INTEGERS),
    "negative power": (lambda x: lax.integer_pow(x, -3), FLOATS),
    "power of 0": (lambda x: lax.integer_pow(x, 0), FLOATS),
    "division of integers": (lambda x: lax.div(x, np.int32(-2)), INTEGERS),
    "remainder of integers": (lambda x: lax.rem(x, np.int32(3)), INTEGERS),
    "float to int32": (lambda x: x.astype("int32"), FLOATS * 1e8),
    "float to uint8": (lambda x: x.astype("uint8"), FLOATS * 3),
    "float to uint32": (lambda x: x.astype("uint32"), FLOATS * 1e8),
    "product with a wider type": (lambda x: dot(x, "int32"), INT8),
    "product of integers as floats": (lambda x: dot(x, "float32"), INT8),
    "sum over no axis": (lambda x: jnp.sum(x, axis=()), IMAGES),
    "maximum over no axis": (lambda x: jnp.max(x, axis=()), IMAGES),
    "take, clipped": (lambda x: x.at[..., 9].get(mode="clip"), IMAGES),
    "window, clipped": (
        lambda x: lax.gather(x, np.array([3]), lax.GatherDimensionNumbers((0, 1, 2), (), (1,)), (3, 2, 5), mode="clip"),
        IMAGES,
    ),
    "first of several largest": (lambda x: jnp.argmax(x, -1), np.array([[1, 3, 3], [2, 2, 2]], np.float32)),
}


@pytest.mark.parametrize(("function", "x"), SAME.values(), ids=SAME)
@jax.numpy_dtype_promotion("standard")
def test_the_same_numbers(function: Callable, x: np.ndarray) -> None:
    expected, found = np.asarray(jax.jit(function)(x)), exported(function, x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=0)
    else:
        np.testing.assert_array_equal(found, expected)


REFUSED: dict[str, tuple[Callable, np.ndarray]] = {
    "division by what may be 0": (lambda x: lax.div(np.int32(5), x), INTEGERS),
    "remainder by what may be 0": (lambda x: lax.rem(x, x), INTEGERS),
    "and of bits": (lambda x: jnp.bitwise_and.reduce(x.reshape(3, 3), axis=1), INTEGERS),
    "take, filled": (lambda x: x.at[..., -7].get(mode="fill", fill_value=3.0), IMAGES),
    "an empty array": (lambda x: jnp.pad(x, ((0, 0), (0, 0), (1, 1)), mode="edge"), IMAGES),
    "a convolution without a window": (
        lambda x: lax.conv_general_dilated(x[0], x[1].T, (), [], dimension_numbers=("NC", "IO", "NC")),
        IMAGES,
    ),
}


@pytest.mark.parametrize(("function", "x"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_another_number_is_refused(function: Callable, x: np.ndarray, said: Said) -> None:
    with pytest.raises(Unsupported) as error:
        exported(function, x)
    said(error.value)


class Bits(nn.Module):
    """An operation on integers that ONNX has for booleans only."""

    def __call__(self, obs: jax.Array) -> jax.Array:
        return (obs.astype("int32") & jnp.ones((), "int32")).astype("float32")


def test_types_that_onnx_does_not_have(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        write_onnx(made("ppo", "discrete", network=lambda spec: Bits()), tmp_path / "policy.onnx")
    said(error.value)
    assert not list(tmp_path.iterdir())
