"""A run that begins with what another one has learned: exactly that, and nothing else of it."""

from __future__ import annotations

import json
import shutil
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from support.memory import compile_when_called
from support.messages import Said, shown
from support.runs import CONFIG, flags, rows, same_run, shoal, tiny

from shoal.commands.doctor.checks import warm_start
from shoal.core.arrays import arrays_in, pack
from shoal.core.atomic import seal
from shoal.core.errors import BadInput
from shoal.core.keys import derive
from shoal.distributed.processes import make_processes
from shoal.environments.levels import Levels
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_plan
from shoal.run.champion import load_champion
from shoal.run.control import Control
from shoal.run.start import begin, enter
from shoal.run.train import resume, train
from shoal.run.warm_start import read_warm_start
from shoal.study import replay

SAC: dict[str, Any] = {
    "agent": "sac",
    "env": "Pendulum-v1",
    "config": {"learning_starts": 16, "buffer_size": 64, "batch_size": 8},
}
Arrays = dict[str, np.ndarray]
LEARNED, HYPER = "learned/", "hyper/"


def at_the_start(experiment: Experiment) -> Arrays:
    """The state of a population before it trains, by the names that checkpoints have for it."""
    with make_processes(experiment, lambda: None, lambda message: None) as processes, ExitStack() as held:
        held.enter_context(compile_when_called())  # nobody trains
        context = enter(experiment, Control([]), processes, held)
        shard = begin(context).shard
        parts = [arrays_in(pack(part)) for part in shard.state()]
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}


def saved(run: Path) -> Arrays:
    """The last checkpoint of a run."""
    parts = [load_file(path) for path in sorted(max((run / "checkpoints").iterdir()).glob("shard-*.safetensors"))]
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}


def learned(arrays: Arrays) -> Arrays:
    return {name: x for name, x in arrays.items() if name.startswith(LEARNED)}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a past."""
    return train(tiny(tmp_path_factory.mktemp("past") / "first")).run_dir


@pytest.fixture
def first(past: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copytree(past, tmp_path / "first")


def after(first: Path, **changes: Any) -> Experiment:
    """A run that begins where the first one has ended, on other seeds."""
    return tiny(first.parent / "second", **{"init_from": str(first), "seed": 5} | changes)


def same(a: Arrays, b: Arrays) -> None:
    assert a.keys() == b.keys() and a
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], name)


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_population_goes_on_where_another_has_ended(first: Path, shards: int) -> None:
    end, begun = saved(first), at_the_start(after(first, shards=shards))
    same(learned(begun), learned(end))
    assert any(np.ptp(x, 0).any() for x in learned(end).values())  # members that differ
    tuned = [name for name in end if name.startswith(HYPER)]
    same({name: begun[name] for name in tuned}, {name: end[name] for name in tuned})
    told = json.loads((first.parent / "second" / "init_from.json").read_text())
    assert (told["run"], told["generation"]) == (str(first), 1)
    assert told["members"] == [{"uid": i, "parent": i} for i in range(4)]


def test_one_that_was_stopped_at_once_still_tells_where_it_began(first: Path) -> None:
    second = train(after(first)).run_dir
    told, _ = (second / "init_from.json").read_text(), (second / "result.json").unlink()
    shutil.rmtree(second / "checkpoints")
    (second / "init_from.json").unlink()
    resume(second)
    assert (second / "init_from.json").read_text() == told


def test_hyperparameters_that_only_one_of_them_tunes_are_those_of_the_file(first: Path) -> None:
    space = {"learning_rate": [1e-9, 1e-8, "log"], "epochs": {"low": 1, "high": 3, "integer": True}}
    begun = at_the_start(after(first, space=space, hyper={"discount": 0.5}))
    np.testing.assert_array_equal(begun[f"{HYPER}learning_rate"], np.full(4, 1e-8, np.float32))  # as near as it may be
    np.testing.assert_array_equal(begun[f"{HYPER}discount"], np.full(4, 0.5, np.float32))
    assert set(begun[f"{HYPER}epochs"]) <= {1, 2, 3}


def test_default_members_hold_the_defaults_after_a_warm_start(first: Path) -> None:
    """With the weights of the earlier run; hyperparameters of the others go on."""
    end, begun = saved(first), at_the_start(after(first, method={"name": "pbt", "default_members": 0.5}))
    same(learned(begun), learned(end))
    rates, before = begun[f"{HYPER}learning_rate"], end[f"{HYPER}learning_rate"]
    np.testing.assert_array_equal(rates[:2], np.full(2, 3e-4, np.float32))
    np.testing.assert_array_equal(rates[2:], before[2:])
    assert (before[:2] != rates[:2]).all()


def test_all_members_begin_as_a_champion(first: Path) -> None:
    champion = load_file(first / "champion" / "state.safetensors")
    begun = at_the_start(after(first, init_from=str(first / "champion")))
    same(learned(begun), {f"{LEARNED}{name}": np.stack([x] * 4) for name, x in champion.items()})
    assert np.ptp(begun[f"{HYPER}learning_rate"]) > 0  # they differ by what they try
    told = json.loads((first.parent / "second" / "init_from.json").read_text())
    uid = json.loads((first / "champion" / "manifest.json").read_text())["uid"]
    assert told["members"] == [{"uid": i, "parent": uid} for i in range(4)]


def test_the_fittest_go_on_or_have_children_where_populations_differ(first: Path) -> None:
    end, folder = saved(first), max((first / "checkpoints").iterdir())
    path, manifest = folder / "shard-0000.safetensors", json.loads((folder / "manifest.json").read_text())
    data = save(load_file(path) | {"fitness": np.array([3.0, np.nan, 1.0, 2.0])})
    path.write_bytes(data)
    manifest["parts"]["shard-0000"]["crc32"] = zlib.crc32(data)
    (folder / "manifest.json").write_bytes(seal({k: v for k, v in manifest.items() if k != "manifest_crc32"}))
    begun = at_the_start(after(first, population=2))
    same(learned(begun), {name: x[[0, 3]] for name, x in learned(end).items()})
    told = json.loads((first.parent / "second" / "init_from.json").read_text())
    assert told["members"] == [{"uid": 0, "parent": 0}, {"uid": 1, "parent": 3}]
    grown = make_plan(after(first, population=9))
    start, (_, new) = read_warm_start(grown), grown.evolver.init(derive((5,), 0, "hyper"), np.arange(9))
    assert start is not None and start.uid == [0, 1, 2, 3, *(0, 3, 2), *(0, 3)], "one without a fitness has no children"
    shutil.rmtree(first.parent / "second")
    begun = at_the_start(after(first, population=9))
    same(learned(begun), {name: x[start.uid] for name, x in learned(end).items()})
    name = f"{HYPER}learning_rate"
    np.testing.assert_array_equal(begun[name], np.append(end[name], new["learning_rate"][4:]))


# Where the parameters of the mean are: in what members share, and in a champion.
MEAN = {"es": ("policy/", ""), "cem_rl": ("distribution/mean/", "policy/")}
CRITICS = {"env": "Pendulum-v1", "config": {"layers": [8], "learning_starts": 8, "buffer_size": 400, "batch_size": 8}}


@pytest.mark.slow
@pytest.mark.parametrize("method", MEAN)
def test_a_mean_begins_as_a_champion(tmp_path: Path, method: str) -> None:
    settings: dict[str, Any] = {"method": method, "generations": 1, "config": {"layers": [8]}}
    settings |= CRITICS if method == "cem_rl" else {}
    train(tiny(tmp_path / "first", **settings))
    champion = load_file(tmp_path / "first" / "champion" / "state.safetensors")
    begun = at_the_start(tiny(tmp_path / "second", **settings, init_from=str(tmp_path / "first" / "champion"), seed=5))
    place, policy = f"rest/population/shared/{MEAN[method][0]}", MEAN[method][1]
    mean = {name.removeprefix(place): x for name, x in begun.items() if name.startswith(place)}
    told = {name.removeprefix(policy): np.atleast_1d(x) for name, x in champion.items() if name.startswith(policy)}
    same(mean, told)
    assert json.loads((tmp_path / "second" / "init_from.json").read_text())["members"][3]["uid"] == 3


def test_it_is_a_run_of_its_own_that_needs_the_first_no_more(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, whole = first.parent / "second", first.parent / "whole"
    train(after(first))
    second.rename(whole)
    train(after(first, generations=1))
    shutil.rmtree(first)
    resume(second, generations=2)
    same_run(second, whole)
    lines = rows(second / "lineage.jsonl")
    assert [row["steps"] for row in lines] == [64] * 4 + [128] * 4
    assert [row["uid"] for row in lines] == [0, 1, 2, 3] * 2
    replayed: list[Experiment] = []
    monkeypatch.setattr(replay, "train", lambda experiment, callbacks: replayed.append(experiment))
    replay.replay(second)
    assert [(e.init_from, e.population) for e in replayed] == [(None, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"config": CONFIG | {"layers": [4]}},
        {"init_from": "first/champion"} | SAC,
        {"init_from": "nowhere"},
        {"method": "es", "agent": "policy", "config": {}},
        {"method": "dvd", "env": "Pendulum-v1", "config": {}},
    ],
    ids=["widths", "agent", "nowhere", "es", "dvd"],
)
def test_what_does_not_fit_is_told(
    first: Path, changes: dict[str, Any], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(first.parent)
    with pytest.raises(BadInput) as error:
        read_warm_start(make_plan(after(first, **changes)))
    said(error.value)


LEVELS = "levels: {train: [0, 10], validation: [10, 20], test: [20, 30]}"


@pytest.mark.parametrize(
    ("part", "changes", "good"),
    [
        ("", {"train": (10, 20), "validation": (20, 30), "test": (30, 40)}, True),
        ("champion", {}, True),
        ("", {"validation": (9, 12)}, False),
        ("champion", {"train": (10, 20), "validation": (20, 30), "test": (0, 5)}, False),
        ("", {"test": (19, 30)}, False),
    ],
    ids=shown,
)
def test_nobody_is_measured_on_levels_that_it_has_learned(
    first: Path, part: str, changes: dict[str, Any], good: bool, said: Said
) -> None:
    with (first / "experiment.yaml").open("a") as file:
        file.write(f"{LEVELS}\n")
    levels = Levels(**{"train": (0, 5), "validation": (10, 15), "test": (20, 30)} | changes)
    plan = make_plan(after(first, init_from=str(first / part), levels=levels))
    if good:
        assert read_warm_start(plan) is not None
        assert [x.topic for x in warm_start(plan)] == ["warm start"]
        return
    with pytest.raises(BadInput) as error:
        read_warm_start(plan)
    said(error.value)


@pytest.mark.parametrize("between", [LEVELS.replace("0, 10", "40, 50").replace("10, 20", "50, 60"), ""])
def test_nor_on_those_of_a_run_before(first: Path, tmp_path: Path, between: str, said: Said) -> None:
    second = tmp_path / "second"
    shutil.copytree(first, second)
    for run, added in ((first, LEVELS), (second, f"{between}\ninit_from: {first}")):
        with (run / "experiment.yaml").open("a") as file:
            file.write(f"{added}\n")
    levels = Levels(train=(0, 5), validation=(60, 65), test=(5, 15))
    with pytest.raises(BadInput) as error:
        read_warm_start(make_plan(after(second, levels=levels)))
    said(error.value)
    shutil.rmtree(first)
    assert read_warm_start(make_plan(after(second, levels=levels))) is not None  # nobody knows any more


def test_the_doctor_doubts_levels_that_were_all_trained_on(first: Path) -> None:
    for part in ("", "champion"):
        _, found = warm_start(make_plan(after(first, init_from=str(first / part), levels=Levels())))
        assert (found.mark, found.topic) == ("!", "levels") and "had no levels" in found.text


def test_the_doctor_says_with_what_a_run_begins(first: Path) -> None:
    (found,) = warm_start(make_plan(after(first)))
    assert (found.mark, found.text) == ("✓", f"members start from the weights of {first} after generation 2")
    (found,) = warm_start(make_plan(after(first, init_from="nowhere")))
    assert found.mark == "✗" and "there is no run" in found.text
    assert list(warm_start(make_plan(tiny()))) == []


def test_the_flag(first: Path) -> None:
    done = shoal(*flags(first.parent / "second", "--init-from", str(first / "lineage.jsonl")))
    assert done.code == 2 and "no run, and no champion" in done.err and len(done.err.splitlines()) == 1
    assert not (first.parent / "second").exists()


def test_a_damaged_run_is_told(first: Path, said: Said) -> None:
    for path in (first / "checkpoints").rglob("shard-0000.safetensors"):
        path.write_bytes(b"nothing")
    with pytest.raises(BadInput) as error:
        read_warm_start(make_plan(after(first)))
    said(error.value)


def test_a_saved_champion_has_no_members(first: Path, tmp_path: Path, said: Said) -> None:
    load_champion(first).save(tmp_path / "saved")
    with pytest.raises(BadInput) as error:
        read_warm_start(make_plan(after(first, init_from=str(tmp_path / "saved"))))
    said(error.value)
    start = read_warm_start(make_plan(after(first, init_from=str(tmp_path / "saved/champion"))))
    assert start is not None and len(start.learned) == 4


def change_nothing(arrays: Arrays) -> Arrays:
    return arrays


FORGED = {
    "a shard without a number": ("shard-x", change_nothing),
    "no shard": ("other", change_nothing),
    "fitness that is one number": ("shard-0000", lambda arrays: arrays | {"fitness": np.array(1.0)}),
    "fitness of fewer": ("shard-0000", lambda arrays: arrays | {"fitness": np.zeros(3)}),
    "weights of fewer": (
        "shard-0000",
        lambda arrays: {n: x[:2] if n in learned(arrays) else x for n, x in arrays.items()},
    ),
    "weights that are numbers": ("shard-0000", lambda arrays: arrays | {f"{LEARNED}x": np.array(1.0)}),
    "values that are no numbers": (
        "shard-0000",
        lambda arrays: arrays | {f"{HYPER}discount": np.full_like(arrays[f"{HYPER}discount"], np.nan)},
    ),
    "no values": ("shard-0000", lambda arrays: {n: x for n, x in arrays.items() if not n.startswith(HYPER)}),
}


@pytest.mark.parametrize("how", FORGED)
def test_members_that_cannot_be_are_told_in_one_line(first: Path, how: str, said: Said) -> None:
    """Of a checkpoint whose manifest vouches for them, as anybody's can."""
    name, change = FORGED[how]
    folder = max((first / "checkpoints").iterdir())
    manifest = json.loads((folder / "manifest.json").read_text())
    data = save(change(load_file(folder / "shard-0000.safetensors")))
    (folder / f"{name}.safetensors").write_bytes(data)
    manifest["parts"] = {"run": manifest["parts"]["run"], name: {"bytes": len(data), "crc32": zlib.crc32(data)}}
    (folder / "manifest.json").write_bytes(seal({k: v for k, v in manifest.items() if k != "manifest_crc32"}))
    with pytest.raises(BadInput) as error:
        train(after(first))
    said(error.value)
