"""Files that sample: their actions are distributed as those of the policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest
from scipy.stats import ks_2samp, kstest
from support.champions import champion_of, made, of_ppo, session_of
from support.messages import Said
from support.runs import shoal, tiny

from shoal.agents.ppo import ppo
from shoal.core.errors import BadInput
from shoal.core.spec import MASK, Box, Discrete, MultiDiscrete, Spec
from shoal.export.onnx_file import write_onnx
from shoal.export.program import write_npz
from shoal.export.sampling import numbers_of, with_numbers
from shoal.run.champion import Champion
from shoal.run.train import train

SAMPLES = 40_000
CHANCE = 1e-4  # that a sound file fails; the seeds are fixed
WIDE = Box((-np.inf,) * 2, (np.inf,) * 2)


def trained(champion: Champion, updates: int = 1_000_000) -> Champion:
    """The champion after so many updates: before the first one, agents with a replay buffer act at random."""
    if hasattr(champion.learned, "updates"):
        champion.learned = champion.learned._replace(updates=np.int32(updates))
    return champion


def numbers(session: onnxruntime.InferenceSession, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random numbers for the inputs of a file that take them, as the docs say."""
    random = np.random.default_rng(seed)
    made = {"uniform": random.random, "normal": random.standard_normal}
    inputs = {x.name: (batch, *x.shape[1:]) for x in session.get_inputs()}
    return {name: draw(inputs[name], np.float32) for name, draw in made.items() if name in inputs}


def sampled(champion: Champion, file: Path, obs: Any) -> np.ndarray:
    """Actions of the file of a champion for one observation, [SAMPLES, ...]."""
    assert write_onnx(champion, file, stochastic=True) <= 1e-5
    session = session_of(file)
    many = {f"obs.{key}": x for key, x in obs.items()} if isinstance(obs, dict) else {"obs": obs}
    many = {key: np.repeat(x[None], SAMPLES, 0) for key, x in many.items()}
    return session.run(["action"], many | numbers(session, SAMPLES))[0]


def same_frequencies(actions: np.ndarray, expected: np.ndarray) -> None:
    """Assert that choices have these probabilities, within five standard errors."""
    found = np.bincount(actions, minlength=len(expected)) / len(actions)
    assert len(found) == len(expected)
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / len(actions))).all()


def test_choices_have_the_probabilities_of_their_logits(tmp_path: Path) -> None:
    """Several at once, each from numbers of its own. The logits are those of the file that does not sample."""
    champion = of_ppo(MultiDiscrete((2, 3)))
    obs = np.array([1.0, -1.0, 0.5], np.float32)
    actions = sampled(champion, tmp_path / "sampled.onnx", obs)
    write_onnx(champion, tmp_path / "greedy.onnx")
    (logits,) = session_of(tmp_path / "greedy.onnx").run(["logits"], {"obs": obs[None]})
    first, second = np.exp(logits[0, :2]), np.exp(logits[0, 2:])
    assert min(first.min(), second.min()) > 0.02
    assert actions.dtype == champion.predict(obs)[0].dtype and actions.shape == (SAMPLES, 2)
    same_frequencies(actions[:, 0] * 3 + actions[:, 1], np.outer(first, second).reshape(-1))


def test_continuous_actions_have_the_policys_mean_and_deviation(tmp_path: Path) -> None:
    champion, obs = of_ppo(WIDE), np.array([1.0, -1.0, 0.5], np.float32)
    actions = sampled(champion, tmp_path / "sampled.onnx", obs)
    write_npz(champion, tmp_path / "sampled.npz", stochastic=True)
    with np.load(tmp_path / "sampled.npz") as arrays:
        std = np.exp(next(arrays[name] for name in arrays if name.endswith("log_std")))
    mean, _ = champion.predict(obs)
    for i in range(2):
        assert kstest(actions[:, i], "norm", (mean[i], std[i])).pvalue > CHANCE
    assert abs(np.corrcoef(actions.T)[0, 1]) < 5 / np.sqrt(SAMPLES)


@pytest.mark.parametrize("dtype", ["int8", "bool"])
@jax.numpy_dtype_promotion("standard")  # as users have it, who compare a mask of bool to 0
def test_an_illegal_choice_is_never_made(tmp_path: Path, dtype: str) -> None:
    spec = Spec({"state": (3,), MASK: (4,)}, {"state": "float32", MASK: dtype}, Discrete(4))
    champion = champion_of(ppo(spec, layers=(8,)), spec)
    obs = {"state": np.ones(3, np.float32), MASK: np.array([1, 0, 1, 0], dtype)}
    actions = sampled(champion, tmp_path / "policy.onnx", obs)
    assert {*actions.tolist()} == {0, 2}


CASES: dict[str, tuple[str, str, int]] = {
    "sac": ("sac", "continuous", 9),
    "sac before its first update": ("sac", "continuous", 0),
    "td3": ("td3", "continuous", 9),
    "dqn": ("dqn", "discrete", 1_000_000),
    "dqn that explores": ("dqn", "discrete", 9),
    "es": ("policy", "discrete", 0),
}


@pytest.mark.parametrize(("name", "actions", "updates"), CASES.values(), ids=CASES)
def test_a_file_samples_as_its_champion(tmp_path: Path, name: str, actions: str, updates: int) -> None:
    """Each way of exploring; against what Shoal itself samples."""
    champion, obs = trained(made(name, actions), updates), np.array([1.0, -1.0, 0.5], np.float32)
    found = sampled(champion, tmp_path / "policy.onnx", obs)
    own, _ = champion.predict(np.repeat(obs[None], SAMPLES, 0), deterministic=False)
    assert found.dtype == own.dtype and found.shape == own.shape and np.unique(own).size > 1
    if actions == "continuous":
        assert ks_2samp(found[:, 0], own[:, 0]).pvalue > CHANCE
    else:
        expected = np.bincount(own, minlength=2) / SAMPLES
        assert np.abs(found.mean() - expected[1]) < 5 * np.sqrt(2 * expected.prod() / SAMPLES)


def test_a_file_asks_for_no_numbers_that_change_nothing(tmp_path: Path) -> None:
    """Such as those of the random actions before the first update, once it is over."""
    for updates, needed in ((0, "uniform"), (1, "normal")):
        write_onnx(trained(made("sac", "continuous"), updates), tmp_path / "policy.onnx", stochastic=True)
        assert [x.name for x in session_of(tmp_path / "policy.onnx").get_inputs()] == ["obs", needed]


def test_a_recurrent_policy_samples_from_its_state(tmp_path: Path) -> None:
    """Normal numbers of 0 give the mean of each step, and 1 what is a standard deviation above it."""
    champion = made("ppo", "continuous", lstm_hidden_size=5)
    assert write_onnx(champion, tmp_path / "policy.onnx", stochastic=True) <= 1e-5
    session, random, state = session_of(tmp_path / "policy.onnx"), np.random.default_rng(3), None
    names = [x.name for x in session.get_outputs()]
    memory = {x.name: np.zeros((7, 5), np.float32) for x in session.get_inputs() if x.name.startswith("state")}
    for _ in range(3):
        obs = random.normal(size=(7, 3)).astype(np.float32)
        given = {"obs": obs, "normal": np.zeros((7, 1), np.float32)} | memory
        found = dict(zip(names, session.run(names, given), strict=True))
        memory = {name: found[f"next_{name}"] for name in memory}
        mean, state = champion.predict(obs, state)
        np.testing.assert_allclose(found["action"], mean, rtol=1e-5, atol=1e-5)
    assert all(x.any() for x in memory.values())


def permuted(obs: jax.Array, key: jax.Array) -> jax.Array:
    return obs[:, jax.random.permutation(key, 3)]


def in_a_loop(obs: jax.Array, key: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 2, lambda i, x: x + jax.random.normal(jax.random.fold_in(key, i), x.shape), obs)


def for_all(obs: jax.Array, key: jax.Array) -> jax.Array:
    return obs + jax.random.normal(key, (1, 3))


@pytest.mark.parametrize("act", [permuted, in_a_loop, for_all], ids=lambda act: act.__name__)
def test_random_numbers_that_a_file_cannot_hold(act: Callable, said: Said) -> None:
    obs = jax.ShapeDtypeStruct((4, 3), np.float32)
    with pytest.raises(BadInput) as error:
        jax.eval_shape(with_numbers(act), obs, numbers_of(4, act, obs))
    said(error.value)


@jax.jit
def _normal(obs: jax.Array) -> jax.Array:
    """A function of the user's, with the name of one of `jax.random`."""
    return 2 * obs


def test_a_function_with_the_name_of_a_draw_takes_no_numbers() -> None:
    obs = jax.ShapeDtypeStruct((4, 3), np.float32)

    def act(obs: jax.Array, key: jax.Array) -> jax.Array:
        return _normal(obs) + jax.random.uniform(key, obs.shape)

    assert [*numbers_of(4, act, obs)] == ["uniform"]
    found = with_numbers(act)(np.ones((4, 3), np.float32), {"uniform": np.zeros((4, 3), np.float32)})
    np.testing.assert_array_equal(found, np.full((4, 3), 2, np.float32))


def test_the_command(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", generations=1)).run_dir
    done = shoal("export", run, tmp_path / "policy.onnx", "--stochastic")
    assert (done.code, done.err) == (0, "") and "run by onnxruntime" in done.out
    session = session_of(tmp_path / "policy.onnx")
    obs = np.zeros((1000, 4), np.float32)
    first, again, other = (
        session.run(["action"], {"obs": obs} | numbers(session, 1000, seed))[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() and {*first.tolist()} == {0, 1}
