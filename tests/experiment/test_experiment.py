"""One dataclass that is the file, the flags and the Python argument; errors that say where."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from hypothesis import given
from hypothesis import strategies as st
from support.messages import Said, shown
from support.runs import build_run, tiny
from support.strategies import RANGES

from shoal.core.errors import BadField, BadInput
from shoal.core.population import PopulationStats, Selection
from shoal.core.space import Range
from shoal.core.yaml_text import plain, read_yaml
from shoal.experiment.experiment import Checkpoint, ExchangeSettings, Experiment, Fitness, Stop, WeightsAndBiases
from shoal.experiment.files import assign, attribute_errors, dump, from_dict, load, to_dict
from shoal.experiment.plan import make_plan
from shoal.methods.components import make_method
from shoal.methods.explore import EXPLORERS, Explorer, Gaussian, Mutate, Perturb
from shoal.methods.pbt import Pbt
from shoal.methods.schedule import Schedule
from shoal.methods.select import SELECTORS, Selector, Threshold, Truncation
from shoal.run import start

EVERYTHING = Experiment(
    env="gym:CartPole-v1",
    method=Pbt(
        select=Threshold(threshold_std=0.5),
        explore=Mutate(change_range=(1.5, 3.0)),
        burn_in=200,
        replay="copy",
    ),
    agent="ppo",
    population=6,
    generations=3,
    interval=100,
    budget=1_000_000,
    time_limit=3600.0,
    stop=Stop(475.0, 5),
    shards=3,
    exchange={"name": "mpi", "timeout": 60.0},  # type: ignore[arg-type]
    seed=7,
    run_dir="runs/x y",
    init_from="runs/before/champion",
    wandb=WeightsAndBiases("robots", "member", "first", "offline"),
    fitness=Fitness("training", 3, False, "episode.r", None, "minimize", 50),
    checkpoint=Checkpoint(2, 5),
    final_episodes=9,
    hyper={"epochs": 2.0, "clip_range": 1e-7},
    space={
        "learning_rate": Range(1e-5, 1e-2, "log", initial=3e-4),
        "discount": Range(0.9, 0.999, "one_minus_log"),
        "entropy_coefficient": Range(choices=(0.0, 0.01), ordered=True),
    },
    config={"layers": (8, 8), "activation": "relu"},
    env_options={"vectorization": "async", "max_episode_steps": 20},
)


def selector_of(experiment: Experiment) -> Any:
    return make_method(experiment.method).select  # type: ignore[attr-defined]


def explorer_of(experiment: Experiment) -> Any:
    return make_method(experiment.method).explore  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Mine(Selector):
    """A selector of one's own, with an option."""

    count: int = 1

    def __call__(self, key: Any, stats: PopulationStats, rows: np.ndarray) -> Selection:
        return Selection(rows, np.zeros(len(rows), bool))


def my_selection(key: Any, stats: PopulationStats, rows: np.ndarray) -> Selection:
    return Selection(rows, np.zeros(len(rows), bool))


def written(folder: Path, text: str) -> Path:
    path = folder / "e.yaml"
    path.write_text(text)
    return path


# --------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "experiment", [Experiment(method="pbt"), EVERYTHING, tiny()], ids=["pbt", "everything", "tiny"]
)
def test_file_round_trip(tmp_path: Path, experiment: Experiment) -> None:
    back = load(written(tmp_path, dump(experiment)))
    assert plain(to_dict(back)) == plain(to_dict(experiment))
    assert dump(back) == dump(experiment)
    assert (back.fitness, back.checkpoint, back.hyper) == (experiment.fitness, experiment.checkpoint, experiment.hyper)
    for name, r in (experiment.space or {}).items():
        assert back.space[name] == r  # type: ignore[index]
    assert selector_of(back) == selector_of(experiment)
    assert explorer_of(back) == explorer_of(experiment)


SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
COUNTS = st.integers(1, 1000)
TUNED = st.dictionaries(st.sampled_from(("learning_rate", "discount", "entropy_coefficient")), RANGES)
METHODS = st.builds(
    Pbt,
    select=st.builds(Threshold, SHARES, SHARES) | st.builds(Truncation, st.floats(0.1, 0.5), st.floats(0.1, 0.5)),
    explore=st.builds(Gaussian, SHARES) | st.builds(Perturb, st.tuples(SHARES, SHARES), SHARES),
    burn_in=COUNTS,
    replay=st.sampled_from(("keep", "copy")),
)


@given(
    st.builds(
        Experiment,
        method=METHODS,
        population=COUNTS,
        interval=COUNTS,
        exchange=st.builds(ExchangeSettings, st.just("directory"), workspace=st.text("a: '1e5", min_size=1)),
        run_dir=st.none() | st.text("a: '\n#1e5", min_size=1),
        fitness=st.builds(Fitness, episodes=st.none() | COUNTS, deterministic=st.booleans()),
        checkpoint=st.builds(Checkpoint, COUNTS, COUNTS),
        hyper=st.dictionaries(st.sampled_from(("clip_range", "env.gravity")), st.floats(-1e30, 1e30)),
        space=st.none() | TUNED,
        config=st.dictionaries(
            st.sampled_from(("layers", "rollout_length")), COUNTS | st.lists(COUNTS) | st.text("a1e5")
        ),
    )
)
def test_what_is_dumped_is_read(said: Experiment) -> None:
    back = from_dict(read_yaml(dump(said)))
    assert make_method(back.method) == make_method(said.method)
    assert replace(back, method=said.method) == said and dump(back) == dump(said)


def test_everything_says_more_than_the_defaults() -> None:
    usual = Experiment()
    same = [f.name for f in fields(Experiment) if getattr(usual, f.name) == getattr(EVERYTHING, f.name)]
    assert same == ["python", "processes", "levels"]  # of trainers, evaluations


def test_schedule_round_trip(tmp_path: Path) -> None:
    given = tiny(schedule=[{"learning_rate": 1e-4}, {"learning_rate": 2e-4}])
    assert load(written(tmp_path, dump(given))).method == given.method
    assert make_method(given.method) == Schedule(rows=({"learning_rate": 1e-4}, {"learning_rate": 2e-4}))


@pytest.mark.parametrize("kind", SELECTORS.values())
def test_selectors_as_name_mapping_and_object(kind: type[Selector]) -> None:
    name = next(n for n, k in SELECTORS.items() if k is kind)
    assert selector_of(tiny(select=name)) == selector_of(tiny(select={"name": name})) == kind()
    assert selector_of(from_dict(read_yaml(dump(tiny(select=kind()))))) == kind()


@pytest.mark.parametrize("kind", EXPLORERS.values())
def test_explorers_as_name_mapping_and_object(kind: type[Explorer]) -> None:
    name = next(n for n, k in EXPLORERS.items() if k is kind)
    assert explorer_of(tiny(explore=name)) == explorer_of(tiny(explore={"name": name})) == kind()
    assert explorer_of(from_dict(read_yaml(dump(tiny(explore=kind()))))) == kind()


def test_options_of_components() -> None:
    chosen = tiny(select={"name": "truncation", "bottom": 0.4}, explore={"name": "perturb", "factors": [0.5, 2]})
    assert selector_of(chosen) == Truncation(bottom=0.4)
    assert explorer_of(chosen) == Perturb(factors=(0.5, 2.0))


def test_components_of_ones_own(said: Said) -> None:
    here = __name__
    assert selector_of(tiny(select=f"{here}:Mine")) == Mine()
    assert selector_of(tiny(select={"name": f"{here}:Mine", "count": 3})) == Mine(3)
    assert selector_of(tiny(select=f"{here}:my_selection")) is my_selection
    assert selector_of(tiny(select=my_selection)) is my_selection
    for chosen in (Mine(3), my_selection):
        assert selector_of(from_dict(read_yaml(dump(tiny(select=chosen))))) == chosen
    with pytest.raises(BadInput) as error:
        selector_of(tiny(select={"name": f"{here}:Mine", "cuont": 3}))
    said(error.value)
    with pytest.raises(BadInput) as error:
        selector_of(tiny(select="nowhere:x"))
    said(error.value)


@pytest.mark.parametrize("text", ["[1e-5, 1e-2, log]", "{low: 1e-5, high: 1e-2, scale: log}", "[1.0e-5, 0.01, log]"])
def test_ranges_as_list_and_mapping(tmp_path: Path, text: str) -> None:
    read = load(written(tmp_path, f"space:\n  learning_rate: {text}"))
    assert read.space["learning_rate"] == Range(1e-5, 1e-2, "log")  # type: ignore[index]


def test_numbers_without_a_dot(tmp_path: Path) -> None:
    read = load(written(tmp_path, "interval: 1e4\nhyper: {learning_rate: 1e-4}\nenv_options: {gravity: 1e1}"))
    assert (read.interval, read.hyper, read.env_options) == (10_000, {"learning_rate": 1e-4}, {"gravity": 10.0})
    assert type(read.interval) is int


@pytest.mark.parametrize(
    ("fields", "episodes"),
    [
        ({}, 32),
        ({"method": "es"}, 8),
        ({"env": "gym:CartPole-v1"}, 8),
        ({"fitness": {"episodes": 5}}, 5),
        # A tenth of the interval, in episodes of at most 500 steps; where that is less, the default.
        ({"fitness": {"episodes": "auto"}}, 32),
        ({"fitness": {"episodes": "auto"}, "interval": 250_000}, 50),
        ({"fitness": {"episodes": "auto"}, "interval": 250_000, "env_options": {"max_steps_in_episode": 100}}, 250),
        ({"fitness": {"episodes": "auto", "step_limit": 250}, "interval": 250_000}, 100),
        ({"fitness": {"episodes": "auto"}, "env": "gym:CartPole-v1", "interval": 50_000}, 10),
        ({"fitness": {"episodes": "auto"}, "env": "envpool:HalfCheetah-v5", "interval": 250_000}, 25),
        (
            {"fitness": {"episodes": "auto"}, "env": "ALE/Pong-v5", "interval": 250_000}
            | {"env_options": {"max_episode_steps": 1000}, "config": {"network": "nature_cnn"}},
            25,
        ),
        ({"env": "none", "agent": "support.trainers:Sound"}, 8),
    ],
)
def test_members_play_more_episodes_where_that_costs_no_time(fields: dict, episodes: int) -> None:
    """On the device, unless an episode of each is all that members ever do."""
    plan = make_plan(from_dict({"env": "CartPole-v1", "population": 4} | fields))
    assert plan.evaluation.episodes == plan.experiment.fitness.episodes == episodes
    plan.kind.close()


@pytest.mark.parametrize("fields", [{"method": "es"}, {"env": "none", "agent": "support.trainers:Sound"}])
def test_no_share_of_steps_where_there_are_none_between_evaluations(said: Said, fields: dict) -> None:
    with pytest.raises(BadField) as error:
        make_plan(from_dict({"population": 4, "fitness": {"episodes": "auto"}} | fields))
    said(error.value)


def test_flags_may_come_in_any_order() -> None:
    """And a name that is given again keeps the options that it has."""
    given = {"exchange.workspace": "x", "exchange": "directory", "method.select.bottom": 0.4, "method": "pbt"}
    changed = assign(from_dict({"method": "independent"}), given)
    assert changed.exchange == ExchangeSettings("directory", workspace="x")
    assert selector_of(changed) == Truncation(bottom=0.4)
    assert assign(changed, {"exchange": "directory", "method": "pbt"}) == changed


def test_resolved_experiment_is_the_same_run() -> None:
    """What a run writes holds every default, and resolves to itself."""
    plan = build_run(tiny()).experiment
    again = build_run(from_dict(read_yaml(dump(plan)))).experiment
    assert dump(again) == dump(plan)
    assert plan.env == "gymnax:CartPole-v1"
    assert plan.hyper.keys() | plan.space.keys() == set(build_run(tiny()).agent.hyper._fields)  # type: ignore[union-attr]
    assert plan.config["activation"] == "tanh"


# --------------------------------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("path", "text", "find"),
    [
        ("population", "6", lambda e: e.population == 6),
        ("interval", "1e4", lambda e: e.interval == 10_000),
        ("hyper.discount", "1e-1", lambda e: e.hyper["discount"] == 0.1),
        ("hyper", "{epochs: 3}", lambda e: e.hyper == {"epochs": 3.0}),
        ("method.select.bottom", "0.4", lambda e: selector_of(e) == Truncation(bottom=0.4)),
        ("method.select", "{name: truncation, top: 0.1}", lambda e: selector_of(e) == Truncation(top=0.1)),
        ("method.explore.factors", "[0.5, 2]", lambda e: explorer_of(e) == Perturb(factors=(0.5, 2.0))),
        ("method.explore", "gaussian", lambda e: explorer_of(e) == Gaussian()),
        ("config.layers", "[4]", lambda e: e.config["layers"] == [4]),
        ("fitness.episodes", "3", lambda e: e.fitness == Fitness(episodes=3)),
        ("fitness.objective", "null", lambda e: e.fitness.objective is None),
        ("space.discount", "[0.8, 0.9]", lambda e: e.space["discount"] == Range(0.8, 0.9)),
        ("run_dir", "a/b", lambda e: e.run_dir == "a/b"),
        ("run_dir", "'1e5'", lambda e: e.run_dir == "1e5"),
    ],
)
def test_set(path: str, text: str, find: Any) -> None:
    before = Experiment(method="pbt")
    changed = assign(before, {path: read_yaml(text)})
    assert find(changed)
    other = {k: v for k, v in to_dict(changed).items() if k != path.split(".")[0]}
    assert other == {k: v for k, v in to_dict(before).items() if k in other}


@pytest.mark.parametrize("method", [None, {"burn_in": 5}])
def test_set_options_of_the_default_method(method: Any) -> None:
    changed = assign(Experiment(method=method), {"method.select": "t_test", "method.replay": "copy"})
    options = {"select": {"name": "t_test"}, "replay": "copy"}
    assert changed.method_name == "successive_halving" and options.items() <= changed.method_or_default.items()


def test_set_leaves_the_original_alone() -> None:
    given = Experiment(
        hyper={"epochs": 2.0},
        config={"layers": [8]},
        method={"name": "pbt", "select": {"name": "truncation"}},
        space={},
    )
    before = dump(given)
    for path, text in (
        ("hyper.discount", "0.5"),
        ("config.layers", "[4]"),
        ("method.select.bottom", "0.5"),
        ("space.x", "[0, 1]"),
    ):
        assign(given, {path: read_yaml(text)})
    with pytest.raises(BadInput):
        assign(given, {"hyper.a.b": 1})
    assert dump(given) == before
    assert Experiment() == Experiment(hyper={}, env_options={})


def test_set_reaches_into_a_range() -> None:
    changed = assign(EVERYTHING, {"space.learning_rate.low": 1e-6})
    assert changed.space["learning_rate"] == Range(1e-6, 1e-2, "log", initial=3e-4)  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("populaton", "3"),
        ("fitness.episode", "3"),
        ("env.name", "x"),
        ("population.x", "1"),
        ("population", "x"),
    ],
    ids=shown,
)
def test_set_refuses(path: str, text: str, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        assign(Experiment(), {path: read_yaml(text)})
    said(error.value)


# --------------------------------------------------------------------------------------- errors


def of_pbt(text: str, line: int) -> tuple[str, int]:
    """A case of an option of the method."""
    return f"method:\n  name: pbt\n{textwrap.indent(text, '  ')}", line + 2


# Names that lead to nothing of use.
NO_OBJECTS = ("..x:y", "':y'", "os:system", "sys:exit", "builtins:int")
NO_OBJECTS += ("broken_syntax:x", "broken_exit:x", "broken_error:x", "broken_error:Never")


@pytest.fixture(autouse=True, scope="module")
def broken_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that cannot be imported, each in a way of its own."""
    folder = tmp_path_factory.mktemp("modules")
    texts = {"syntax": "def (", "exit": "import sys\nsys.exit(3)\n", "error": "\n1 / 0\n"}
    for name, text in texts.items():
        (folder / f"broken_{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


# (file, line)
BAD: list[tuple[str, int]] = [
    ("env: CartPole-v1\npopulaton: 4", 2),
    ("population: four", 1),
    ("\n\npopulation: 0", 3),
    ("generations: 0", 1),
    ("interval: 0", 1),
    of_pbt("burn_in: -1", 1),
    ("seed: -1", 1),
    ("seed: 2147483648", 1),
    ("population: 1000000000000", 1),
    ("generations: 1e8", 1),
    ("fitness:\n  episodes: 1e12", 2),
    ("checkpoint:\n  keep: 1e18", 2),
    ("population: 1\ninterval: !!int x", 2),
    ("population: 1\ninterval: " + "9" * 5000, 2),
    ('seed: 1\nrun_dir: "a\\0b"', 2),
    ("env: 2020-99-99\npopulation: 0", 2),
    *(of_pbt(f"select: {name}", 1) for name in NO_OBJECTS),
    *(of_pbt(f"explore: {{name: {name}}}", 1) for name in NO_OBJECTS),
    ("method: os:system", 1),
    of_pbt("select: {name: os:getcwd, x: 3}", 1),
    ("final_episodes: 0", 1),
    ("fitness:\n  episodes: 0", 2),
    ("fitness:\n  step_limit: 0", 2),
    ("fitness:\n  source: trainig", 2),
    ("checkpoint:\n  keep: 0", 2),
    ("checkpoint:\n  every: 0", 2),
    ("seed: 1\nworkspace: x", 2),
    ("exchange: mpi\ntimeout: 60", 2),
    ("exchange: lokal", 1),
    ("exchange:\n  name: mpi\n  worker: a", 3),
    ("seed: 1\nexchange: directory", 2),
    ("seed: 1\nselect: none", 2),
    of_pbt("select: tournement", 1),
    of_pbt("select:\n  name: truncaton", 1),
    of_pbt("select:\n  bottom: 0.2", 1),
    of_pbt("select:\n  name: truncation\n  botom: 0.2", 3),
    of_pbt("select:\n  name: truncation\n  bottom: 2", 3),
    of_pbt("select:\n  name: truncation\n  parents: topp", 3),
    of_pbt("select: [truncation]", 1),
    of_pbt("explore: pertub", 1),
    of_pbt("explore:\n  name: perturb\n  factors: [1]", 3),
    of_pbt(
        "explore:\n  name: mutate\n  change_range: [1, 2, 3]",
        3,
    ),
    ("hyper:\n  discount: high", 2),
    ("hyper:\n  discount: .nan", 2),
    ("hyper:\n  learning_rate: 1e39", 2),
    ("space:\n  discount: [0.9, 0.8]", 2),
    ("space:\n  learning_rate: [0, 1, log]", 2),
    ("space:\n  learning_rate:\n    low: 1e-5\n    high: 1e-2\n    scale: lg", 5),
    ("space:\n  discount: 0.9", 2),
    ("space:\n  discount: [0.9]", 2),
    ("space:\n  epochs: {low: 1.5, high: 4, integer: true}", 2),
    ("hyper:\n  discount: 0.9\nspace:\n  discount: [0.8, 0.9]", 2),
    ("run_dir: 5", 1),
    ("seed: 1\nenv:", 2),
    ("env: [CartPole-v1]", 1),
    ("agent: 3", 1),
    ("env: a\nagent: {name: ppo}", 2),
    ("env: a\nconfig: [1]", 2),
    ("config: {layers: [8]}\nenv: x: y", 2),
]


@pytest.mark.parametrize(("text", "line"), BAD, ids=[shown(text) for text, _ in BAD])
def test_every_error_names_file_line_and_field(tmp_path: Path, text: str, line: int, said: Said) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as error:
        load(path)
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert str(error.value).count(str(path)) == 1
    said(error.value)


# What only building the parts of a run can find; the file is then named by whoever builds.
BUILT: list[tuple[str, int]] = [
    ("env: CartPol-v1", 1),
    ("env: gymnx:CartPole-v1", 1),
    ("env: code/arm.py:Arm", 1),
    ("env: gym:CartPol-v1", 1),
    ("env: shoal.commands.toy:nothing", 1),
    ("env: shoal.core.keys:words\nenv_options:\n  key: [1]", 2),
    ("env: builtins:dict", 1),
    ("env: support.kuhn:__doc__\nenv_options: {}", 1),
    ("env: support.masked:Several", 1),
    ("env_options:\n  max_steps_in_episode: 1000000000000", 2),
    ("env_options:\n  gravty: 1", 2),
    ("agent: pp", 1),
    ("agent: shoal.nothing:x", 1),
    ("agent: ..x:y", 1),
    ("agent: os:system", 1),
    ("agent: sys:exit", 1),
    ("agent: builtins:repr", 1),
    ("env: broken_syntax:x", 1),
    ("env: broken_exit.inner:x", 1),
    ("env: sys:exit\nenv_options: {}", 2),
    ("env: ..x:y", 1),
    of_pbt("explore: os.path:join", 1),
    of_pbt("explore: builtins:isinstance", 1),
    ("config:\n  rollout_length: 1e12", 2),
    ("config:\n  layers: [8, 1e18]", 2),
    ("hyper:\n  lerning_rate: 1e-4", 2),
    ("space:\n  discout: [0.8, 0.9]", 2),
    ("method:\n  name: schedule\n  rows:\n  - discount: 0.9\n  - discout: 0.9", 5),
    ("config:\n  layer: [8]", 2),
    ("config:\n  layers: [0]", 2),
    ("config:\n  rollout_length: 0", 2),
    ("config:\n  num_envs: 3\n  num_minibatches: 5", 3),
    ("config:\n  activation: tahn", 2),
    ("fitness:\n  objective: a.b", 2),
    ("interval: 1e15", 1),
]


@pytest.mark.parametrize(("text", "line"), BUILT, ids=[shown(text) for text, _ in BUILT])
def test_errors_of_building_name_them_too(tmp_path: Path, text: str, line: int, said: Said) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as error, attribute_errors(path):
        build_run(load(path))
    assert str(error.value).startswith(f"{path}, line {line}: ")
    said(error.value)


def test_an_environment_that_is_made_already(said: Said) -> None:
    with pytest.raises(BadInput) as error:
        make_plan(tiny(env=CartPoleEnv()))
    said(error.value)


def test_flags_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "hyper:\n  epochs: 2\npopulation: 4\nagent: ppo")
    for field, value in (("population", 1), ("hyper.epochs", 0)):
        with pytest.raises(BadInput) as error, attribute_errors(path, ["population", "hyper.epochs"], always=False):
            raise BadField(field, "too few", value=value)
        assert str(error.value) == f"{field} = {value}: too few"
    with pytest.raises(BadInput, match=r", line 4: agent: "), attribute_errors(path, ["population"], always=False):
        raise BadField("agent", "no such thing")
    with pytest.raises(BadInput, match=r"^run_dir: exists$"), attribute_errors(path, always=False):
        raise BadField("run_dir", "exists")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"- a\n- b",
        b"3",
    ],
    ids=shown,
)
def test_foreign_files(tmp_path: Path, content: bytes, said: Said) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        load(path)
    said(error.value)


def test_missing_file_names_its_neighbour(tmp_path: Path, said: Said) -> None:
    written(tmp_path, "").rename(tmp_path / "cartpole.yaml")
    with pytest.raises(BadInput) as error:
        load(tmp_path / "carpole.yaml")
    said(error.value)
    with pytest.raises(BadInput) as error:
        load(tmp_path / "no" / "where.yaml")
    said(error.value)
    with pytest.raises(BadInput) as error:
        load(tmp_path)
    said(error.value)


def test_a_file_without_fields_is_the_usual_experiment(tmp_path: Path) -> None:
    assert load(written(tmp_path, "{}")) == Experiment()


def test_default_run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(tiny())
    given = plan._replace(experiment=replace(plan.experiment, env="gym:ALE/Pong-v5", seed=3))
    assert start.free_place(given) == Path("runs/ALE-Pong-v5-ppo-3")
    (tmp_path / "runs/ALE-Pong-v5-ppo-3").mkdir(parents=True)
    assert start.free_place(given) == Path("runs/ALE-Pong-v5-ppo-3-2")
    task = replace(given.experiment, agent="rl_games:tasks/pong.yaml")
    assert start.free_place(given._replace(experiment=task)) == Path("runs/ALE-Pong-v5-pong-3")


def test_missing_extra(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    from shoal.environments import suites

    monkeypatch.setattr(suites, "installed", lambda suite: suite != "brax")
    for env in ("brax:ant", "ant"):
        with pytest.raises(BadInput) as error:
            build_run(tiny(env=env))
        said(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.1},
        {"lr": 0.1},
        {"lr": 0.1, "agent": "td3"},
        {"n_envs": 8},
        {"layers": [8]},
        {"episodes": 3},
        {"bottom": 0.3},
        {"total_timesteps": 1e6},
        {"hyper": {"gamma": 0.9}},
        {"config": {"n_steps": 64}},
        {"lrate": 0.1},
        {"config": {"use_sde": True}},
        {"agent": "td3", "config": {"noise_type": "ornstein-uhlenbeck"}},
        {"config": {"target_kl": 0.01}},
        {"n_timesteps": 1e6},
        {"hyper": {"learning_rate": "lin_2.5e-4"}},
        {"hyper": {"learning_rate": "linear"}},
        {"hyper": {"lr_schedule": "linear"}},
        {"config": {"lr_schedule": "linear"}},
        {"hyper": {"use_sde": True}},
        {"hyper": {"learning_rate_end_factor": 2}},
        {"config": {"log_std_init": -11}},
    ],
    ids=shown,
)
def test_what_is_called_otherwise_elsewhere_or_stands_deeper(given: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as caught:
        make_plan(from_dict(given))
    said(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"env": "Acrobot-v1", "population": 4, "fitness": {"episodes": 3}, "seed": 1},
        {"method": {"name": "pbt", "select": {"name": "truncation", "bottom": 0.4}}, "config": {"layers": [8, 8]}},
        {"space": {"learning_rate": [1e-5, 0.1, "log"], "epochs": {"low": 1, "high": 8, "integer": True}}},
        {"exchange": {"name": "directory", "workspace": "w"}, "wandb": {"tags": ["a"]}, "levels": {"train": [0, 9]}},
    ],
    ids=repr,
)
def test_what_python_shows_of_an_experiment_makes_it_again(given: dict[str, Any]) -> None:
    """And it is no more than what is not as it is by default."""
    experiment = Experiment(**given)
    shown = repr(experiment)
    assert eval(shown) == experiment
    assert [name for name in Experiment.__dataclass_fields__ if f"{name}=" in shown] == [
        name for name in Experiment.__dataclass_fields__ if name in given
    ]
