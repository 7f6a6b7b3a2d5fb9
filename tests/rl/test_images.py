"""Convolutions, pools and networks for images against NumPy, and their gradients."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from support.cases import every_slow
from support.images import convolution, impala, pool, windows

from shoal.core.spec import Discrete, Spec
from shoal.rl import images
from shoal.rl.images import Conv, convolve, max_pool
from shoal.rl.networks import channels_first, make_network


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "size", "stride", "padding"),
    every_slow(
        [
            ((4, 11, 10, 3), 4, 2, 0),
            ((2, 3, 9, 12, 2), 3, 1, 1),
            ((1, 13, 9, 1), 5, 4, 0),
            ((2, 12, 7, 2), 5, 3, 2),
            ((6, 6, 2), 6, 1, 0),
            ((2, 7, 5, 2), 1, 3, 0),
        ],
        2,
    ),
)
def test_convolution(shape, size, stride, padding):
    """Also where the stride leaves rows or columns over, and under any leading axes."""
    x, layer = normal(*shape), Conv(5, size, stride, padding)
    params = jax.jit(layer.init)(jax.random.key(0), x)["params"]
    assert params["kernel"].shape == (size * size * shape[-1], 5) and not np.any(params["bias"])
    params = {"kernel": params["kernel"], "bias": np.arange(5, dtype=np.float32)}
    got = jax.jit(layer.apply)({"params": params}, x)
    expected = convolution(x, **params, size=size, stride=stride, padding=padding)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("padding", "cache"), every_slow([(1, 4000), (0, 2**20), (0, 1)], 1))
def test_gradients_of_a_convolution(padding, cache, monkeypatch):
    """Two members, six images, in groups of any size: a convolution is linear in images and kernel, which gives both."""
    monkeypatch.setattr(images, "CACHE", cache)
    x, kernel = normal(2, 6, 5, 4, 2), normal(2, 3, 3, 2, 3, seed=1)
    side = 2 * padding - 2
    given = normal(2, 6, 5 + side, 4 + side, 3, seed=2)

    def back(x: jax.Array, kernel: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vjp(lambda x, kernel: convolve(x, kernel, padding), x, kernel)[1](given)

    of_x, of_kernel = jax.jit(jax.vmap(back))(x, kernel, given)
    for i in range(2):
        seen = windows(x[i], 3, 1, (padding, padding), 0)
        np.testing.assert_allclose(of_kernel[i], np.einsum("kabcij,kabf->ijcf", seen, given[i]), rtol=1e-4, atol=1e-5)
        moved = normal(6, 5, 4, 2, seed=3)
        change = np.einsum("kabcij,ijcf->kabf", windows(moved, 3, 1, (padding, padding), 0), kernel[i])
        np.testing.assert_allclose((of_x[i] * moved).sum(), (change * given[i]).sum(), rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 7, 8, 3), (6, 5, 1), (1, 1, 1, 2)])
def test_max_pool(shape):
    """The largest, and a gradient that goes to it alone."""
    x = normal(*shape)
    expected = pool(x)

    def largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = max_pool(x)
        return found.sum(), found

    (_, got), gradient = jax.jit(jax.value_and_grad(largest, has_aux=True))(x)
    np.testing.assert_array_equal(got, expected.astype(np.float32))
    assert gradient.sum() == expected.size
    np.testing.assert_array_equal(np.asarray(gradient) > 0, np.isin(x, got))


@pytest.mark.parametrize("shape", [(9, 8, 3), pytest.param((3, 8, 8), marks=pytest.mark.slow)])
def test_impala(shape):
    """The whole network, wherever the channels come; it is the same for bytes and their shares of 255."""
    obs = np.random.default_rng(0).integers(256, size=(2, *shape), dtype=np.uint8)
    network = make_network("impala", Spec(shape, "uint8", Discrete(2)))
    rng, shapes = np.random.default_rng(1), jax.eval_shape(network.init, jax.random.key(0), obs)
    params = jax.tree.map(lambda x: np.float32(rng.normal(size=x.shape) / x.shape[0] ** 0.5), shapes)
    got = jax.jit(network.apply)(params, obs)
    share = np.moveaxis(obs, 1, -1) if shape[0] == 3 else obs
    expected = impala(params["params"]["Impala_0"], share / 255)
    assert got.shape == (2, 256) and 0.1 < (expected > 0).mean() < 1
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("first", "shape"),
    [
        *[(True, shape) for shape in [(4, 84, 84), (3, 64, 64), (1, 36, 44), (3, 210, 160)]],
        *[
            (False, shape)
            for shape in [(84, 84, 4), (10, 10, 4), (10, 10, 16), (10, 10, 10), (210, 160, 3), (144, 36, 3)]
        ],
    ],
)
def test_where_the_channels_are(first, shape):
    assert channels_first(shape) == first
