"""Every method without a run: its decisions about invented stats, and that each of its options reaches something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import reference
from support.cases import others_slow
from support.joint import SETTINGS, SPACE, SPEC
from support.runs import tiny
from support.tiny import same

from shoal.agents.policy import policy
from shoal.agents.td3 import td3
from shoal.core.population import Decision, DistributionUpdate, PopulationStats, Selection
from shoal.core.space import Range, SearchSpace
from shoal.core.types import SearchLearner
from shoal.experiment.plan import make_plan
from shoal.methods import METHODS
from shoal.methods.components import make_method
from shoal.methods.method import Method

TUNED = {"rate": Range(1e-4, 1.0, "log"), "width": Range(1, 9, integer=True), "kind": Range(choices=(1, 2, 4))}
FIXED = {"sigma": 0.4, "learning_rate": 0.1, "episode_cap": 1000.0}  # of all that tune nothing
MEMBERS, GENERATIONS = 8, 6  # half of a run

# Where an option needs another, or has to be given.
USUAL: dict[str, dict[str, Any]] = {"mf_pbt": {"periods": [1, 2]}, "schedule": {"rows": [{}]}}
USUAL["es"] = {"sigma_decay": 0.5, "learning_rate_decay": 0.5}
# A value other than the usual one of every option there is.
OF_PBT = {"select": "tournament", "explore": "resample", "burn_in": 250}
UNUSUAL: dict[str, dict[str, Any]] = {
    "pbt": OF_PBT | {"default_members": 0.25},
    "successive_halving": OF_PBT
    | {"default_members": 0.25, "eta": 3, "min_members": 2, "rungs": [0.1, 0.3, 0.9], "between_rungs": "none"}
    | {"last_choice": "fitness", "race": True},
    "mf_pbt": {"periods": [2, 1], "explore": "resample"},
    "pb2": OF_PBT | {"window": 5},
    "independent": {},
    "schedule": {"rows": [{"sigma": 0.3}]},
    "es": {"optimizer": "sgd", "sigma_decay": 0.9, "sigma_end": 0.3, "learning_rate_decay": 0.9}
    | {"learning_rate_end": 0.07, "adaptive_cap": True, "chunk": 1},
    "cem_rl": {
        "gradient_members": 1,
        "elites": 3,
        "variance": 0.1,
        "noise_end": 1e-4,
        "noise_decay": 0.5,
        "mirrored": True,
    },
    "dvd": {"arms": [0.1, 0.2, 0.3], "num_states": 3, "resample_interval": 2},
}
# Those that no decision depends on: see test_an_experiment_says_whose_replay_buffer_a_child_has, test_where_members_begin.
BEFORE_AND_BESIDE = {"replay", "initial"}


def made(name: str, **options: Any) -> Method:
    return make_method({"name": name} | USUAL.get(name, {}) | options)


class Asked(NamedTuple):
    """What is decided about some of the stats."""

    seen: PopulationStats
    rows: np.ndarray
    state: Any
    decision: Decision | DistributionUpdate
    in_doubt: np.ndarray  # before it

    def by_uid(self) -> Any:
        """The same in whatever order the stats were seen: the uids of parents, hyperparameters, who begins anew."""
        order = np.argsort(self.seen.uid[self.rows])
        hyper = {name: x[order] for name, x in self.decision.hyper.items()}
        if isinstance(self.decision, DistributionUpdate):
            return self.decision.weights[np.argsort(self.seen.uid)], hyper
        rank = np.argsort(order)
        ends = np.sort(rank[list(self.decision.ends)])
        return self.seen.uid[self.decision.parents[order]], hyper, ends, np.sort(self.seen.uid[self.in_doubt])


def asked(kind: Method, order: np.ndarray, who: np.ndarray) -> Iterator[Asked]:
    """Generation by generation, what is decided of the members `who` where all are seen in this order.

    The stats are the same whatever is decided: fitness and what is tuned are drawn anew each time.
    """
    evolver, rng = kind.evolver(SearchSpace(TUNED if kind.tunes else {}, {}, FIXED), 8), np.random.default_rng(1)
    state, hyper = evolver.init((0,), who)
    fixed = {name: np.full(MEMBERS, x[0]) for name, x in hyper.items()}
    uid, rows = np.arange(MEMBERS), np.argsort(order)[who]
    for generation in range(GENERATIONS):
        fitness = np.where(rng.random(MEMBERS) < 0.1, np.nan, rng.normal(size=MEMBERS))
        tuned = {name: drawn(r, rng) for name, r in TUNED.items()} if kind.tunes else {}
        whole = np.full(MEMBERS, generation)
        steps, episodes = 100 * (whole + 1) + uid, 2 + uid % 3
        stats = PopulationStats(
            uid, whole, steps, fitness, np.abs(fitness), episodes, fixed | tuned, (generation + 1) / (2 * GENERATIONS)
        )
        in_doubt = evolver.in_doubt(state, seen := stats.take(order), 0)
        state, decision = evolver.decide((0, generation), state, seen, rows)
        yield Asked(seen, rows, state, decision, in_doubt)


def drawn(r: Range, rng: np.random.Generator) -> np.ndarray:
    if r.choices is not None:
        return rng.choice(r.choices, MEMBERS).astype(np.float32)
    assert r.low is not None and r.high is not None
    u = rng.random(MEMBERS)
    return np.float32(r.low * (r.high / r.low) ** u if r.scale == "log" else np.round(r.low + u * (r.high - r.low)))


EVERYBODY = np.arange(MEMBERS)


class Agent(NamedTuple):
    hyper: Any
    space: dict[str, Range]
    limits: dict[str, tuple[float, float]]


class Marked:
    """A selector of one's own, which says that nobody copies; it knows nothing of `Selector`."""

    copies = False

    def __call__(self, key: Any, stats: PopulationStats, rows: np.ndarray) -> Selection:
        return Selection(rows, rows < 0)


@pytest.mark.parametrize(
    ("given", "copies"),
    [
        *[(name, name in ("pbt", "successive_halving", "mf_pbt", "pb2")) for name in METHODS],
        *[({"name": name, "select": "none"}, False) for name in ("pbt", "pb2", "successive_halving")],
        ({"name": "pbt", "select": {"name": "none", "explore": True}}, False),
        ({"name": "pbt", "select": {"name": "truncation", "parents": "none"}}, False),
        ({"name": "pbt", "explore": "none"}, True),
        ({"name": "successive_halving", "between_rungs": "none"}, False),
        pytest.param({"name": "pbt", "select": lambda key, stats, rows: Selection(rows, rows < 0)}, True, id="own"),
        pytest.param({"name": "pbt", "select": Marked()}, False, id="own, without copies"),
    ],
    ids=str,  # what is a function has an address in its name
)
def test_who_copies(given: Any, copies: bool) -> None:
    """Options decide it; which hyperparameters are tuned by default is the same either way."""
    made = make_method(given)
    assert made.copies is copies
    assert made.advice(MEMBERS, 2) == ""
    alone, agent = given in ("es", "cem_rl", "dvd", "independent", "schedule"), Agent((), TUNED, {})
    assert made.explanation.endswith("no member copies another: each keeps its own weights.") == (
        not copies and not alone
    )
    assert ("copy nobody" in made.explanation) == (copies and getattr(made, "default_members", 0) > 0)
    assert made.space(agent) == ({} if alone else TUNED)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_cards_does_not_matter(name: str) -> None:
    order, who = (np.random.default_rng(seed).permutation(MEMBERS) for seed in (1, 2))
    for one, other in zip(asked(made(name), EVERYBODY, EVERYBODY), asked(made(name), order, who), strict=True):
        assert same((one.by_uid(), one.state), (other.by_uid(), other.state))


@pytest.mark.parametrize(
    "name", [name for name, kind in METHODS.items() if not kind.ends_members and name not in ("es", "cem_rl")]
)
def test_a_worker_decides_for_its_own_members_alone(name: str) -> None:
    """The second of two that share a directory, whichever rows its members have among all that are seen. What has no state
    decides as it would for all."""
    order, rng = np.random.default_rng(1).permutation(MEMBERS), np.random.default_rng(2)
    own = EVERYBODY[MEMBERS // 2 :]
    kind, who, kept, foreign = made(name), rng.permutation(own), 0, 0
    runs = (asked(kind, EVERYBODY, own), asked(kind, order, who), asked(kind, order, EVERYBODY))
    for one, other, whole in zip(*runs, strict=True):
        assert same((one.by_uid(), one.state), (other.by_uid(), other.state))
        seen, rows, state, decision, _ = other
        assert isinstance(decision, Decision) and isinstance(whole.decision, Decision)
        assert decision.parents.shape == rows.shape and set(decision.parents) <= set(range(MEMBERS))
        assert all(x.shape == rows.shape and x.dtype == np.float32 for x in decision.hyper.values())
        keeps = decision.parents == rows
        for x in TUNED.keys() & decision.hyper.keys():
            np.testing.assert_array_equal(decision.hyper[x][keeps], seen.hyper[x][rows][keeps])
        if not jax.tree.leaves(state):
            np.testing.assert_array_equal(decision.parents, whole.decision.parents[who])
            assert same(decision.hyper, {x: values[who] for x, values in whole.decision.hyper.items()})
        kept, foreign = kept + keeps.sum(), foreign + (seen.uid[decision.parents] < MEMBERS // 2).sum()
    assert kept and (foreign > 0) == kind.copies


# ------------------------------------------------------------------------------------------------- options


def decisions(kind: Method) -> Any:
    return [each.by_uid() for each in asked(kind, EVERYBODY, EVERYBODY)]


def programs(kind: Method) -> Iterator[str]:
    """What a learner computes, as JAX has traced it, one after another."""
    agent = policy(SPEC, layers=(4,)) if "policy" in kind.agents else td3(SPEC, **SETTINGS)
    n, key = 4, jax.random.key(0)
    uid, learner = jnp.arange(n, dtype=jnp.uint32), kind.learner(agent, n)
    hyper = jax.tree.map(lambda x: jnp.full(n, x, jnp.float32), learner.agent.hyper)
    population = jax.eval_shape(learner.init, key, uid, hyper)
    yield str(jax.make_jaxpr(learner.init)(key, uid, hyper))
    if isinstance(learner, SearchLearner):
        yield str(jax.make_jaxpr(learner.draw)(population, uid, key))
        yield str(jax.make_jaxpr(learner.tell)(population, uid, jnp.zeros(n), key))
        yield str(jax.make_jaxpr(learner.improve)(population, key))
    else:
        rollout = jax.tree.map(lambda x: np.stack([x] * n), reference.rollout(SPACE, 0))
        yield str(jax.make_jaxpr(learner.update)(population, rollout, jax.random.split(key, n)))


BEGIN = [name for name, kind in METHODS.items() if "initial" in {field.name for field in fields(kind)}]


def test_what_tunes_says_where_members_begin() -> None:
    assert set(BEGIN) == {name for name, kind in METHODS.items() if kind.tunes}


@pytest.mark.parametrize("name", BEGIN)
def test_where_members_begin(name: str) -> None:
    """With a range that holds the default, one that does not, and one with a start of its own, which comes before both:
    sampled, or all at the default or as near as may be."""
    space = {
        "learning_rate": [1e-5, 1e-2, "log"],
        "discount": [0.8, 0.9],
        "epochs": {"low": 1, "high": 8, "initial": 2},
    }
    first = {}
    for value in ("sampled", "default"):
        of_all = {"default_members": 0} if name == "successive_halving" else {}
        method = {"name": name, "initial": value} | USUAL.get(name, {}) | of_all
        e = tiny(method=method, space=space, population=16, hyper={})
        first[value] = make_plan(e).evolver.init((0, 0), np.arange(16))[1]
    there = {"learning_rate": np.float32(3e-4), "discount": np.float32(0.9), "epochs": 2}
    at_default = {value: np.stack([first[value][x] == there[x] for x in there]) for value in first}
    assert not at_default["sampled"][:2].any() and at_default["sampled"][2].all() and at_default["default"].all()


@pytest.mark.parametrize("name", others_slow(METHODS, "pbt", "successive_halving", "mf_pbt", "es", "independent"))
def test_every_option_reaches_decisions_or_programs(name: str) -> None:
    """What it does there, other tests hold against papers and NumPy."""
    assert {field.name for field in fields(METHODS[name])} - BEFORE_AND_BESIDE == UNUSUAL[name].keys()
    others = {option: made(name, **{option: value}) for option, value in UNUSUAL[name].items()}
    decided = decisions(made(name))
    assert same(decisions(made(name)), decided)
    if rest := {option: other for option, other in others.items() if same(decisions(other), decided)}:
        computed = [*programs(made(name))]
        assert [*programs(made(name))] == computed
        for option, other in rest.items():  # up to the first that differs
            both = zip(programs(other), computed, strict=True)
            assert any(one != usual for one, usual in both), f"{option} changes nothing"
