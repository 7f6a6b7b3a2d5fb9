"""What every method must keep. A new entry of METHODS is held to it by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.joint import OTHER
from support.messages import Said
from support.runs import CONFIG, Signals, build_run, record, rows, same_run, shoal, tiny
from support.tiny import LIVE, leaves, member, same, walk

from shoal.core.errors import BadInput
from shoal.core.interrupts import Interrupted
from shoal.core.keys import at, derive, jax_key, stream
from shoal.core.population import PopulationStats
from shoal.core.types import Population, SearchLearner
from shoal.distributed.exchange import Exchange
from shoal.distributed.synchronous import Synchronous
from shoal.environments import registry, suites
from shoal.environments.device import DeviceEnvironment
from shoal.experiment.files import dump, load
from shoal.methods import METHODS
from shoal.run.champion import load_champion
from shoal.run.train import resume, train

pytestmark = pytest.mark.usefixtures("trace_cache")

# A small run by the usual agent of a method, in which every hyperparameter has something to do.
REPLAY = {
    "layers": [8],
    "rollout_length": 16,
    "num_envs": 2,
    "buffer_size": 256,
    "learning_starts": 32,
    "batch_size": 8,
}
PENDULUM = {"env": "gymnax:Pendulum-v1", "config": REPLAY}
OF_AGENT: dict[str, dict[str, Any]] = {
    "ppo": {"config": CONFIG},
    "policy": {"config": {"layers": [8]}},
    "td3": PENDULUM,
}
HYPER: dict[str, dict[str, float]] = {"cem_rl": {"update_ratio": 0.05}, "dvd": {"update_ratio": 0.25}}
OPTIONS: dict[str, dict[str, Any]] = {"dvd": {"num_states": 5, "resample_interval": 3}, "schedule": {"rows": [{}]}}
OPTIONS["mf_pbt"] = {"periods": [1, 2]}
OPTIONS["successive_halving"] = {"min_members": 4}  # runs whose members end: tests/run/test_members_end.py
# Values other than usual, where half of that would do nothing.
UNUSUAL = {"es": {"episode_cap": 7.0}, "cem_rl": OTHER | {"update_ratio": 0.1}, "dvd": OTHER | {"update_ratio": 0.4}}
# The same on the host; programs that no other test shares are small.
HOSTED: dict[str, dict[str, Any]] = {
    "ppo": {"env": "gym:CartPole-v1", "config": CONFIG | {"layers": []}},
    "policy": {"env": "gym:CartPole-v1", "config": {"layers": []}},
    "td3": {"env": "gym:Pendulum-v1"},
}

SAMPLED = ["es", "cem_rl"]  # the methods whose members are drawn around a mean
ALL = pytest.mark.parametrize("method", METHODS)
LEARNERS = list(
    {METHODS[name].learner: name for name in reversed(METHODS)}.values()
)  # the first of those that learn alike


def settings(method: str, *, config: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """What `tiny` takes for a small run by a method, with options of its own and further settings of its agent."""
    usual = OF_AGENT[agent_of(method)]
    return usual | {
        "method": {"name": method} | OPTIONS.get(method, {}) | options,
        "config": usual["config"] | (config or {}),
        "hyper": LIVE.get(agent_of(method), {}) | HYPER.get(method, {}),
    }


def agent_of(method: str) -> str:
    return next(iter(METHODS[method].agents))


# --------------------------------------------------------------------------------------- in a shard


class Lived(NamedTuple):
    """What became of a population."""

    population: Population
    stats: PopulationStats
    hyper: dict[str, np.ndarray]


class Case:
    """The shard of a method, again and again from its start; its programs are compiled once."""

    def __init__(self, **changes: Any):
        self.parts: Any = build_run(tiny(**changes))
        self.uid = self.parts.shard.uid
        self.evolution, self.hyper = self.parts.evolver.init((0,), self.uid)

    def live(
        self,
        changed: dict[str, Any] | None = None,
        generations: int = 2,
        touch: Callable[[Population], Population] = lambda population: population,
        decide: bool = True,
    ) -> Lived:
        """Some generations of the whole cycle, or without decisions, from hyperparameters of which some are changed."""
        shard: Any = self.parts.shard
        shard = shard.sibling(self.uid, self.parts.plan.setup)
        shard.begin(self.hyper | {k: np.broadcast_to(np.float32(v), len(self.uid)) for k, v in (changed or {}).items()})
        shard.population = touch(shard.population)
        crew, evolution, shared = Synchronous(Exchange(), self.parts.kind, shard), self.evolution, None
        for generation in range(generations):
            progress = self.parts.plan.progress_before(generation, len(self.uid), 0, 0.0)
            metrics = shard.train(generation, self.parts.iterations, self.parts.iterations, progress)
            shard.evaluate(generation)
            shared = crew.share(metrics, False, 0.0)
            if decide:
                choose = partial(self.parts.evolver.decide, (0, generation), evolution)
                evolution = crew.evolve(shared, choose).evolution
        return Lived(jax.tree.map(np.asarray, jax.device_get(shard.population)), shared.members, shard.hyper)


@pytest.fixture(params=METHODS)
def case(request: pytest.FixtureRequest, trace_cache: None) -> Case:
    if request.param not in CASES:
        CASES[request.param] = Case(**settings(request.param))
    return CASES[request.param]


CASES: dict[str, Case] = {}


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    """Grows with everything that is compiled from now on."""
    found: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: found.append(event))
    return found


def outcome(lived: Lived) -> Any:
    """All that hyperparameters may touch, but themselves."""
    return lived.population._replace(hyper=()), lived.stats._replace(hyper={})


@pytest.mark.parametrize("case", LEARNERS, indirect=True)
def test_every_hyperparameter_takes_effect_and_nothing_is_traced_again(case: Case, compiled: list[str]) -> None:
    """Two generations of train, evaluate and decide with another value are another run, of the same programs."""
    usual = outcome(case.live())
    assert same(outcome(case.live()), usual)
    compiled.clear()
    unusual = UNUSUAL.get(case.parts.experiment.method["name"], {})
    for name in case.parts.agent.hyper._fields:
        value = float(case.hyper[name][0])
        other = case.live({name: unusual.get(name, value / 2 if value else 1.0)})
        assert not same(outcome(other), usual), f"{name} changes nothing"
        assert not [event for event in compiled if "backend_compile" in event], f"{name} compiles anew"


@pytest.mark.parametrize("case", [name for name in LEARNERS if METHODS[name].tunes], indirect=True)
def test_members_that_may_differ_are_apart(case: Case) -> None:
    """Hyperparameters of one, and its weights, NaN too, are nothing to the others where nobody decides."""
    others = np.array([0, 2, 3])
    before = case.live(decide=False)

    def spoil(population: Population) -> Population:
        learned = jax.tree.map(lambda x: x.at[1].set(jnp.nan), population.members.learned.params)
        members = population.members._replace(learned=population.members.learned._replace(params=learned))
        return population._replace(members=members)

    changed = {name: x * np.where(np.arange(4) == 1, np.float32(0.5), 1) for name, x in case.hyper.items()}
    for after in (case.live(changed, decide=False), case.live(touch=spoil, decide=False)):
        assert not same(member(after.population.members, 1), member(before.population.members, 1))
        assert same(member(after.population.members, others), member(before.population.members, others))
        assert same(after.stats.fitness[others], before.stats.fitness[others])
    assert np.isnan(after.stats.fitness[1]) and np.isfinite(after.stats.fitness[others]).all()


def test_which_members_are_drawn(case: Case) -> None:
    """So that what is said of SAMPLED leaves no method out."""
    assert isinstance(case.parts.learner, SearchLearner) == (case.parts.experiment.method["name"] in SAMPLED)


@pytest.mark.parametrize("case", SAMPLED, indirect=True)
def test_a_draw_depends_on_its_uid_alone(case: Case) -> None:
    """Not on who else is drawn, nor in which row."""
    learner = case.parts.learner
    assert isinstance(learner, SearchLearner)

    @jax.jit
    def actors(uid: jax.Array) -> Any:
        key, hyper = jax.random.key(1), jax.tree.map(lambda x: jnp.full(len(uid), x, jnp.float32), learner.agent.hyper)
        population = learner.init(jax.random.key(0), uid, hyper)
        return learner.actors(learner.draw(population, uid, key), jnp.arange(len(uid)), uid, key)

    whole, pair, moved = (
        jax.tree.map(np.asarray, actors(jnp.array(uid, jnp.uint32))) for uid in ([0, 1, 2, 3], [2, 3], [2, 3, 0, 1])
    )
    assert same(pair, member(whole, slice(2, 4)))
    assert same(moved, member(whole, np.array([2, 3, 0, 1])))
    assert not same(member(whole, 0), member(whole, 2))


UNFIT = {"SampledButCopying": {"layers": []}, "GradientTrainedButWeighing": CONFIG}


@pytest.mark.parametrize(("name", "config"), UNFIT.items(), ids=UNFIT)
def test_halves_that_do_not_fit(name: str, config: dict[str, Any], said: Said, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        train(tiny(tmp_path / "r", method=f"support.own_method:{name}", config=config))
    said(error.value)


# ------------------------------------------------------------------------------------------- divergence


def walk_for(reward: Callable[[jax.Array], jax.Array]) -> DeviceEnvironment:
    """The walk, with a reward for where the point is."""
    environment = walk("continuous")

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        obs, state, _, *ends = environment.step(key, state, action)
        return obs, state, reward(obs[0]), *ends

    return environment._replace(step=step)


def parameters(case: Case, population: Population) -> np.ndarray:
    """Of the mean, as one vector."""
    learner = case.parts.learner
    assert isinstance(learner, SearchLearner)
    return np.concatenate([x.reshape(-1) for x in leaves(learner.mean(population)[0])])


def wide(method: str, env: DeviceEnvironment) -> Case:
    """Members that are far apart."""
    changes = settings(method, **{"cem_rl": {"variance": 1.0}}.get(method, {}))
    return Case(**changes | {"env": env, "hyper": changes["hyper"] | {"es": {"sigma": 1.0}}.get(method, {})})


@pytest.mark.parametrize("method", SAMPLED)
def test_members_without_a_fitness_do_not_destroy_the_mean(method: str) -> None:
    """Where some rewards are NaN, the others lead on."""
    case = wide(method, walk_for(lambda x: jnp.where(x < -0.9, jnp.nan, x)))
    before = case.live(generations=1)
    diverged = np.isnan(before.stats.fitness)
    assert diverged.any() and not diverged.all()
    after = case.live(generations=3)
    one, other = parameters(case, before.population), parameters(case, after.population)
    assert np.isfinite(one).all() and np.isfinite(other).all() and not np.array_equal(one, other)


@pytest.mark.slow
def test_diverged_actors_count_nothing_whatever_they_score() -> None:
    """Critics that are NaN make NaN of the half that is trained, which here scores as much as the others."""
    case = wide("cem_rl", walk_for(lambda x: jnp.float32(1)))

    def spoil(population: Population) -> Population:
        critic = jax.tree.map(lambda x: x * np.nan if x.dtype == jnp.float32 else x, population.shared.critic)
        return population._replace(shared=population.shared._replace(critic=critic))

    lived = case.live(generations=3, touch=spoil)
    assert np.isnan(leaves(lived.population.members.learned.policy)[0][:2]).any(), "nobody diverged"
    assert np.isnan(lived.stats.fitness).tolist() == [True, True, False, False]
    assert np.isfinite(parameters(case, lived.population)).all()


# ------------------------------------------------------------------------------------------- whole runs

RUNS = {name: settings(name) for name in METHODS} | {
    "es, everything": settings(
        "es",
        **{"adaptive_cap": True, "sigma_decay": 0.9, "chunk": 2, "optimizer": "sgd"},
        config={"lstm_hidden_size": 4, "normalize_observations": True},
    )
    | {"env": "gymnax:Pendulum-v1"},  # whose returns show the smallest difference
    "cem_rl, mirrored": settings("cem_rl", mirrored=True, gradient_members=1),
    "pb2": settings("pb2", config={"normalize_rewards": True}),  # so that members have something of their own
}


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, trace_cache: None) -> Path:
    """Four generations of one of RUNS, never stopped."""
    if request.param not in WHOLE:
        WHOLE[request.param] = path = tmp_path_factory.mktemp("whole") / "run"
        train(tiny(path, generations=4, **RUNS[request.param]))
    return WHOLE[request.param]


WHOLE: dict[str, Path] = {}
QUICK = [("pbt", "pbt"), ("es", "es")]
EVERY = pytest.mark.parametrize(
    ("whole", "name"), others_slow([(name, name) for name in RUNS], *QUICK), indirect=["whole"]
)


@EVERY
def test_a_run_goes_on_exactly(whole: Path, name: str, tmp_path: Path) -> None:
    """After its end, a signal, a generation that was abandoned, and the champion's test: as if it had never been."""
    train(tiny(tmp_path / "a", **RUNS[name]))
    resume(tmp_path / "a", generations=4)
    same_run(tmp_path / "a", whole)
    with pytest.raises(Interrupted):
        train(tiny(tmp_path / "b", generations=4, **RUNS[name]), [Signals(0, "evaluate")])
    with pytest.raises(Interrupted):
        resume(tmp_path / "b", callbacks=[Signals(2, "train", count=2)])
    with pytest.raises(Interrupted):
        resume(tmp_path / "b", callbacks=[Signals(3, "champion")])
    resume(tmp_path / "b")
    same_run(tmp_path / "b", whole)


@EVERY
def test_another_seed_is_another_run(whole: Path, name: str, tmp_path: Path) -> None:
    train(tiny(tmp_path / "other", generations=4, seed=1, **RUNS[name]))
    one, other = record(whole), record(tmp_path / "other")
    assert one["arrays"].keys() == other["arrays"].keys()
    assert any(
        x.tobytes() != other["arrays"][k].tobytes() for k, x in one["arrays"].items() if k.startswith("champion")
    )
    assert one["lineage"] != other["lineage"]


@EVERY
def test_the_records_are_whole(whole: Path, name: str) -> None:
    """Valid JSON without NaN, one row for whoever lives on, and the same metrics in every generation."""

    def load(path: Path) -> Any:
        return json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(f"{path.name}: {text}"))

    for path in (whole / "lineage.jsonl", whole / "metrics.jsonl"):
        assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
    result, lineage, metrics = load(whole / "result.json"), rows(whole / "lineage.jsonl"), rows(whole / "metrics.jsonl")
    method = RUNS[name]["method"]["name"]
    who = [0] if method in SAMPLED else [0, 1, 2, 3]
    assert [(row["generation"], row["uid"]) for row in lineage] == [(g, u) for g in range(4) for u in who]
    assert (result["method"], result["agent"], result["population"]) == (method, agent_of(method), 4)
    traits = {"copies": METHODS[method]().copies, "tunes": METHODS[method].tunes, "shares_evaluation": method == "es"}
    assert result["traits"] == traits | {"sampled": method in SAMPLED}
    about = load(whole / "method.json")
    assert (about["name"], about["traits"]) == (method, result["traits"]) and about["title"] and about["explanation"]
    assert result["fitness"] == {str(row["uid"]): row["fitness"] for row in lineage if row["generation"] == 3}
    assert all(row["hyper"].keys() == result["champion"]["hyper"].keys() for row in lineage)
    assert [row["episodes"] for row in lineage] == [2] * len(lineage)
    assert [len(row["members"]) for row in metrics] == [len(metrics[0]["members"])] * 4
    for row in metrics:
        here = [r for r in lineage if r["generation"] == row["generation"]]
        assert row["steps"] == sum(r["steps"] for r in here)
        assert all(len(values) == len(who) for values in row["members"].values())
    assert result["environment_steps"] == metrics[-1]["steps"]
    if not METHODS[method]().copies:
        assert all(row["parent"] == row["uid"] for row in lineage)


@EVERY
def test_the_champion_that_is_saved_is_the_one_that_was_measured(whole: Path, name: str) -> None:
    """Weights, statistics and all: on the episodes that made it champion it returns what it was selected for."""
    champion = load_champion(whole)
    experiment = champion.experiment
    environment = registry.make(suites.resolve(experiment.env), {})
    reset, step = jax.jit(environment.reset), jax.jit(environment.step)
    limit = min(experiment.fitness.step_limit, champion.hyper.get("episode_cap", np.inf))
    returns = []
    for key in jax.random.split(jax_key(derive((experiment.seed,), champion.generation, "evaluate")), 2):
        obs, state = reset(stream(key, "reset"))
        memory, total, t, done = None, 0.0, 0, False
        while not done and t < limit:
            action, memory = champion.predict(obs, memory)
            obs, state, reward, *ends = step(at(stream(key, "step"), t), state, jnp.asarray(action))
            total, t, done = total + float(reward), t + 1, any(ends)
        returns.append(total)
    np.testing.assert_allclose(np.mean(returns), champion.fitness, rtol=1e-5)


@EVERY
def test_commands_on_a_run(whole: Path, name: str, tmp_path: Path) -> None:
    champion = load_champion(whole)
    assert np.shape(champion.predict(np.zeros(champion.spec.obs_shape))[0]) == champion.spec.action.shape
    played = shoal("evaluate", whole, "--episodes", 2)
    assert played.code == 0 and "over 2 episodes" in played.out
    assert shoal("report", whole).code == 0 and (whole / "report.html").stat().st_size > 10_000
    printed = shoal("schedule", whole, "--format", "json")
    assert [row["generation"] for row in json.loads(printed.out)] == list(range(1, champion.generation + 2))
    before = sorted(whole.parent.iterdir())
    replayed = shoal("replay", whole, "--quiet", "--population", 4, "--run-dir", tmp_path / "r")
    if load(whole / "experiment.yaml").space:
        assert replayed.code == 0
    else:
        assert (replayed.code, replayed.out, replayed.err.count("\n")) == (2, "", 1)
        assert "has no schedule: " in replayed.err and not (tmp_path / "r").exists()
    assert sorted(whole.parent.iterdir()) == before


@pytest.mark.parametrize("method", others_slow(METHODS, "pbt", "es"))
def test_the_doctor(method: str, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(dump(tiny(**settings(method))))
    told = shoal("doctor", tmp_path / "e.yaml")
    assert told.code == 0, told
    assert "ready to run" in told.out and "✗" not in told.out


@ALL
@pytest.mark.parametrize("hosted", [False, True], ids=["device", "host"])
def test_steps_are_counted_right(method: str, hosted: bool, tmp_path: Path) -> None:
    """Episodes of 60 steps, or of as many as their return says. What trains counts apart from what only measures."""
    changes = settings(method) | (HOSTED[agent_of(method)] if hosted else {})
    train(tiny(tmp_path / "r", **changes))
    lineage, metrics = rows(tmp_path / "r/lineage.jsonl"), rows(tmp_path / "r/metrics.jsonl")
    unit = "CartPole" in changes.get("env", "CartPole")
    measured = np.cumsum(
        [
            sum(row["episodes"] * (row["fitness"] if unit else 60) for row in lineage if row["generation"] == g)
            for g in range(2)
        ]
    )
    assert [row["evaluation_steps"] for row in metrics] == measured.tolist()
    if method not in SAMPLED:
        assert [row["steps"] for row in metrics] == [4 * 64, 2 * 4 * 64]
    elif unit:
        means = [row["members"]["returns/mean"][0] for row in metrics]
        assert [row["steps"] for row in metrics] == np.cumsum([4 * 2 * mean for mean in means]).tolist()
    else:
        assert [row["steps"] for row in metrics] == [4 * 2 * 60, 2 * 4 * 2 * 60]
    if hosted:  # and it goes on, with held-out episodes
        assert resume(tmp_path / "r", 3).summary["generations"] == 3
