"""Randomness derives from paths: different paths never share a stream."""

import itertools
import subprocess
import sys

import jax
import numpy as np
import pytest

from shoal.core.keys import at, derive, draws, environment_keys, jax_key, member_keys, order, stream, words

PATHS = [*itertools.product((0, 1, 2), repeat=1), *itertools.product((0, 1, 2), repeat=2)]
PATHS += [*itertools.product((0, 1), repeat=3), (0, 2**32 - 1), (2**40,), (2**40, 0), (0, 2**40)]


def test_derive():
    assert derive((1,), 2, "train") == derive(derive((1,), 2), "train") != derive((1,), "train", 2)
    assert derive((1,), "train") != derive((1,), "evaluate")


def test_no_two_paths_share_a_stream():
    """NumPy pads its entropy with zeros, so that unguarded (0,), (0, 0) and (0, 0, 0) would be one stream."""
    for numbers in (lambda path: tuple(words(path, 2)), lambda path: draws(path[:-1], np.array(path[-1:]), 1)[0, 0]):
        assert len({numbers(path) for path in PATHS}) == len(PATHS)


def test_a_stream_is_the_same_in_another_process():
    code = "from shoal.core.keys import derive, words; print(words(derive((3,), 1, 'train'), 3))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(words(derive((3,), 1, "train"), 3))


def test_a_member_draws_the_same_whoever_else_draws():
    together = draws((5, 1), np.array([7, 0, 3]), 4)
    assert together.shape == (3, 4) and (together >= 0).all() and (together < 1).all()
    np.testing.assert_array_equal(together[2:], draws((5, 1), np.array([3]), 4))
    assert draws((5, 1), np.array([], int), 4).shape == (0, 4)


def test_draws_are_uniform_and_uncorrelated():
    """Neighbouring uids and neighbouring generations: no pattern between them."""
    a, b = (draws((0, generation), np.arange(2000), 2) for generation in (1, 2))
    for x in (a[:, 0], a[:, 1], b[:, 0]):
        assert abs(x.mean() - 0.5) < 4 / (12 * 2000) ** 0.5
    for x, y in ((a[:, 0], a[:, 1]), (a[:, 0], b[:, 0]), (a[:-1, 0], a[1:, 0])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 0.1


@pytest.mark.parametrize("count", [1, 5])
def test_words_are_seeds(count):
    seeds = words((0, 1), count)
    assert len(set(seeds)) == count and all(isinstance(s, int) and 0 <= s < 2**31 for s in seeds)


def test_member_keys():
    uid = np.uint32([4, 0, 9])
    keys = member_keys(jax_key((0, 1)), uid)
    data = np.asarray(jax.random.key_data(keys))
    assert len({tuple(row) for row in data}) == 3
    np.testing.assert_array_equal(data[1:2], jax.random.key_data(member_keys(jax_key((0, 1)), uid[1:2])))
    assert (data != jax.random.key_data(member_keys(jax_key((0, 2)), uid))).any(1).all()


def data(keys):
    return list(map(tuple, np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()))


def test_no_two_purposes_share_a_key():
    """Neither in one generation nor in two; nor do streams meet, of a key or of what is numbered below it."""
    top = [jax_key(derive((0,), generation, purpose)) for generation in range(20) for purpose in ("train", "evaluate")]
    assert len({word for key in top for word in data(key)[0]}) == 2 * len(top)  # both words of a key, or it has 2**32
    uid = np.uint32([0, 1, 2])
    seen = data(jax.numpy.stack(top))
    for key in top[:4]:
        for purpose in ("act", "step", "reset", "update"):
            keys = {"one": stream(key, purpose), "members": member_keys(stream(key, purpose), uid)}
            keys["environments"] = environment_keys(stream(key, purpose), uid, 4)
            for t in range(5):
                seen += [x for leaf in jax.tree.leaves(at(keys, t)) for x in data(leaf)]
    assert len(set(seen)) == len(seen)


def test_keys_are_numbered_in_one_go():
    """As one by one, whatever their shapes."""
    key = jax_key((0, 1))
    keys = {"a": key, "b": jax.random.split(key, (2, 3))}
    for t in (0, 2**32 - 1):
        children = at(keys, np.uint32(t))
        assert children["a"].shape == () and children["b"].shape == (2, 3)
        assert data(children["a"]) == data(jax.random.fold_in(key, np.uint32(t)))
        assert data(children["b"][1, 2]) == data(jax.random.fold_in(keys["b"][1, 2], np.uint32(t)))
    assert data(stream(keys["b"], "act")[0, 1]) == data(stream(keys["b"][0, 1], "act"))


@pytest.mark.parametrize("count", [1, 3, 2**16, 2**16 + 1])
def test_an_order_has_every_place_once(count):
    found = np.asarray(order(jax_key((0, count)), count))
    np.testing.assert_array_equal(np.sort(found), np.arange(count))
    assert found.dtype == np.int32 and (count < 3 or (found != np.arange(count)).any())


@pytest.mark.parametrize("count", [5, 8])
def test_orders_are_equally_likely(count):
    """Every place is as often at every other, and before every other: chi-square of so many places."""
    keys = jax.random.split(jax_key((7, count)), 4_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: order(key, count)))(keys))
    often = np.stack([(orders == place).sum(0) for place in range(count)])
    expected = len(orders) / count
    assert ((often - expected) ** 2 / expected).sum() < count**2 + 5 * (2 * count**2) ** 0.5
    where = orders.argsort(1)
    before = (where[:, :, None] < where[:, None, :]).mean(0)[np.triu_indices(count, 1)]
    assert abs(before - 0.5).max() < 5 * 0.5 / len(orders) ** 0.5
