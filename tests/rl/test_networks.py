"""Networks and distributions, against SciPy and linear algebra."""

import sys
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.images import convolution

from shoal.core.errors import BadInput
from shoal.core.spec import Box, Discrete, MultiDiscrete, Spec
from shoal.rl.initialisers import orthogonal
from shoal.rl.networks import (
    MLP,
    Categorical,
    Features,
    MultiCategorical,
    Normal,
    PolicyHead,
    SquashedNormal,
    categorical,
    check_hidden,
    flatten,
    held_within,
    make_network,
)

LOGITS = np.float32([[2, -1, 0.5, 0], [0, 0, 30, -30]])


def probabilities(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum(-1, keepdims=True)


def likely(observed: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts may come from probabilities; false once in 10 000 keys that are right."""
    return stats.chisquare(observed, expected * observed.sum()).pvalue > 1e-4


def test_categorical():
    distribution, p = categorical(LOGITS), probabilities(LOGITS)
    np.testing.assert_allclose(distribution.log_prob(np.int32([3, 1])), np.log(p[[0, 1], [3, 1]]), rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(), stats.entropy(p, axis=-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(distribution.mode(), [0, 2])
    assert distribution.mode().dtype == jnp.int32


def test_categorical_samples():
    logits = jnp.broadcast_to(LOGITS[0], (20_000, 4))
    action = categorical(logits).sample(jax.random.key(0))
    assert action.dtype == jnp.int32
    assert likely(np.bincount(action, minlength=4), probabilities(LOGITS[0]))


def test_multi_categorical():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(5, n)).astype(np.float32) for n in (2, 3, 4)]
    p = [probabilities(part) for part in parts]
    distribution = MultiCategorical(tuple(categorical(part) for part in parts))
    action = np.stack([rng.integers(n, size=5) for n in (2, 3, 4)], -1).astype(np.int32)
    expected = sum(np.log(p[i][np.arange(5), action[:, i]]) for i in range(3))
    np.testing.assert_allclose(distribution.log_prob(action), expected, rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(), sum(stats.entropy(q, axis=-1) for q in p), rtol=1e-5)
    np.testing.assert_array_equal(distribution.mode(), np.stack([q.argmax(-1) for q in p], -1))


def test_multi_categorical_samples_are_independent():
    p = np.array([0.3, 0.7])
    one = categorical(jnp.broadcast_to(jnp.log(jnp.float32(p)), (20_000, 2)))
    action = np.asarray(MultiCategorical((one, one)).sample(jax.random.key(1)))
    assert action.shape == (20_000, 2) and action.dtype == np.int32
    assert likely(np.bincount(action[:, 0] * 2 + action[:, 1], minlength=4), np.outer(p, p).reshape(-1))


def test_normal():
    rng = np.random.default_rng(0)
    mean, log_std, action = rng.normal(size=(6, 3)), rng.normal(size=3), rng.normal(size=(6, 3))
    reference = stats.norm(mean, np.exp(log_std))
    distribution = Normal(jnp.float32(mean), jnp.broadcast_to(jnp.float32(log_std), (6, 3)))
    np.testing.assert_allclose(
        distribution.log_prob(jnp.float32(action)), reference.logpdf(action).sum(-1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(distribution.entropy(), reference.entropy().sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(distribution.mode(), np.float32(mean))


def test_normal_samples():
    mean, std = np.array([1.0, -3]), np.array([0.5, 2])
    distribution = Normal(*(jnp.broadcast_to(jnp.float32(x), (20_000, 2)) for x in (mean, np.log(std))))
    action = np.asarray(distribution.sample(jax.random.key(2)), np.float64)
    for i in range(2):
        assert stats.kstest(action[:, i], stats.norm(mean[i], std[i]).cdf).pvalue > 1e-4
    assert abs(stats.pearsonr(*action.T).statistic) < 0.03


@pytest.mark.parametrize("shape", [(8, 8), (8, 3), (3, 8)])
def test_orthogonal_under_vmap(shape):
    """Rows or columns, whichever are fewer, are orthogonal and of the length asked for; every member draws its own."""
    keys = jax.random.split(jax.random.key(0), 4)
    drawn = np.asarray(jax.vmap(lambda key: orthogonal(2.0)(key, shape))(keys), np.float64)
    for matrix in drawn:
        product = matrix.T @ matrix if shape[0] >= shape[1] else matrix @ matrix.T
        np.testing.assert_allclose(product, 4 * np.eye(min(shape)), atol=1e-5)
    assert len(np.unique(drawn[:, 0, 0])) == 4
    np.testing.assert_array_equal(drawn[2], orthogonal(2.0)(keys[2], shape))


def test_mlp():
    mlp = MLP((5, 4), 3, "relu")
    x = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    params = jax.jit(mlp.init)(jax.random.key(0), x)
    y = x.astype(np.float64)
    for i in range(3):
        dense = params["params"][f"Dense_{i}"]
        y = y @ np.asarray(dense["kernel"], np.float64) + np.asarray(dense["bias"])
        y = np.maximum(y, 0) if i < 2 else y
    np.testing.assert_allclose(jax.jit(mlp.apply)(params, x), y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (Discrete(3), Categorical),
        (MultiDiscrete((2, 3)), MultiCategorical),
        (Box((-1.0,) * 2, (1.0,) * 2), Normal),
    ],
)
def test_policy_begins_nearly_indifferent(space, kind):
    policy = PolicyHead(space, (8,))
    x = jnp.ones((5, 4))
    distribution = policy.apply(policy.init(jax.random.key(0), x), x)
    assert isinstance(distribution, kind)
    assert distribution.mode().shape == (5, *space.shape)
    largest = {Categorical: np.log(3), MultiCategorical: np.log(6), Normal: 2 * stats.norm.entropy()}[kind]
    np.testing.assert_allclose(distribution.entropy(), largest, rtol=1e-3)


def test_multi_discrete_policy_splits_its_outputs_by_choice():
    policy = PolicyHead(MultiDiscrete((2, 3, 1)), ())
    x = jnp.ones((1, 1))
    params = {"params": {"MLP_0": {"Dense_0": {"kernel": jnp.zeros((1, 6)), "bias": jnp.arange(6, dtype=jnp.float32)}}}}
    parts = policy.apply(params, x).parts
    for part, logits in zip(parts, ([[0, 1]], [[2, 3, 4]], [[5]]), strict=True):
        np.testing.assert_allclose(np.exp(part.logits), probabilities(np.float32(logits)), rtol=1e-5)


def test_unknown_activation(said):
    with pytest.raises(BadInput) as error:
        check_hidden((), "rely")
    said(error.value)


# --------------------------------------------------------------------------------------- squashed Gaussian


@jax.jit
def sampled(mean: np.ndarray, log_std: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Actions of squashed Gaussians, and their log-densities."""
    return SquashedNormal(mean, log_std).sample_with_log_prob(jax.random.key(0))


@pytest.mark.parametrize(("mean", "log_std"), [(0.3, -0.5), (-1.2, 0.4), (0.0, -2.0)])
def test_squashed_normal(mean, log_std):
    """Its log-density is the slope of the distribution function of tanh, taken by differences."""
    action, log_prob = sampled(*(np.full((20_000, 1), x, np.float32) for x in (mean, log_std)))
    assert action.shape == (20_000, 1) and log_prob.shape == (20_000,)
    action = np.asarray(action, np.float64)[:, 0]

    def below(a: np.ndarray) -> np.ndarray:
        return stats.norm.cdf(np.arctanh(a), mean, np.exp(log_std))

    assert stats.kstest(action[np.abs(action) < 1], below).pvalue > 1e-3
    inner = np.abs(action) < 0.99  # where float32 still tells actions apart
    assert inner.mean() > 0.7
    width = 1e-5
    density = (below(action[inner] + width) - below(action[inner] - width)) / (2 * width)
    likely = density > 1e-2
    np.testing.assert_allclose(log_prob[inner][likely], np.log(density[likely]), atol=2e-3)


def test_squashed_normal_of_several_components():
    """Log-densities add up; the mode is that of the Gaussian, squashed."""
    mean, log_std = np.float32([[0.5, -1.0, 2.0]]), np.float32([[-1.0, 0.0, 0.5]])
    action, log_prob = sampled(mean, log_std)
    x = np.arctanh(np.float64(action))
    parts = stats.norm.logpdf(x, mean, np.exp(np.float64(log_std))) - np.log(1 - np.float64(action) ** 2)
    np.testing.assert_allclose(log_prob, parts.sum(-1), rtol=1e-3)
    np.testing.assert_allclose(SquashedNormal(mean, log_std).mode(), np.tanh(np.float64(mean)), rtol=1e-5)


def log_prob(mean: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of a single action, and that action."""
    (action,), value = sampled(mean[None], jnp.zeros(1))
    return value, action


FAR_OUT = jax.jit(jax.value_and_grad(log_prob, has_aux=True))


@pytest.mark.parametrize("mean", [-60.0, -12.0, 12.0, 60.0])
def test_squashed_normal_far_out(mean):
    """Where tanh rounds to 1: log(1 - tanh(x)^2) tends to 2 log 2 - 2 |x|, and its gradient to -2 or 2."""

    (value, _), slope = FAR_OUT(np.float32(mean))
    noise = np.arctanh(float(FAR_OUT(np.float32(0))[0][1]))
    expected = stats.norm.logpdf(noise) - 2 * np.log(2) + 2 * abs(mean + noise)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(slope, 2 * np.sign(mean), rtol=1e-5)


# ------------------------------------------------------------------------------------------------- images


@pytest.mark.slow
@pytest.mark.parametrize(("first", "channels"), [(False, 4), (True, 1)], ids=["channels last", "channels first"])
def test_features_of_images(first, channels):
    """The three convolutions of Mnih et al. 2015, of shares of 255; the same wherever the channels come."""
    images = np.random.default_rng(0).integers(256, size=(2, 3, 36, 44, channels), dtype=np.uint8)
    obs = np.moveaxis(images, -1, -3) if first else images
    features = Features(obs.shape[2:], "nature_cnn")
    params = jax.jit(features.init)(jax.random.key(0), obs)
    x = np.float32(images) / 255
    for i, (size, stride) in enumerate(((8, 4), (4, 2), (3, 1))):
        layer = params["params"]["NatureCNN_0"][f"Conv_{i}"]
        x = np.maximum(np.asarray(convolution(x, layer["kernel"], layer["bias"], size, stride)), 0)
    assert x.shape == (2, 3, 1, 2, 64)
    got = features.apply(params, obs)
    assert got.shape == (2, 3, 128) and got.dtype == np.float32
    np.testing.assert_allclose(got, x.reshape(2, 3, -1), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(got, features.apply(params, np.float32(obs) / 255), rtol=1e-5, atol=1e-6)


def test_features_of_boards():
    """One convolution of 3 x 3 with 16 kernels, by hand in NumPy."""
    boards = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)
    features = Features((5, 6, 3), "minatar")
    params = jax.jit(features.init)(jax.random.key(0), boards)
    (layer,) = params["params"]["MinAtar_0"].values()
    kernel = np.asarray(layer["kernel"]).reshape(3, 3, 3, 16)
    expected = np.zeros((2, 3, 4, 16))
    for i, j in np.ndindex(3, 4):
        expected[:, i, j] = np.einsum("nhwc,hwcf->nf", boards[:, i : i + 3, j : j + 3], kernel) + np.asarray(
            layer["bias"]
        )
    got = jax.jit(features.apply)(params, boards)
    np.testing.assert_allclose(got, np.maximum(expected, 0).reshape(2, -1), rtol=1e-4, atol=1e-5)


def test_features_of_vectors():
    """Bytes become shares of 255; all other numbers stay as they are, also whole ones and those above 1."""
    for dtype, scale in (("uint8", 255), ("int32", 1), ("float32", 1)):
        obs = np.random.default_rng(0).integers(256, size=(5, 4, 2, 3)).astype(dtype)
        features = Features((2, 3))
        assert features.init(jax.random.key(0), obs) == {}
        for got in (features.apply({}, obs), flatten(obs, (2, 3))):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, obs.reshape(5, 4, 6) / scale, rtol=1e-6)
    assert flatten(np.float32([1, 2]), ()).shape == (2, 1)
    assert flatten(np.zeros((3, 0), np.float32), (0,)).shape == (3, 0)


def images(shape: tuple[int, ...]) -> Spec:
    return Spec(shape, "uint8", Discrete(2))


@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84), (210, 160, 3), (36, 36, 1), (3, 36, 50)])
def test_images_that_the_convolutions_take(shape):
    for network in ("minatar", "nature_cnn", "impala"):
        make_network(network, images(shape))
    dtype = jnp.zeros((1, *shape), jnp.uint8)
    assert min(
        jax.eval_shape(lambda: Features(shape, "nature_cnn").init_with_output(jax.random.key(0), dtype))[0].shape
    )


@pytest.mark.parametrize("shape", [(), (4,), (84, 84), (35, 84, 3), (84, 35, 3), (3, 84, 35), (10, 10, 4), (84, 4, 84)])
def test_images_that_the_convolutions_do_not_take(shape):
    with pytest.raises(BadInput) as error:
        make_network("nature_cnn", images(shape))
    assert str(error.value) == (
        f"config.network = nature_cnn: takes images of at least 36 x 36, not observations {shape}"
    )
    make_network("mlp", images(shape))


def test_unknown_network(said):
    with pytest.raises(BadInput) as error:
        make_network("nature_cn", images((84, 84, 4)))
    said(error.value)


def sums(spec: Spec) -> nn.Module:
    """A network of one's own: its one feature is the sum of the numbers."""
    axes = tuple(range(-len(spec.obs_shape), 0))
    return nn.Sequential([lambda obs: obs.astype(jnp.float32).sum(axes)[..., None]])


def test_a_network_of_ones_own(monkeypatch, said):
    """The factory, or its name; what gives something else is refused."""
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(sums=sums))
    obs = np.ones((3, 5, 2), np.uint8)
    for network in (sums, "mine:sums"):
        assert make_network(network, images((5, 2))).apply({}, obs).tolist() == [[10]] * 3
    for network in (5, lambda spec: 3, "mine:none", lambda spec: nn.Sequential([jnp.sum])):
        with pytest.raises(BadInput) as error:
            make_network(network, images((5, 2)))
        said(error.value)


def test_what_is_held_within_bounds_can_come_back():
    """Between the bounds and back to them a step against the gradient is free; out of them nothing moves."""
    x = np.float32([-30, -5, -1, 2, 7])
    np.testing.assert_array_equal(held_within(x, -5.0, 2.0), np.clip(x, -5, 2))
    for sign, free in ((1, [False, False, True, True, True]), (-1, [True, True, True, False, False])):
        gradient = jax.grad(lambda x, sign=sign: sign * held_within(x, -5.0, 2.0).sum())(x)
        np.testing.assert_array_equal(gradient, np.where(free, sign, 0))
