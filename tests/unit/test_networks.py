"""Networks and distributions, against SciPy and linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from shoal import networks
from shoal.networks import MLP, Categorical, MultiCategorical, Normal, Policy, categorical
from shoal.types import BadInput, Continuous, Discrete, MultiDiscrete

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
        assert stats.kstest(action[:, i], "norm", (mean[i], std[i])).pvalue > 1e-4
    assert abs(stats.pearsonr(*action.T).statistic) < 0.03


@pytest.mark.parametrize("shape", [(8, 8), (8, 3), (3, 8)])
def test_orthogonal_under_vmap(shape):
    """Rows or columns, whichever are fewer, are orthogonal and of the length asked for; every member draws its own."""
    keys = jax.random.split(jax.random.key(0), 4)
    drawn = np.asarray(jax.vmap(lambda key: networks.orthogonal(2.0)(key, shape))(keys), np.float64)
    for matrix in drawn:
        product = matrix.T @ matrix if shape[0] >= shape[1] else matrix @ matrix.T
        np.testing.assert_allclose(product, 4 * np.eye(min(shape)), atol=1e-5)
    assert len(np.unique(drawn[:, 0, 0])) == 4
    np.testing.assert_array_equal(drawn[2], networks.orthogonal(2.0)(keys[2], shape))


def test_mlp():
    mlp = MLP((5, 4), 3, "relu")
    x = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    params = mlp.init(jax.random.key(0), x)
    y = x.astype(np.float64)
    for i in range(3):
        dense = params["params"][f"Dense_{i}"]
        y = y @ np.asarray(dense["kernel"], np.float64) + np.asarray(dense["bias"])
        y = np.maximum(y, 0) if i < 2 else y
    np.testing.assert_allclose(mlp.apply(params, x), y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (Discrete(3), Categorical),
        (MultiDiscrete((2, 3)), MultiCategorical),
        (Continuous((-1.0,) * 2, (1.0,) * 2), Normal),
    ],
)
def test_policy_begins_nearly_indifferent(space, kind):
    policy = Policy(space, (8,))
    x = jnp.ones((5, 4))
    distribution = policy.apply(policy.init(jax.random.key(0), x), x)
    assert isinstance(distribution, kind)
    assert distribution.mode().shape == (5, *space.shape)
    largest = {Categorical: np.log(3), MultiCategorical: np.log(6), Normal: 2 * stats.norm.entropy()}[kind]
    np.testing.assert_allclose(distribution.entropy(), largest, rtol=1e-3)


def test_multi_discrete_policy_splits_its_outputs_by_choice():
    policy = Policy(MultiDiscrete((2, 3, 1)), ())
    x = jnp.ones((1, 1))
    params = {"params": {"MLP_0": {"Dense_0": {"kernel": jnp.zeros((1, 6)), "bias": jnp.arange(6, dtype=jnp.float32)}}}}
    parts = policy.apply(params, x).parts
    for part, logits in zip(parts, ([[0, 1]], [[2, 3, 4]], [[5]]), strict=True):
        np.testing.assert_allclose(np.exp(part.logits), probabilities(np.float32(logits)), rtol=1e-5)


def test_unknown_activation():
    with pytest.raises(BadInput, match="'rely'.*relu"):
        networks.check_activation("rely")
