"""Evaluating a champion asks for nothing that only training needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.forged import forged
from support.messages import Said, shown
from support.runs import at_work, tiny
from support.whole_run import SPEC

from shoal.core.atomic import seal
from shoal.core.candidates import Candidate
from shoal.core.errors import BadInput
from shoal.experiment.build import make_environment, make_learner
from shoal.experiment.files import dump
from shoal.methods import METHODS
from shoal.methods.components import make_method
from shoal.methods.pbt import Pbt
from shoal.run.champion import save
from shoal.run.evaluation import evaluate

REPLAY = {"layers": [4], "num_envs": 1, "buffer_size": 512, "rollout_length": 16, "batch_size": 4}


@pytest.mark.parametrize("method", METHODS)
def test_a_champion_of_every_method(tmp_path: Path, method: str) -> None:
    """Also of short runs; that members filled one replay buffer together is known to training alone."""
    config: dict[str, Any] = {"layers": [4]} if method == "es" else {**REPLAY, "learning_starts": 200}
    agent = {"es": "policy"}.get(method, "td3")
    probe = {"env": "support.probes:match", "env_options": {"actions": "continuous"}}
    given = {**probe, "agent": agent, "config": config, "interval": 64, "generations": 1}
    options = {"schedule": {"rows": [{}]}, "mf_pbt": {"periods": [1, 2]}}
    experiment = tiny(method={"name": method} | options.get(method, {}), **given)
    spec = make_environment(experiment).spec
    agent = make_learner(experiment, spec, make_method(experiment.method)).agent
    learned = jax.tree.map(np.asarray, agent.init(jax.random.key(4), agent.hyper).learned)
    hyper = {name: float(x) for name, x in agent.hyper._asdict().items()}
    (tmp_path / "experiment.yaml").write_text(dump(experiment))
    with at_work(tmp_path) as staging:
        save(tmp_path / "champion", Candidate(learned, 2, 5, 0.5, hyper), spec, staging)
    found = evaluate(tmp_path, 5, trust_code=True)
    assert found["episodes"] == 5 and found["selection_fitness"] == 0.5
    assert found["min"] <= found["mean"] <= found["max"] <= 1


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return forged(tmp_path / "run")


def resealed(run: Path, **changes: Any) -> Path:
    """The run, whose champion's manifest says something else and has the checksum of that."""
    manifest = json.loads((run / "champion/manifest.json").read_text())
    del manifest["manifest_crc32"]
    (run / "champion/manifest.json").write_bytes(seal(manifest | changes))
    return run


@pytest.mark.parametrize("given", [{"episodes": 0}, {"episodes": 2.5}, {"seed": -1}, {"seed": "x"}], ids=shown)
def test_numbers_of_episodes_and_seeds_that_cannot_be(run: Path, given: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as error:
        evaluate(run, **given)
    said(error.value)


HYPER = make_learner(tiny(), SPEC, Pbt()).agent.hyper._asdict()


@pytest.mark.parametrize(
    "changed",
    [
        {"learning_rate": None},
        {"discount": None, "x": 1.0},
        {"env.x": 1.0},
        {"epochs": 1e300},
        {"epochs": float("nan")},
    ],
    ids=shown,
)
def test_what_is_said_of_other_hyperparameters(run: Path, changed: dict[str, Any], said: Said) -> None:
    hyper = {name: x for name, x in ({k: float(v) for k, v in HYPER.items()} | changed).items() if x is not None}
    with pytest.raises(BadInput) as error:
        evaluate(resealed(run, hyper=hyper), 1)
    said(error.value)


def test_a_champion_that_says_nothing_of_its_environment(run: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        evaluate(resealed(run, spec=None), 1)
    said(error.value)
