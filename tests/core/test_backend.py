"""What is set of JAX elsewhere: 64 bits, and devices that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.messages import Said
from support.runs import flags, same_run, shoal, start, tiny

from shoal import Callback, Generation, load_champion, resume, train
from shoal.core.backend import on_jax
from shoal.environments.device import DeviceEnvironment
from shoal.environments.gymnax import gymnax_environment


@pytest.fixture
def given_back() -> Iterator[None]:
    yield
    jax.config.update("jax_enable_x64", False)


def wide() -> DeviceEnvironment:
    """As a module that sets the flag when it is imported, for something of its own."""
    jax.config.update("jax_enable_x64", True)
    return gymnax_environment("CartPole-v1", {})


def wide_on_the_host() -> Any:
    import gymnasium

    jax.config.update("jax_enable_x64", True)
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def dtypes() -> set[str]:
    return {jnp.zeros(1).dtype.name, jax.random.bits(jax.random.key(0)).dtype.name, jnp.arange(1).dtype.name}


def test_inside_there_are_32_bits_and_outside_it_is_as_the_user_has_it(given_back: None) -> None:
    narrow, broad = {"float32", "uint32", "int32"}, {"float64", "uint64", "int64"}
    with on_jax():
        assert dtypes() == narrow
        jax.config.update("jax_enable_x64", True)
        assert dtypes() == narrow
    assert dtypes() == broad
    with on_jax():
        assert dtypes() == narrow
        with jax.enable_x64(True):  # an environment that needs them asks for them
            assert dtypes() == broad


AGENTS: dict[str, dict[str, Any]] = {
    "host": {"env": wide_on_the_host},
    "ppo": {},
    "es": {"method": "es", "config": {}},
    "dqn": {
        "agent": "dqn",
        "config": {"layers": [8], "rollout_length": 16, "num_envs": 2, "buffer_size": 96, "learning_starts": 32},
    },
}


@pytest.mark.slow
@pytest.mark.usefixtures("trace_cache")
def test_a_run_computes_inside(tmp_path: Path, given_back: None) -> None:
    seen: list[set[str]] = []

    class Look(Callback):
        def on_generation_end(self, event: Generation) -> None:
            seen.append(dtypes())

    jax.config.update("jax_enable_x64", True)
    train(tiny(tmp_path / "run"), [Look()])
    resume(tmp_path / "run", 3, [Look()])
    assert seen == [{"float32", "uint32", "int32"}] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_a_run_is_the_same_where_the_flag_is_set(tmp_path: Path, kind: str, given_back: None) -> None:
    """Compiled anew: a program of before would hide it."""
    changes = {"env": wide} | AGENTS[kind]
    jax.config.update("jax_enable_x64", True)
    train(tiny(tmp_path / "set", **changes))
    champion = load_champion(tmp_path / "set", env=changes["env"])
    assert champion.predict(np.zeros(4))[0] in (0, 1)
    with jax.enable_x64(False):
        train(tiny(tmp_path / "not", **changes))
    same_run(tmp_path / "not", tmp_path / "set")


def nowhere(*_: object) -> Any:
    raise AssertionError  # as JAX raises it where JAX_PLATFORMS=cuda and there is no GPU


def test_devices_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    experiment = flags(tmp_path / "run")
    monkeypatch.setattr(jax, "devices", nowhere)
    outcome = shoal(*experiment)
    assert (outcome.code, outcome.out) == (2, "") and not (tmp_path / "run").exists()
    said(outcome.err)


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(AssertionError, match="mine"), on_jax():
        raise AssertionError("mine")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["train", "cartpole"], ["envs", "gymnax:CartPole-v1"]])
def test_no_such_platform(tmp_path: Path, command: list[str]) -> None:
    with start(*command, cwd=tmp_path, JAX_PLATFORMS="nope") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and err.startswith("shoal: JAX_PLATFORMS=nope: JAX finds no such device here ("), (
        out + err
    )
    assert err.count("\n") == 1 and not list(tmp_path.iterdir())
