"""What Python has and the command has not: a display on demand, and callbacks that end a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import numpy as np
import pytest
from support.messages import Said, shown
from support.parts import in_parts
from support.runs import CONFIG, mpiexec, rows, same_run, tiny
from support.tiny import agent_for

import shoal
from shoal import (
    Agent,
    BadInput,
    Callback,
    Generation,
    Selection,
    Spec,
    evaluate,
    load_champion,
    load_run,
    resume,
    train,
)
from shoal.core.atomic import seal, unseal
from shoal.experiment.plan import make_plan
from shoal.run import checkpoint
from shoal.run.champion import load_members


class Until(Callback):
    """Ends the run after a generation; a second one hears of that too."""

    def __init__(self, generation: int):
        self._last, self.heard = generation, -1

    def on_generation_end(self, event: Generation) -> Any:
        self.heard = event.generation
        return np.int64(event.generation) != self._last  # NumPy's False ends a run too


def test_everything_has_its_home() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name).__name__ == name


@pytest.mark.parametrize(
    "changes",
    [
        {"fitness": shoal.Fitness(source="trainng")},
        {"fitness": {"epsodes": 2}},
        {"exchange": "lokal"},
        {"interval": 512.5},
        {"population": "4"},
        {"seed": None},
        {"space": [1]},
        {"hyper": {"epochs": "x"}},
        {"env_options": {"of": {"weights": np.arange(3)}}},
        {"env_options": {"place": [Path("here")]}},
        {"env_options": {"of": {1, 2}}},
        {"env_options": {"of": train}},
        {"config": {"layers": np.array([8, 8])}},
    ],
    ids=shown,
)
def test_what_no_file_may_say_is_refused(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "run", **changes))
    said(error.value)
    assert not (tmp_path / "run").exists()


class NoAgent:
    """A class where a function must be, such as an external trainer."""


@pytest.mark.parametrize("agent", [lambda spec, **config: 3, NoAgent])
def test_an_object_that_is_no_agent_is_refused(tmp_path: Path, agent: Any, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "run", agent=agent, space={}, hyper={}))
    said(error.value)
    assert not (tmp_path / "run").exists()


def test_fields_as_in_a_file_and_numbers_of_numpy(tmp_path: Path) -> None:
    fields = {"fitness": {"episodes": np.int64(2)}, "checkpoint": {"keep": 1}, "run_dir": tmp_path / "run"}
    train(tiny(population=np.int32(4), **fields), [Until(0)])
    again = tmp_path / "again.yaml"
    again.write_text((tmp_path / "run/experiment.yaml").read_text().replace(str(tmp_path / "run"), str(tmp_path / "b")))
    assert train(again, [Until(0)]).run_dir == tmp_path / "b"
    same_run(tmp_path / "run", tmp_path / "b")


def test_a_recorder_ends_the_run_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its time goes on from what the checkpoint says that the run has taken, whose arrays are read once."""
    first, second = Until(0), Until(9)
    result = train(tiny(tmp_path / "run", generations=3), [first, second])
    assert (first.heard, second.heard) == (0, 0)
    assert (result.summary["status"], result.summary["generations"]) == ("stopped", 1)
    assert result.summary["champion"] is not None
    (manifest,) = (tmp_path / "run" / "checkpoints").glob("*/manifest.json")
    manifest.write_bytes(seal(unseal(manifest) | {"seconds": 1000.0, "compile_seconds": 900.0}))
    files, read_file = list[str](), checkpoint.read_file
    monkeypatch.setattr(checkpoint, "read_file", lambda file, *more: files.append(file.name) or read_file(file, *more))
    done = resume(tmp_path / "run").summary
    assert sorted(name for name in files if name.startswith(("run", "shard"))) == [
        "run.safetensors",
        "shard-0000.safetensors",
    ]
    timings = [row["timing"]["seconds"] for row in rows(tmp_path / "run" / "metrics.jsonl")]
    assert done["status"] == "done" and timings[0] < 1000 < timings[1] <= timings[2] <= done["seconds"] < 2000
    assert 900 <= done["compile_seconds"] < done["seconds"]
    train(tiny(tmp_path / "whole", generations=3))
    same_run(tmp_path / "whole", tmp_path / "run")


class Silent(Callback):
    """Hears everything."""

    def __repr__(self) -> str:
        return "<silent>"


@pytest.mark.parametrize(
    "callbacks", [Silent(), [Silent], [Silent(), print], None], ids=["one", "class", "two", "none"]
)
def test_what_is_no_list_of_callbacks_is_refused(tmp_path: Path, callbacks: Any, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "run"), callbacks)
    said(error.value)
    assert not (tmp_path / "run").exists()


class Failing(Callback):
    """Its end fails."""

    def on_training_end(self, result: Any) -> None:
        raise RuntimeError("no end")


def test_every_recorder_hears_of_the_end(tmp_path: Path) -> None:
    """Else curves of W&B are not finished, nor the display taken down, because another callback has failed."""
    ended: list[str] = []

    class Ends(Callback):
        def on_training_end(self, result: Any) -> None:
            ended.append(result["status"])

    with pytest.raises(RuntimeError, match="no end"):
        train(tiny(tmp_path / "run", generations=1), [Ends(), Failing(), Ends()])
    assert ended == ["done", "done"]


def test_a_result_names_parts_as_files_do() -> None:
    """Not by where they lie in memory, which differs from run to run."""
    experiment = make_plan(tiny(env=in_parts)).experiment
    assert (experiment.env_name, experiment.agent_name) == ("support.parts:in_parts", "ppo")


def test_the_result_of_a_game_names_no_episodes() -> None:
    """Exploitability is computed: a notebook showed ± 0 over 2 episodes."""
    evaluation = {"mean": -0.25, "standard_error": 0.0, "episodes": 2, "exact": True}
    result = shoal.Result(Path("run"), {"status": "done", "champion": {"evaluation": evaluation}}, shoal.Experiment())
    assert repr(result) == "<result of run: done, champion with exploitability 0.25>"


def test_the_result_of_one_episode() -> None:
    evaluation = {"mean": 1.5, "standard_error": None, "episodes": 1}
    result = shoal.Result(Path("run"), {"status": "done", "champion": {"evaluation": evaluation}}, shoal.Experiment())
    assert repr(result) == "<result of run: done, champion 1.5 over 1 episode>"


def test_what_a_notebook_shows_says_how_it_went(tmp_path: Path) -> None:
    result = train(tiny(tmp_path / "run"))
    told = result.summary["champion"]
    mean, error, episodes = (told["evaluation"][name] for name in ("mean", "standard_error", "episodes"))
    said = f"done, champion {mean:.4g} ± {error:.2g} (standard error) over {episodes} episodes"
    assert repr(result) == f"<result of {tmp_path / 'run'}: {said}>"
    generations = "1 generation" if told["generation"] == 0 else "2 generations"
    member = f"member {told['uid']} after {generations}, {told['selection_fitness']:.4g}"
    assert repr(result.champion) == f"<champion of gymnax:CartPole-v1 by ppo: {member}>"
    assert result.champion is result.champion, "a policy that samples draws other numbers for each action"
    assert (result.evaluation["mean"], result.evaluation["episodes"]) == (mean, episodes)
    assert repr(replace(result, summary={"status": "done", "champion": None})).endswith(": done, no score>")


def test_a_recorder_may_end_it_with_the_last_generation(tmp_path: Path) -> None:
    assert train(tiny(tmp_path / "run"), [Until(1)]).summary["status"] == "done"


@pytest.mark.slow
def test_the_display_is_shown_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny(tmp_path / "a"))
    assert capsys.readouterr().out == ""
    train(tiny(tmp_path / "b"), progress=True)
    assert "generation 1/2" in capsys.readouterr().out
    resume(tmp_path / "b", generations=3, progress=True)
    assert "generation 3/3" in capsys.readouterr().out
    assert evaluate(str(tmp_path / "b"), episodes=2)["episodes"] == 2
    run = load_run(tmp_path / "b")
    assert run.experiment.generations == run.result["generations"] == len(run.metrics) == 3
    assert run.champion.uid == run.result["champion"]["uid"]


def dense(spec: Spec) -> nn.Module:
    return nn.Sequential([nn.Dense(5), nn.relu])


@pytest.mark.slow
def test_a_network_of_ones_own(tmp_path: Path, said: Said) -> None:
    """The file names it, so that a run goes on where that name is trusted, or the network given again."""
    config = CONFIG | {"network": dense}
    train(tiny(tmp_path / "run", config=config, generations=1))
    assert load_run(tmp_path / "run").experiment.config["network"] == f"{__name__}:dense"
    with pytest.raises(BadInput) as error:
        resume(tmp_path / "run", generations=2)
    said(error.value)
    result = resume(tmp_path / "run", generations=2, config=config)
    assert result.champion.predict(np.zeros(4))[0] in (0, 1)


def test_the_champion_of_objects_that_no_file_can_name(tmp_path: Path) -> None:
    """An agent, a selector and a network of a script or a notebook; whoever has the run alone must give them again."""

    def agent(spec: Spec, **settings: Any) -> Agent:
        return agent_for(spec, "ppo", **settings)

    def network(spec: Spec) -> nn.Module:
        return dense(spec)

    def nobody(key: Any, stats: Any, rows: np.ndarray) -> Selection:
        return Selection(rows, rows < 0)

    changes = {"agent": agent, "config": CONFIG | {"network": network}, "select": nobody}
    result = train(tiny(tmp_path / "run", **changes, space={}, hyper={}, generations=1))
    assert result.champion.predict(np.zeros(4))[0] in (0, 1)
    with pytest.raises(BadInput, match="give it again"):
        load_champion(tmp_path / "run", trust_code=True)
    e = result.experiment
    given = {"agent": e.agent, "method": e.method, "config": e.config}
    assert evaluate(tmp_path / "run", episodes=2, trust_code=True, **given)["episodes"] == 2
    members = load_members(tmp_path / "run", trust_code=True, **given)
    assert len(members) == e.population and all(one.predict(np.zeros(4))[0] in (0, 1) for one in members)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "wrong"), [(1, {"population": 0}), (2, {"population": 0}), (1, {"env": "CartPol-v1"})]
)
def test_what_cannot_be_trained_is_raised_by_every_rank(ranks: int, wrong: dict[str, Any]) -> None:
    """A program goes on after it, and MPI does not end it."""
    pytest.importorskip("mpi4py")
    code = (
        "from shoal import Experiment, train; from shoal.core.errors import BadInput\n"
        f"try: train(Experiment(exchange='mpi', **{wrong}))\nexcept BadInput: print(1)"
    )
    done = subprocess.run(mpiexec(ranks, sys.executable, "-c", code), capture_output=True, text=True, timeout=120)
    assert "".join(done.stdout.split()) == "1" * ranks, done.stderr


@pytest.mark.slow
def test_all_ranks_of_mpi_stop_together(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    support = Path(__file__).parents[1]
    code = (
        f"import sys; sys.path[:0] = [{str(support)!r}]\n"
        "from run.test_library import Until; from support.runs import tiny\n"
        "from pathlib import Path; from shoal import train\n"
        f"result = train(tiny(Path({str(tmp_path / 'run')!r}), generations=4, exchange='mpi'), [Until(1)])\n"
        "print(result.summary['generations'], 'mean' in result.evaluation)"
    )
    done = subprocess.run(mpiexec(2, sys.executable, "-c", code), capture_output=True, text=True, timeout=120)
    assert "".join(done.stdout.split()) == 2 * "2True", done.stderr  # lines of two ranks may be joined
    assert json.loads((tmp_path / "run/result.json").read_text())["status"] == "stopped"
