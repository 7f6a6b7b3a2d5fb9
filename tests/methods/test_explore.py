"""Each explorer against its published rule."""

import numpy as np
import pytest
from scipy import stats
from support.messages import shown

from shoal.core.errors import BadInput
from shoal.core.space import Range
from shoal.methods.explore import Gaussian, Mutate, NoExploration, Perturb, Resample

N = 4000
UID = np.arange(N)
WIDE = Range(1e-12, 1e12, "log")  # so wide that nothing is reflected
DISCOUNT = Range(0.0, 0.9999, "one_minus_log")


def explored(explorer, r: Range, x: float, generation: int = 0) -> np.ndarray:
    hyper = {"x": np.full(N, x, np.float32)}
    return explorer((1, generation), hyper, {"x": r}, UID)["x"].astype(np.float64)


# --------------------------------------------------------------------------------------------- perturb


def test_perturb_draws_each_factor_equally_often():
    x = explored(Perturb(resample_probability=0.0), WIDE, 1e-3)
    assert np.all(np.isclose(x, 8e-4) | np.isclose(x, 1.2e-3))
    assert np.isclose(x, 8e-4).mean() == pytest.approx(0.5, abs=0.03)
    three = explored(Perturb((0.9, 0.95, 1.2), 0.0), WIDE, 1.0)
    assert [np.isclose(three, f).mean() for f in (0.9, 0.95, 1.2)] == pytest.approx([1 / 3] * 3, abs=0.03)


def test_perturb_resamples_as_often_as_told():
    x = explored(Perturb(resample_probability=0.25), Range(1e-5, 1e-2, "log"), 1e-3)
    fresh = ~(np.isclose(x, 8e-4) | np.isclose(x, 1.2e-3))
    assert fresh.mean() == pytest.approx(0.25, abs=0.03)
    assert np.mean(x[~fresh] > 1e-3) == pytest.approx(0.5, abs=0.04)
    assert stats.kstest((np.log10(x[fresh]) + 5) / 3, "uniform").pvalue > 1e-4


def test_perturb_treats_discounts_as_one_minus_x():
    x = explored(Perturb(resample_probability=0.0), DISCOUNT, 0.99)
    assert np.all(np.isclose(1 - x, 0.008, rtol=1e-4) | np.isclose(1 - x, 0.012, rtol=1e-4))


def test_hyperparameters_of_one_child_move_independently():
    space = {"a": WIDE, "b": WIDE}
    hyper = {name: np.ones(N, np.float32) for name in space}
    new = Perturb(resample_probability=0.0)((1, 0), hyper, space, UID)
    assert np.mean((new["a"] > 1) == (new["b"] > 1)) == pytest.approx(0.5, abs=0.03)


# -------------------------------------------------------------------------------------------- resample


def test_resample_forgets_the_parent():
    x = explored(Resample(), Range(1e-5, 1e-2, "log"), 1e-3)
    assert stats.kstest((np.log10(x) + 5) / 3, "uniform").pvalue > 1e-4
    assert x.tolist() == explored(Resample(), Range(1e-5, 1e-2, "log"), 1e-5).tolist()


# ---------------------------------------------------------------------------------------------- mutate


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_mutate_float_multiplies_or_divides(rate):
    x = explored(Mutate(mutation_rate=rate), WIDE, 1.0)
    x = x[x != 1]
    up, down = x[x > 1], 1 / x[x <= 1]
    assert len(x) / N == pytest.approx(rate, abs=0.03) and len(up) / len(x) == pytest.approx(0.5, abs=0.06)
    for factors in (up, down):  # uniform in 1.1 .. 2
        assert stats.kstest((factors - 1.1) / 0.9, "uniform").pvalue > 1e-4


def test_mutate_discount_does_so_to_one_minus_x():
    x = explored(Mutate(mutation_rate=1.0), DISCOUNT, 0.99)
    factors = (1 - x) / (1 - np.float64(np.float32(0.99)))
    factors = np.where(factors > 1, factors, 1 / factors)
    assert stats.kstest((factors - 1.1) / 0.1, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("explorer", "stays"), [(Perturb(resample_probability=0.25), 0.25 / 3), (Mutate(mutation_rate=0.25), 0.75)]
)
def test_every_other_choice_is_as_likely(explorer, stays):
    """Whether one changes at all says nothing of what it changes to."""
    x = explored(explorer, Range(choices=(1.0, 2.0, 4.0)), 2.0)
    assert [np.mean(x == choice) for choice in (1, 2, 4)] == pytest.approx(
        [(1 - stays) / 2, stays, (1 - stays) / 2], abs=0.03
    )


# -------------------------------------------------------------------------------------------- gaussian


def test_gaussian_steps_have_the_std_in_the_unit_scale():
    for r, x, unit in (
        (Range(0.0, 10.0), 5.0, lambda x: x / 10),
        (Range(1e-6, 1e-2, "log"), 1e-4, lambda x: (np.log10(x) + 6) / 4),
        (Range(0.9, 0.9999, "one_minus_log"), 1 - 10**-2.5, lambda x: (np.log10(1 - x) + 1) / -3),
    ):
        steps = (unit(explored(Gaussian(0.1), r, x)) - 0.5) / 0.1
        assert stats.kstest(steps, "norm").pvalue > 1e-4


def test_gaussian_is_clipped():
    x = explored(Gaussian(), Range(0.0, 1.0), 1.0)
    assert np.mean(x == 1.0) == pytest.approx(0.5, abs=0.03)
    assert x.min() < 0.75 and x.max() == 1.0


# ----------------------------------------------------------------------------------------- keep, errors


def test_keep():
    assert np.all(explored(NoExploration(), WIDE, 0.123) == np.float32(0.123))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Perturb, {"factors": ()}),
        (Perturb, {"factors": (1.0,)}),
        (Perturb, {"factors": (0.0, 1.2)}),
        (Perturb, {"factors": (float("nan"), 1.2)}),
        (Perturb, {"resample_probability": 1.5}),
        (Mutate, {"mutation_rate": -0.1}),
        (Mutate, {"change_range": (0.8, 1.2)}),
        (Mutate, {"discount_range": (1.2, 1.1)}),
        (Gaussian, {"std": 0.0}),
        (Gaussian, {"std": float("inf")}),
    ],
    ids=shown,
)
def test_nonsense_is_refused(kind, options, said):
    with pytest.raises(BadInput) as error:
        kind(**options)
    said(error.value)
