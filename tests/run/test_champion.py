"""The best member ever seen: never one without a fitness, kept apart, and able to act."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.cases import others_slow
from support.messages import Said, shown
from support.runs import CONFIG, at_work, build_run, shoal, tiny

from shoal.core.candidates import Candidate, Candidates
from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.core.spec import Box, Discrete, MultiDiscrete, Spec
from shoal.environments.spaces import to_bounds
from shoal.experiment.build import make_learner
from shoal.experiment.files import dump
from shoal.methods.pbt import Pbt
from shoal.report.load_run import load_run
from shoal.run import champion as champions
from shoal.run import checkpoint
from shoal.run.champion import Champion, load_champion, save
from shoal.run.members import Saved

NAN, INF = math.nan, math.inf


def stats(fitness: list[float], generation: int = 0) -> PopulationStats:
    n = len(fitness)
    whole, nothing = np.arange(n) + 10, np.full(n, NAN)
    hyper = {"learning_rate": np.arange(n, dtype=np.float32) / 8}
    return PopulationStats(whole, np.full(n, generation), whole, np.array(fitness), nothing, whole, hyper)


def after(candidates: Candidates, fitness: list[float], last: int = 0) -> Candidates:
    """The candidates, after a generation of members with such fitness."""
    generation = candidates.measured
    found = stats(fitness, generation)
    rows = candidates.rows_to_add(found, last)
    return candidates.with_generation(found, rows, [{"from": (generation, row)} for row in rows], last > 0)


# --------------------------------------------------------------------------------------- who it is


def test_the_best_is_remembered() -> None:
    first = after(Candidates(), [1.0, 5.0, 3.0])
    best = after(first, [1.0, 3.0, 2.0]).champion
    assert (best.uid, best.generation, best.fitness, best.learned) == (11, 0, 5.0, {"from": (0, 1)})
    assert best.hyper == {"learning_rate": 0.125}
    best = after(first, [4.0, 4.9, 6.0]).champion
    assert (best.uid, best.generation, best.fitness, best.learned) == (12, 1, 6.0, {"from": (1, 2)})


def test_easy_episodes_of_one_generation_crown_nobody() -> None:
    """The smoothed fitness is the mean of the best of all at first, then an exponential one over about four: by hand."""
    candidates = Candidates()
    smoothed = []
    for best in (1.0, 2.0, 9.0, 3.0, 4.0, 5.0, 6.0):
        candidates = after(candidates, [0.0, best])
        smoothed.append(candidates.smoothed.fitness)
    by_hand = [1.0, 1.5, 4.0, 3.75, 3.8125, 4.109375, 4.58203125]
    assert smoothed == by_hand
    assert [one.generation for one in candidates.earlier] == [6, 5, 2, 4]
    assert [one.smoothed.fitness for one in candidates.earlier] == [by_hand[g] for g in (6, 5, 2, 4)]
    assert candidates.champion.fitness == 6.0


def test_no_fitness_is_too_large_for_smoothing() -> None:
    candidates = after(after(Candidates(), [1.7e308, 0.0]), [-1.7e308, -1.7e308])
    assert candidates.smoothed.fitness == 0.0


def test_the_fittest_stay_too() -> None:
    """What was learned once and lost since may have been no luck."""
    candidates = Candidates()
    for best in (0.0, 12.0, 8.0, 9.0, 10.0, 11.0, 11.0, 11.0, 11.0):
        candidates = after(candidates, [best, -1.0])
    assert [one.generation for one in candidates.earlier] == [8, 7, 6, 5, 1]
    assert [one.generation for one in candidates.ordered] == [8, 1, 7, 6, 5]
    easy = after(candidates, [10.5, 0.0])
    assert easy.rows_to_add(stats([3.0, 2.0]), 0) == [], "neither"


def test_the_fittest_of_the_last_generation_join() -> None:
    candidates = after(after(Candidates(), [2.0, 3.0]), [4.0, NAN, 6.0, 5.0, -1.0], last=3)
    assert [one.uid for one in candidates.last] == [12, 13, 10]
    ordered = [(one.generation, one.uid) for one in candidates.ordered]
    assert ordered == [(1, 12), (0, 11), (1, 13), (1, 10)], "by turns, and each of them once"
    assert after(candidates, [1.0, 1.0]).last == (), "a run that was given more generations has another last one"


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_no_champion_without_a_fitness(bad: float) -> None:
    assert after(Candidates(), [bad, bad, bad], last=3) == Candidates()
    best = after(Candidates(), [bad, -1e300, bad], last=3)
    assert [one.uid for one in best.ordered] == [11]
    assert after(best, [bad, bad, bad]) == replace(best, last=())


def test_of_equals_the_latest() -> None:
    """It has trained longest."""
    candidates = Candidates()
    for _ in range(6):
        candidates = after(candidates, [1.0, 7.0, 7.0])
    assert [(one.uid, one.generation) for one in candidates.earlier] == [(11, g) for g in (5, 4, 3, 2)]


# --------------------------------------------------------------------------------------- files


SPACES = {
    "discrete": Discrete(3, start=-4),
    "multi_discrete": MultiDiscrete((2, 3), (5, -5)),
    "continuous": Box((-2.0, 0.0, -np.inf), (2.0, 10.0, np.inf)),
    "integers": Box((-200.0, 0.0), (200.0, 10.0), "int16"),
}


def champion_of(folder: Path, spec: Spec, fitness: float = 3.5, **settings: Any) -> Any:
    """A run directory that holds an untrained champion; its agent and weights."""
    experiment = replace(tiny(), hyper={}, space={}, **settings)
    agent = make_learner(experiment, spec, Pbt()).agent
    learned = jax.tree.map(np.asarray, agent.init(jax.random.key(4), agent.hyper).learned)
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(dump(experiment))
    with at_work(folder) as staging:
        save(folder / "champion", Candidate(learned, 2, 5, fitness, {"discount": 0.5}), spec, staging)
    return agent, learned


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(("shape",), others_slow([((4,),), ((2, 3),), ((),)], ((4,),)))
def test_acts_as_it_learned(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    """On one observation or several, as the agent does, within the environment's own bounds."""
    spec = Spec(shape, "float32", SPACES[kind])
    agent, learned = champion_of(tmp_path, spec)
    champion = load_champion(tmp_path)
    assert (champion.uid, champion.generation, champion.fitness) == (2, 5, 3.5)
    assert champion.hyper == {"discount": 0.5}
    assert champion.spec == spec
    obs = np.random.default_rng(0).normal(scale=100, size=(7, *shape)).astype(np.float32)
    expected = to_bounds(spec.action, np.asarray(agent.act_deterministic(learned, obs, ())[0]))
    actions = champion.predict(obs)[0]
    np.testing.assert_allclose(actions, expected, rtol=1e-5)
    np.testing.assert_allclose(np.stack([champion.predict(x)[0] for x in obs]), expected, rtol=1e-4, atol=1e-5)
    assert isinstance(actions, np.ndarray)
    assert actions.shape == (7, *spec.action.shape)
    assert actions.dtype == spec.action.native
    start = getattr(spec.action, "start", None)
    assert start is None or ((actions >= np.array(start)).all() and (actions < np.array(start) + 3).all())
    assert champion.predict(obs[0])[0].shape == spec.action.shape
    assert champion.predict(obs[0].tolist())[0].shape == spec.action.shape
    assert champion.predict(obs[0].astype(np.float64))[0].shape == spec.action.shape


def memory_of(folder: Path) -> tuple[Champion, Any]:
    """A champion with an LSTM, and the actions that its agent takes in two episodes side by side, of `SEEN`."""
    memory = {"agent": "shoal.agents.policy:policy", "config": {"layers": [], "lstm_hidden_size": 3}}
    agent, learned = champion_of(folder, Spec((2,), "float32", Box((-1.0,) * 4, (1.0,) * 4)), **memory)
    expected, carry = [], agent.carry((2,))
    for x in SEEN:
        action, carry = agent.act_deterministic(learned, x, carry)
        expected.append(np.asarray(action))
    return load_champion(folder, trust_code=True), np.stack(expected)


SEEN = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)


def test_remembers_by_its_state_alone(tmp_path: Path, said: Said) -> None:
    """One episode, then two side by side, of which one starts anew on the way."""
    champion, expected = memory_of(tmp_path)

    def played(seen: np.ndarray, starts: Any = lambda t: None) -> np.ndarray:
        actions, state = [], None
        for t, x in enumerate(seen):
            action, state = champion.predict(x, state, starts(t))
            actions.append(action)
        return np.stack(actions)

    np.testing.assert_allclose(played(SEEN[:, 0]), expected[:, 0], rtol=1e-4)
    np.testing.assert_allclose(played(SEEN), expected, rtol=1e-4)
    again = played(np.concatenate([SEEN[:3], SEEN]), lambda t: np.array([t == 3, False]))
    np.testing.assert_allclose(again[3:, 0], expected[:, 0], rtol=1e-4)
    assert not np.allclose(again[3:, 1], expected[:, 1], rtol=1e-2), "nothing was forgotten there"
    alone = champion.predict(SEEN[0, 0])[1]
    with pytest.raises(BadInput) as error:
        champion.predict(SEEN[0], alone)
    said(error.value)
    with pytest.raises(BadInput) as error:
        champion.predict(SEEN[0], None, [True, False, True])
    said(error.value)


def test_sampled_actions_differ_from_call_to_call(tmp_path: Path) -> None:
    """And are those of the likeliest kind more often than others; the same in every process."""
    agent, learned = champion_of(tmp_path, Spec((4,), "float32", Discrete(3)))
    obs = np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32)
    first, again = load_champion(tmp_path), load_champion(tmp_path)
    one, other = (first.predict(obs, deterministic=False)[0] for _ in range(2))
    assert (one != other).any()
    np.testing.assert_array_equal(one, again.predict(obs, deterministic=False)[0])
    shares = np.bincount(one, minlength=3) / len(one)
    assert np.abs(shares - 1 / 3).max() < 0.1, "a new policy of ppo prefers nothing much"


@pytest.mark.parametrize("config", [{}, {"lstm_hidden_size": 3, "share_features_extractor": False}], ids=shown)
def test_sampling_asks_for_no_privileged_observations(tmp_path: Path, config: dict[str, Any]) -> None:
    spec = Spec({"state": (2,), "privileged_state": (3,)}, "float32", Discrete(2), ("state",), ("privileged_state",))
    champion_of(tmp_path, spec, config=CONFIG | config)
    champion = load_champion(tmp_path)
    action, state = champion.predict({"state": np.zeros((5, 2))}, deterministic=False)
    assert action.shape == (5,) and set(action.tolist()) <= {0, 1} and (state is None) == (not config)


def test_a_saved_one_is_a_champion_again(tmp_path: Path, said: Said) -> None:
    champion, _ = memory_of(tmp_path / "run")
    champion.save(tmp_path / "alone")
    saved = load_champion(tmp_path / "alone", trust_code=True)
    np.testing.assert_array_equal(saved.predict(SEEN[0])[0], champion.predict(SEEN[0])[0])
    assert repr(saved) == repr(champion) and saved.hyper == champion.hyper
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == ["champion", "experiment.yaml"]
    with pytest.raises(BadInput) as error:
        champion.save(tmp_path / "alone")
    said(error.value)
    with pytest.raises(BadInput) as error:
        champion.save(tmp_path / "alone/experiment.yaml/x")
    said(error.value)


def test_continuous_actions_reach_and_keep_the_bounds(tmp_path: Path) -> None:
    space = Box((-2.0, 0.0), (2.0, 10.0))
    _, learned = champion_of(tmp_path, Spec((1,), "float32", space))
    champion = load_champion(tmp_path)
    champion.learned = jax.tree.map(lambda x: x * 1e4, learned)
    actions = champion.predict(np.array([[-1e3], [1e3]]))[0]
    assert set(actions[:, 0].tolist()) <= {-2.0, 2.0}
    assert set(actions[:, 1].tolist()) <= {0.0, 10.0}


def test_observations_of_another_shape(tmp_path: Path, said: Said) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)))
    champion = load_champion(tmp_path)
    for obs in (np.zeros(3), np.zeros((2, 3)), np.zeros(()), np.zeros((4, 1)), np.zeros((0, 4))):
        with pytest.raises(BadInput) as error:
            champion.predict(obs)
        said(error.value)


@pytest.mark.parametrize(
    "obs", [(np.zeros(3), 1), [np.zeros(2), np.zeros(3)], "text", None, {"a": 1}, object()], ids=shown
)
def test_observations_that_are_no_arrays(tmp_path: Path, obs: Any, said: Said) -> None:
    """Such as those of a Tuple space, which is no space of an environment here; alone, and in a dictionary."""
    champion_of(tmp_path / "array", Spec((4,), "float32", Discrete(2)))
    champion = load_champion(tmp_path / "array")
    with pytest.raises(BadInput) as error:
        champion.predict(obs)
    said(error.value)
    spec = Spec({"a": (4,), "b": (2,)}, "float32", Discrete(2))
    champion_of(tmp_path / "dictionary", spec)
    champion = load_champion(tmp_path / "dictionary")
    with pytest.raises(BadInput) as error:
        champion.predict({"a": obs, "b": np.zeros(2)})
    said(error.value)
    with pytest.raises(BadInput) as error:
        champion.predict(obs)
    said(error.value)


def test_the_best_with_the_lowest_fitness_there_is(tmp_path: Path) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)), fitness=-1e300)
    assert load_champion(tmp_path).fitness == -1e300


def test_the_fittest_of_a_generation_is_none_that_has_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)))
    arrays, _ = checkpoint.read_arrays(tmp_path / "champion", tmp_path)
    hyper, fitness = {"discount": np.full(4, 0.5, np.float32)}, np.array([1.0, NAN, 3.0, 2.0])
    saved = Saved(3, [4, 5, 6, 7], [arrays] * 4, hyper, fitness)
    monkeypatch.setattr(champions, "read_members", lambda run, generation: saved)
    assert load_champion(tmp_path, generation=3).uid == 6
    assert load_champion(tmp_path, member=7).uid == 7


def test_no_champion_yet(tmp_path: Path, said: Said) -> None:
    (tmp_path / "experiment.yaml").write_text(dump(tiny()))
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)


@pytest.mark.parametrize(
    "when", [(champions, "champion_of_manifest"), (checkpoint, "host_memory")], ids=["after", "between"]
)
def test_a_champion_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: tuple[Any, str]
) -> None:
    """Its numbers and weights are those of one and the same."""
    spec = Spec((4,), "float32", Discrete(2))
    learned = champion_of(tmp_path, spec, fitness=1.0)[1]
    better = Candidate(jax.tree.map(lambda x: x + 1, learned), 3, 6, 2.0, {"discount": 0.5})
    read, saved = getattr(*when), []

    def replaced(*arguments: Any) -> Any:
        if not saved:
            saved.append(better)
            with at_work(tmp_path) as staging:
                save(tmp_path / "champion", better, spec, staging)
        return read(*arguments)

    monkeypatch.setattr(*when, replaced)
    champion = load_champion(tmp_path)
    expected = {1.0: learned, 2.0: better.learned}[champion.fitness]
    jax.tree.map(np.testing.assert_array_equal, champion.learned, expected)


@pytest.mark.parametrize("name", ["manifest.json", "state.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00"])
def test_damaged_champion(tmp_path: Path, name: str, content: bytes | None, said: Said) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)))
    path = tmp_path / "champion" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)


def test_champion_of_another_experiment(tmp_path: Path, said: Said) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)))
    (tmp_path / "experiment.yaml").write_text(dump(tiny(config={"layers": [16]})))
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)
    (tmp_path / "experiment.yaml").unlink()
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)


def test_a_checkpoint_is_no_champion(tmp_path: Path, said: Said) -> None:
    champion_of(tmp_path, Spec((4,), "float32", Discrete(2)))
    with at_work(tmp_path) as staging:
        checkpoint.write(tmp_path / "champion", {"x": np.zeros(1)}, {"generation": 3}, staging)
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)


def test_what_builds_in_a_run_builds_from_its_files(tmp_path: Path) -> None:
    """The spec survives the manifest: the champion's agent is the run's."""
    for env in ("CartPole-v1", "Pendulum-v1"):
        parts = build_run(tiny(env=env))
        champion_of(tmp_path, parts.environment.spec)
        assert load_champion(tmp_path).spec == parts.environment.spec


def test_no_code_of_an_agent_is_imported(tmp_path: Path, said: Said) -> None:
    """By no command and no function, for as long as nobody says that the run is trusted."""
    run = tmp_path / "run"
    champion_of(run, Spec((4,), "float32", Discrete(2)), agent="shoal.agents.policy:policy", config={"layers": [4]})
    refused = "agent = shoal.agents.policy:policy: the run names code, which runs when it is loaded; "
    for command in (["evaluate"], ["play", "--video", tmp_path / "film.gif"], ["export", tmp_path / "policy.npz"]):
        told = shoal(command[0], run, *command[1:])
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
        assert told.err.startswith(f"shoal: {refused}") and "add --trust-code" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    for load in (load_champion, lambda run: load_run(run).champion):
        with pytest.raises(BadInput) as error:
            load(run)
        said(error.value)
    assert load_champion(run, trust_code=True).uid == load_run(run, trust_code=True).champion.uid == 2
    other: dict[str, dict[str, Any]] = {
        "config.network": {"config": CONFIG | {"network": "mine:network"}},
        "method": {"method": {"name": "mine:Method"}},
    }
    for changes in other.values():
        (run / "experiment.yaml").write_text(dump(tiny(**changes)))
        with pytest.raises(BadInput) as error:
            load_champion(run)
        said(error.value)


@pytest.mark.parametrize(
    "config", [{"imports": ["mine"]}, {"policy_kwargs": {"activation_fn": "mine:Function"}}], ids=shown
)
def test_no_code_of_a_trainer_is_imported(tmp_path: Path, config: dict[str, Any], said: Said) -> None:
    """Its champion acts through a trainer, which would import what the run names."""
    champion_of(tmp_path, Spec((2,), "float32", Discrete(2)))
    (tmp_path / "experiment.yaml").write_text(f"agent: sb3:PPO\nenv: gym:CartPole-v1\nconfig: {json.dumps(config)}\n")
    with pytest.raises(BadInput) as error:
        load_champion(tmp_path)
    said(error.value)
