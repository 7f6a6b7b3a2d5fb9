"""A Gaussian process whose function changes with time, and the maximum of its upper confidence bound (PB2, section 3).

    k((x, t), (x', t')) = s² exp(-|x - x'|² / (2 l²)) (1 - ε)^(|t - t'| / 2)      observed with noise of variance r s²

Of n observations y with the covariance s² (C + r I), A = C + r I, the posterior at a point with covariances s² k to them is

    mean = k A⁻¹ y        variance = s² (1 - k A⁻¹ k)

The lengthscale l, the forgetting ε and the noise r are those of a grid with the highest likelihood, in which
s² = y A⁻¹ y / n is the best for each. The same data always give the same process. Sums
are NumPy's own, in one thread: how the libraries of linear algebra add up depends on the kind and number of cores, and for
matrices this small their threads take longer to meet than to work. So it is with SciPy's optimisers, which call them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

# The smoothest first: of equally likely ones it is taken. Where points are too far apart to tell of one another, noise and a
# short length would be one and the same; so lengths grow with the distance of random points, which goes with the root of
# the number of dimensions (arXiv 2402.02229), and noise goes up to where nothing is explained.
LENGTHS = (1.6, 0.8, 0.4, 0.2, 0.1)
FORGETTING = (0.0, 0.01, 0.05, 0.2)
NOISES = (100.0, 10.0, 1.0, 0.1, 1e-2)
Array = np.ndarray
Box = tuple[Array, Array]
STEPS = 60  # uphill, after which hyperparameters move by less than matters


@dataclass(frozen=True)
class Process:
    """n observations y at points x and times t: float64 [n, D], [n], [n]; y is standardised."""

    x: Array
    t: Array
    y: Array
    length: float
    forgetting: float
    noise: float
    variance: float

    def predict(self, x: Array, t: float) -> tuple[Array, Array]:
        """Mean and standard deviation [K] of the function at points [K, D]."""
        k = correlation(x, np.full(len(x), t), self.x, self.t, self.length, self.forgetting)
        left = 1 - np.einsum("ki,ij,kj->k", k, self._inverse, k)
        return np.einsum("ki,i->k", k, self._weights), np.sqrt(self.variance * np.maximum(left, 0))

    def expecting(self, x: Array, t: float) -> Process:
        """Return the process after observing the mean at a point [D], which is then not explored again."""
        y = self.predict(x[None], t)[0]
        return replace(self, x=np.vstack([self.x, x]), t=np.append(self.t, t), y=np.append(self.y, y))

    def bound(self, x: Array, t: float, kappa: float) -> tuple[Array, Array]:
        """Mean plus kappa standard deviations [K] at points [K, D], and its gradients [K, D]."""
        k = correlation(x, np.full(len(x), t), self.x, self.t, self.length, self.forgetting)
        solved = np.einsum("kj,ij->ki", k, self._inverse)
        std = np.sqrt(self.variance * np.maximum(1 - (k * solved).sum(1), 1e-12))
        pull = k * (self._weights - (kappa * self.variance / std)[:, None] * solved)
        gradient = (np.einsum("ki,ij->kj", pull, self.x) - pull.sum(1)[:, None] * x) / self.length**2
        return (k * self._weights).sum(1) + kappa * std, gradient

    @cached_property
    def _inverse(self) -> Array:
        c = correlation(self.x, self.t, self.x, self.t, self.length, self.forgetting)
        return inverted(c + self.noise * np.eye(len(c)))[0]

    @cached_property
    def _weights(self) -> Array:
        return np.einsum("ij,j->i", self._inverse, self.y)


def correlation(x: Array, t: Array, other: Array, times: Array, length: float, forgetting: float) -> Array:
    """The kernel without s², [n, m], of n points at their times with m others."""
    squares = np.square(x[:, None] - other[None]).sum(-1)
    return np.exp(-squares / (2 * length**2)) * (1 - forgetting) ** (np.abs(t[:, None] - times[None]) / 2)


def inverted(a: Array) -> tuple[Array, Array]:
    """Invert symmetric positive definite matrices by Gauss and Jordan: inverses [..., n, n], and log determinants [...]."""
    a, logarithm = a.copy(), np.zeros(a.shape[:-2])
    for i in range(a.shape[-1]):
        pivot, column = a[..., i, i].copy(), a[..., :, i].copy()
        logarithm += np.log(pivot)
        row = a[..., i, :] / pivot[..., None]
        column[..., i] = 0
        a -= column[..., :, None] * row[..., None, :]
        a[..., :, i] = -column / pivot[..., None]
        a[..., i, :], a[..., i, i] = row, 1 / pivot
    return a, logarithm


def fitted(x: Array, t: Array, y: Array) -> Process:
    """The process of the highest likelihood. y is standardised, or somewhat narrower."""
    found, highest = None, -np.inf
    noises = np.array(NOISES)[:, None, None] * np.eye(len(y))
    for length in np.array(LENGTHS) * np.sqrt(x.shape[1]):
        for forgetting in FORGETTING:
            inverses, logarithms = inverted(correlation(x, t, x, t, length, forgetting) + noises)
            variances = (np.einsum("rij,j->ri", inverses, y) * y).mean(-1)
            likelihoods = -0.5 * (len(y) * np.log(variances) + logarithms)
            if (best := likelihoods.max()) > highest:
                r = int(likelihoods.argmax())
                found, highest = Process(x, t, y, float(length), forgetting, NOISES[r], float(variances[r])), best
    assert found is not None, "a finite y has a likelihood"
    return found


def highest_bound(
    process: Process, starts: Array, free: Sequence[int], choices: Sequence[Array], t: float, box: Box
) -> Array:
    """Maximise the bound from some starts [S, D]: move the coordinates `free` within the box, try every choice at the best
    point, and move again. Returns the best point [D].

    box: the lowest and the highest of the free coordinates. choices: the coordinates of each, of which one is above 0.
    The bound is that of PB2 with the standard deviation: kappa = sqrt(0.2 ln(0.4 n)) after n observations, expected ones
    among them.
    """
    kappa = np.sqrt(0.2 * max(np.log(0.4 * len(process.y)), 0.0))
    best = _climb(process, starts, free, t, kappa, box)
    for columns in choices:
        others = np.repeat(best[None], len(columns), 0)
        others[:, columns] = np.eye(len(columns)) * best[columns].max()
        best = others[process.bound(others, t, kappa)[0].argmax()]
    return _climb(process, best[None], free, t, kappa, box) if choices else best


def _climb(process: Process, starts: Array, free: Sequence[int], t: float, kappa: float, box: Box) -> Array:
    """Move all starts uphill at once, by Rprop (Riedmiller & Braun 1993).

    The step of a coordinate grows while its slope keeps its sign, and shrinks where that changes.
    """
    points, before = starts.copy(), np.zeros((len(starts), len(free)))
    steps = np.full(before.shape, 0.1)
    for _ in range(STEPS):
        slopes = process.bound(points, t, kappa)[1][:, free]
        agree = slopes * before
        steps = np.clip(steps * np.where(agree > 0, 1.2, np.where(agree < 0, 0.5, 1)), 1e-5, 0.2)
        points[:, free] = np.clip(points[:, free] + np.sign(slopes) * steps, *box)
        before = slopes
    return points[process.bound(points, t, kappa)[0].argmax()]
