"""Aliases: names of other libraries, and what they are here."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature

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


def test_alpha_is_the_temperature_of_sac() -> None:
    with pytest.raises(BadInput, match=r"did you mean config\.initial_temperature\?"):
        from_dict({"agent": "sac", "alpha": 0.2})
    assert "did you mean" not in str(unknown("hyper", "alpha", AGENTS["sac"].hyper._fields))


def test_no_agent_is_two_things() -> None:
    fixed = {field.name for agent in AGENTS.values() for field in fields(agent.config)}
    assert not NOT_HERE.keys() & {*AGENTS, *fixed, *(name for agent in AGENTS.values() for name in agent.hyper._fields)}
