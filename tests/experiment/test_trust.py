"""What a run's file names is imported only where its user says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.messages import Said, shown
from support.runs import CONFIG, tiny

from shoal.core.errors import BadInput
from shoal.experiment.experiment import Fitness
from shoal.experiment.files import dump
from shoal.experiment.trust import open_run
from shoal.methods.select import Truncation


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "mine:world"},
        {"env": "subprocess:getoutput", "env_options": {"cmd": "echo"}},  # what is installed runs too
        {"env": "gym:mine:World-v0"},
        {"agent": "mine:agent"},
        {"agent": "rl_games:/dev/zero"},  # its process would read any file
        {"method": {"name": "mine:Method", "x": 1}},
        {"select": "os:system"},
        {"env": "sb3:world"},  # only as an agent it is no module
        {"method": "sb3:Method"},
        {"config": {"network": "rl_games:network"}},
        {"explore": {"name": "mine:Explore"}},
        {"config": {"network": "mine:network"}},
        {"config": {"network": {"name": "mine:network", "width": 3}}},
        {"config": {"auxiliary_loss": "mine:auxiliary_loss"}},
        {"config": {"imports": ["mine"]}},
        {"config": {"imports": {"mine": 1}}},  # whose keys would be imported
        {"config": {"policy_kwargs": {"net_arch": [8], "activation_fn": "mine:Function"}}},
        {"config": {"policy_kwargs": {"name": "x", "nested": [{"features_extractor_class": "mine:Function"}]}}},
        {"fitness": Fitness(objective="mine:score")},
    ],
    ids=shown,
)
def test_code_is_refused(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    (place,) = set(changes) - {"env_options"}
    (tmp_path / "experiment.yaml").write_text(dump(tiny(**changes)))
    with pytest.raises(BadInput) as error:
        open_run(tmp_path, False)
    said(error.value)
    given = {field: getattr(tiny(**changes), field) for field in ("env", "agent", "method", "config", "fitness")}
    assert open_run(tmp_path, False, **given) == open_run(tmp_path, True, **given)
    del given["method" if place in ("select", "explore") else place]
    with pytest.raises(BadInput, match="the run names code"):
        open_run(tmp_path, False, **given)


def test_what_is_given_again_replaces_that_alone(tmp_path: Path) -> None:
    """As in `resume`: a network that no file can name, and the layers behind it as the run has them."""
    (tmp_path / "experiment.yaml").write_text(dump(tiny(config=CONFIG | {"network": "object:network"})))
    assert open_run(tmp_path, False, config={"network": len}).config == CONFIG | {"network": len}


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "gymnax:CartPole-v1", "agent": "ppo", "select": {"name": "truncation", "top": 0.5}},
        {"env": "gym:CartPole-v1", "method": "independent"},
        {"env": lambda: None, "agent": lambda spec: None, "select": Truncation()},  # given in Python
        {"agent": "sb3:PPO", "config": {"policy_kwargs": {"net_arch": [8], "activation_fn": "ReLU"}}},
        {"env": "object:world"},  # it was: there is no name to import it by
    ],
)
def test_what_is_shoals_or_given_is_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "experiment.yaml").write_text(dump(tiny(**changes)))
    open_run(tmp_path, False)
