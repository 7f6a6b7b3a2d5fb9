"""Networks for images, and the convolution that they are made of, in the form that is fastest on a CPU.

A convolution, and the gradient of its input, is one of the compiler's. Its gradient of a kernel takes up to ten times as
long as either on a CPU: there it is a single product, of as many images at a time as stay in the cache; and a convolution
of few channels takes columns in pairs (benchmarks/pixels.py).
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from shoal.rl.initialisers import orthogonal

CACHE = 2**21  # bytes of copies that are made at a time
FEW = 16  # channels below which columns are taken in pairs


def _convolution(x: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    layout, around = ("NHWC", "HWIO", "NHWC"), [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), around, dimension_numbers=layout)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(x: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    """A convolution of stride 1, with so many rows and columns of zeros around the images.

    [K, H, W, C], [size, size, C, F] -> [K, H + 2 * padding - size + 1, W + 2 * padding - size + 1, F]

    Under `vmap` members take turns: one convolution of all of them would be a grouped one, which is slow.
    """
    few = jax.default_backend() == "cpu" and x.shape[-1] < FEW
    form = _by_pairs if few else _convolution
    return jax.custom_batching.sequential_vmap(lambda x, kernel: form(x, kernel, padding))(x, kernel)


def _forwards(x: jax.Array, kernel: jax.Array, padding: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return convolve(x, kernel, padding), (x, kernel)


def _backwards(padding: int, saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved

    @jax.custom_batching.sequential_vmap
    def of_kernel(x: jax.Array, gradient: jax.Array) -> jax.Array:
        if jax.default_backend() == "cpu":
            return _of_kernel(x, gradient, kernel.shape[0], padding)
        return jax.vjp(lambda k: _convolution(x, k, padding), jnp.zeros(kernel.shape, kernel.dtype))[1](gradient)[0]

    turned = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
    return convolve(gradient, turned, kernel.shape[0] - 1 - padding), of_kernel(x, gradient)


convolve.defvjp(_forwards, _backwards)


def _by_pairs(x: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    """Run `_convolution` with pairs of columns as one column, which doubles the few channels."""
    size, _, channels, features = kernel.shape
    width = x.shape[2] + 2 * padding - size + 1
    pairs, seen = -(-width // 2), size // 2 + 1  # of columns: made, and seen by each of these
    both = [jnp.pad(kernel, ((0, 0), (column, 2 * seen - size - column), (0, 0), (0, 0))) for column in (0, 1)]
    kernel = jnp.stack(both, -2).reshape(size, seen, 2 * channels, 2 * features)
    columns = 2 * (pairs + seen - 1)
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding, columns - x.shape[2] - padding), (0, 0)))
    y = _convolution(x.reshape(*x.shape[:2], -1, 2 * channels), kernel, 0)
    return y.reshape(*y.shape[:2], 2 * pairs, features)[:, :, :width]


def _of_kernel(x: jax.Array, gradient: jax.Array, size: int, padding: int) -> jax.Array:
    """The gradient of a kernel [size, size, C, F]: one product, [places, size * C] transposed with [places, size * F].

    The image stands beside itself, moved by each column of the kernel, and the gradient beside itself, moved by each row:
    size * (C + F) numbers per place are copied, where patches of the image would be size * size * C.
    """
    (height, width), features = (x.shape[1], gradient.shape[2]), gradient.shape[3]
    missing = size - 1 - padding

    def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        wide = jnp.pad(part[0], ((0, 0), (0, 0), (padding, padding), (0, 0)))
        high = jnp.pad(part[1], ((0, 0), (missing, missing), (0, 0), (0, 0)))
        by_column = jnp.concatenate([wide[:, :, i : i + width] for i in range(size)], -1)
        by_row = jnp.concatenate([high[:, i : i + height] for i in reversed(range(size))], -1)
        # over one axis: a product that sums over three takes twice as long
        images, gradients = (a.reshape(-1, a.shape[-1]) for a in (by_column, by_row))
        both = (((0,), (0,)), ((), ()))
        return total + jax.lax.dot_general(images, gradients, both, preferred_element_type=jnp.float32), None

    nothing = jnp.zeros((size * x.shape[3], size * features), jnp.float32)
    fits = max(1, CACHE // (height * width * sum(nothing.shape) * x.dtype.itemsize))
    group = next(n for n in range(min(len(x), fits), 0, -1) if len(x) % n == 0)
    total, _ = jax.lax.scan(add, nothing, jax.tree.map(lambda a: a.reshape(-1, group, *a.shape[1:]), (x, gradient)))
    return total.reshape(size, -1, size, features).transpose(2, 0, 1, 3).astype(x.dtype)


class Conv(nn.Module):
    """A convolution, [..., H, W, C] -> [..., H', W', features], with so many rows and columns of zeros around the image.

    A stride is taken out first: blocks of its size become channels, which makes fewer and larger products.
    """

    features: int
    size: int
    stride: int = 1
    padding: int = 0
    scale: float = 2**0.5  # of the first weights
    dtype: Any = "float32"  # of its computations

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        *batch, height, width, channels = x.shape
        size, stride, padding = self.size, self.stride, self.padding
        kernel = self.param("kernel", orthogonal(self.scale), (size**2 * channels, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        x, kernel, bias = (part.astype(self.dtype) for part in (x, kernel, bias))
        kernel, x = kernel.reshape(size, size, -1), x.reshape(-1, height, width, channels)
        if stride > 1:
            blocks = -(-size // stride)
            more = blocks * stride - size
            ends = [((n + 2 * padding - size) // stride + blocks) * stride - padding - n for n in (height, width)]
            edges = [(0, 0, 0), *((padding, end, 0) for end in ends), (0, 0, 0)]  # a negative end is cut off
            x = _split(jax.lax.pad(x, jnp.zeros((), x.dtype), edges), stride)
            kernel = _split(jnp.pad(kernel, ((0, more), (0, more), (0, 0))), stride)
            size, padding = blocks, 0
        y = convolve(x, kernel.reshape(size, size, -1, self.features), padding)
        return (y + jnp.broadcast_to(bias, y.shape)).reshape(*batch, *y.shape[1:])


def _split(x: jax.Array, block: int) -> jax.Array:
    """Move blocks to channels: [..., H * block, W * block, C] -> [..., H, W, block * block * C]."""
    *batch, height, width, channels = x.shape
    x = x.reshape(*batch, height // block, block, width // block, block, channels)
    return jnp.swapaxes(x, -4, -3).reshape(*batch, height // block, width // block, -1)


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of 3 x 3 at every second row and column: [..., H, W, C] -> [..., ceil(H / 2), ceil(W / 2), C].

    The last row and column have nothing beyond them. These are maxima along one axis, then along the other: on a CPU their
    gradient takes a tenth of the time of `reduce_window`'s.
    """
    for axis in (x.ndim - 3, x.ndim - 2):
        before, length, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        ends = [(0, (length % 2 if i == axis else 0), 0) for i in range(x.ndim)]
        least = jnp.full((), -jnp.inf, x.dtype)
        pairs = jax.lax.pad(x, least, ends).reshape(*before, -1, 2, *after)
        first, second = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in (0, 1))
        ends = [((-1, 1, 0) if i == axis else (0, 0, 0)) for i in range(x.ndim)]
        x = jnp.maximum(jnp.maximum(first, second), jax.lax.pad(first, least, ends))  # `first` of the next pair
    return x


def _flat(image: jax.Array) -> jax.Array:
    return image.reshape(*image.shape[:-3], -1)


class Convolutions(nn.Module):
    """Convolutions, and their output as one vector: images [..., H, W, C] -> [..., F]."""

    convolutions: ClassVar[tuple[tuple[int, int, int], ...]]  # (features, size, stride) of each
    least: ClassVar[int]  # sides that an image must have
    dtype: Any = "float32"  # of its computations

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features, size, stride in self.convolutions:
            x = nn.relu(Conv(features, size, stride, dtype=self.dtype)(x))
        return _flat(x)


class NatureCNN(Convolutions):
    """The convolutions of Mnih et al. 2015."""

    convolutions = (32, 8, 4), (64, 4, 2), (64, 3, 1)
    least = 36


class MinAtar(Convolutions):
    """The convolution of Young & Tian 2019 (arXiv 1903.03176) for small boards."""

    convolutions = ((16, 3, 1),)
    least = 3


class Impala(nn.Module):
    """The residual network of Espeholt et al. 2018 (arXiv 1802.01561, figure 3, large): images [..., H, W, C] -> [..., 256].

    The last convolution of a residual block begins small, so that numbers do not grow from block to block.
    """

    least: ClassVar[int] = 8
    dtype: Any = "float32"  # of its computations

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        conv = functools.partial(Conv, size=3, padding=1, dtype=self.dtype)
        for features in (16, 32, 32):
            x = max_pool(conv(features)(x))
            for _ in range(2):
                inner = nn.relu(conv(features)(nn.relu(x)))
                x = x + conv(features, scale=0.5)(inner)
        return nn.relu(nn.Dense(256, dtype=self.dtype, kernel_init=orthogonal(2**0.5))(nn.relu(_flat(x))))
