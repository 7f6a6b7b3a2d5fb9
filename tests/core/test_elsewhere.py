"""Names of other libraries: what they are here is there."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields

import pytest
from support.messages import Said

from shoal.core.elsewhere import CONFIG, FLAGS, HYPER, NOT_HERE, flag_here
from shoal.core.errors import unknown
from shoal.experiment.experiment import Experiment
from shoal.methods.method import AGENTS


def test_names_are_those_of_the_agents() -> None:
    modules = [importlib.import_module(f"shoal.agents.{name}") for name in AGENTS]
    assert set(HYPER) == {name for module in modules for name in module.Hyper._fields}
    assert set(CONFIG) == {field.name for module in modules for field in fields(module.Config)}


@pytest.mark.parametrize("flag", FLAGS)
def test_answers_name_what_there_is(flag: str) -> None:
    answer = flag_here(flag.replace("_", "-"), "")
    given = set(re.findall(r"--(?!video|logdir|set)([a-z-]+)", answer))
    given |= set(re.findall(r"--set (\w+)", answer))
    assert {name.replace("-", "_") for name in given} <= {field.name for field in fields(Experiment)}


@pytest.mark.parametrize(
    "name", ["A2C", "trpo", "ddpg", "a3c", "Recurrent-PPO", "ppo_lstm", "double_dqn", "qr-dqn", "nope"]
)
def test_agents_of_other_libraries(name: str, said: Said) -> None:
    said(unknown("agent", name, AGENTS))


def test_no_agent_is_two_things() -> None:
    assert not NOT_HERE.keys() & {*AGENTS, *HYPER, *CONFIG}
