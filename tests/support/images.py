"""Networks for images in NumPy."""

from __future__ import annotations

import numpy as np


def windows(x: np.ndarray, size: int, stride: int, pads: tuple[int, int], fill: float) -> np.ndarray:
    """The windows of images [..., H, W, C], with so many rows and columns before and after: [..., H', W', C, size, size]."""
    edges = [(0, 0)] * (x.ndim - 3) + [pads, pads, (0, 0)]
    x = np.pad(np.asarray(x, np.float64), edges, constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(-3, -2))
    return seen[..., ::stride, ::stride, :, :, :]


def convolution(
    x: np.ndarray, kernel: np.ndarray, bias: np.ndarray, size: int, stride: int, padding: int = 0
) -> np.ndarray:
    """Of images [..., H, W, C], with a kernel [size * size * C, F]."""
    kernel = np.reshape(kernel, (size, size, x.shape[-1], -1))
    return np.einsum("...cij,ijcf->...f", windows(x, size, stride, (padding, padding), 0), kernel) + np.asarray(bias)


def pool(x: np.ndarray) -> np.ndarray:
    """The largest of 3 x 3 at every second row and column of images [..., H, W, C]; beyond the last ones is nothing."""
    return windows(x, 3, 2, (0, 2), -np.inf)[..., : -(-x.shape[-3] // 2), : -(-x.shape[-2] // 2), :, :, :].max((-2, -1))


def impala(params: dict, x: np.ndarray) -> np.ndarray:
    """Espeholt et al. 2018, figure 3: images [..., H, W, C] -> [..., 256]."""
    layers = iter(range(15))

    def conv(x: np.ndarray) -> np.ndarray:
        layer = params[f"Conv_{next(layers)}"]
        return convolution(x, layer["kernel"], layer["bias"], 3, 1, 1)

    for _ in range(3):
        x = pool(conv(x))
        for _ in range(2):
            x = x + conv(np.maximum(conv(np.maximum(x, 0)), 0))
    flat = np.maximum(x, 0).reshape(*x.shape[:-3], -1)
    return np.maximum(flat @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"], 0)
