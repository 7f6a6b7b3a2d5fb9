"""Aliases: names of other libraries, and what they are here."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest
from support.messages import Said

from shoal.agents.registry import AGENTS
from shoal.cli import train
from shoal.commands.arguments import flag_here
from shoal.commands.flags import Flags
from shoal.commands.launch import Launch
from shoal.core.aliases import FLAGS, NOT_HERE
from shoal.core.errors import BadInput, unknown
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import from_dict
from shoal.methods.components import make_method


@pytest.mark.parametrize("flag", FLAGS)
def test_answers_name_what_there_is(flag: str) -> None:
    answer = flag_here(flag.replace("_", "-"), "")
    given = set(re.findall(r"--(?!video|logdir|set)([a-z-]+)", answer))
    given |= set(re.findall(r"--set (\w+)", answer))
    known = {field.name for kind in (Experiment, Flags, Launch) for field in fields(kind)} | {
        *signature(train).parameters
    }
    assert {name.replace("-", "_") for name in given} <= known


@pytest.mark.parametrize(
    "name", ["A2C", "trpo", "ddpg", "a3c", "Recurrent-PPO", "ppo_lstm", "double_dqn", "qr-dqn", "HER", "nope"]
)
def test_agents_of_other_libraries(name: str, said: Said) -> None:
    said(unknown("agent", name, AGENTS))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"num_samples": 8}, "population"),
        ({"perturbation_interval": 8192}, "interval"),
        ({"hyperparam_mutations": {}}, "space"),
        ({"quantile_fraction": 0.25}, "method.select.bottom or method.select.top"),
        ({"perturbation_factors": [0.8, 1.2]}, "method.explore.factors"),
    ],
    ids=str,
)
def test_settings_of_pbt_in_ray_tune(given: dict[str, Any], meant: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"did you mean {meant}?")):
        from_dict(given)


@pytest.mark.parametrize(("name", "meant"), [("burn_in_period", "burn_in"), ("custom_explore_fn", "explore")])
def test_options_of_pbt_in_ray_tune(name: str, meant: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"did you mean {meant}?")):
        make_method({"name": "pbt", name: 1})


def test_alpha_is_the_temperature_of_sac() -> None:
    with pytest.raises(BadInput, match=r"did you mean config\.initial_temperature\?"):
        from_dict({"agent": "sac", "alpha": 0.2})
    assert "did you mean" not in str(unknown("hyper", "alpha", AGENTS["sac"].hyper._fields))


def test_no_agent_is_two_things() -> None:
    fixed = {field.name for agent in AGENTS.values() for field in fields(agent.config)}
    assert not NOT_HERE.keys() & {*AGENTS, *fixed, *(name for agent in AGENTS.values() for name in agent.hyper._fields)}
