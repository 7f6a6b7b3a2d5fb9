"""Observations that are dictionaries of arrays: for every agent, on the device and on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.messages import Said
from support.parts import ASYMMETRIC, DTYPES, SHAPES, in_parts
from support.runs import same_run, shoal, tiny
from support.shards import gradient_trained
from support.tiny import EVERY, REPLAY, agent_for, close, hyper_of, kinds, known, make_agent, member, same, space_of

from shoal.commands.doctor import checks
from shoal.commands.envs import described
from shoal.commands.video import rendered
from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.population import Decision
from shoal.core.spec import Spec
from shoal.core.types import Agent, Rollout, TimeStep
from shoal.environments import registry
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.host import HostEnvironment
from shoal.experiment.plan import make_plan
from shoal.methods.dvd import Dvd
from shoal.rl.independent import independent
from shoal.run.champion import load_champion
from shoal.run.train import resume, train

ACTIONS = dict(kinds(EVERY))
ORDER = sorted(SHAPES)  # in which arrays stand side by side where nobody says otherwise
WIDTH = 7


def drawn(*batch: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    whole = rng.integers(0, 256, (*batch, *SHAPES["bytes"])).astype(np.uint8)
    return {name: rng.normal(size=(*batch, *SHAPES[name])).astype(np.float32) for name in ORDER} | {"bytes": whole}


def side_by_side(obs: dict[str, Any]) -> np.ndarray:
    """By hand: all arrays as one vector, bytes as shares of 255."""
    batch = obs["state"].shape[:-1]
    return np.concatenate(
        [obs["bytes"].reshape(*batch, 4).astype(np.float32) / 255, obs["privileged_state"], obs["state"]], -1
    )


def agent_of(name: str, said: dict[str, Any] | None = None, **settings: Any) -> Agent:
    """said: what the environment says of who sees what."""
    return agent_for(Spec(SHAPES, DTYPES, space_of(ACTIONS[name]), **said or {}), name, **settings)


def said_by(name: str) -> list[str]:
    """Who may say what an agent sees."""
    return ["environment", "experiment"] if "actor" in known(name) else ["environment"]


# --------------------------------------------------------------------------------------------- agents


def lived(agent: Agent, obs: dict[str, Any] | np.ndarray, after: Any) -> Any:
    """The first weights; actions [T, B, ...]; and what one update makes of a rollout in which these were seen."""
    shape = (agent.rollout_length, agent.num_envs)
    reward = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    ends = np.random.default_rng(5).random((2, *shape)) < 0.2

    def live(member: Any, key: jax.Array, obs: Any, after: Any) -> Any:
        action, _, extras = jax.vmap(lambda x, key: agent.act(member.learned, agent.hyper, x, (), key))(
            obs, jax.random.split(key, shape[0])
        )
        values = () if agent.value is None else jax.vmap(lambda x: agent.value(member.learned, x, ()))(after)
        following = after if agent.value is None else ()
        rollout = Rollout(obs, action, reward, following, *ends, extras, values)
        end = agent.update(member, agent.hyper, rollout, key)[0].learned
        return action, agent.act_deterministic(end, tree.take(obs, 0), ())[0], end

    key = jax.random.key(2)
    member = jax.jit(agent.init)(key, agent.hyper)  # apart, as the weights of two programs that do more may round apart
    return member.learned, *jax.jit(live)(member, key, obs, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_dictionary_is_its_arrays_side_by_side(name: str) -> None:
    """The same weights, actions and update as of one vector; so are statistics, each of its own array."""
    agent, other = agent_of(name), make_agent(name, ACTIONS[name], (WIDTH,))
    obs = drawn(2, agent.rollout_length, agent.num_envs)
    here, after = ({key: x[i] for key, x in obs.items()} for i in range(2))
    start, action, greedy, end = lived(agent, here, after)
    first, *expected, last = lived(other, side_by_side(here), side_by_side(after))
    if name == "ppo":
        known = end.observations
        for field in ("mean", "variance"):
            of = np.concatenate([np.reshape(getattr(known[key], field), -1) for key in ORDER])
            np.testing.assert_allclose(of, getattr(last.observations, field), rtol=1e-4, atol=1e-5)
        assert {key: float(x.total) for key, x in known.items()} == dict.fromkeys(ORDER, float(last.observations.total))
        first, last, start, end = (x._replace(observations=()) for x in (first, last, start, end))
    assert same(start, first) and not same(start, end)
    close((action, greedy, end), (*expected, last), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "who"), [(name, who) for name in ACTIONS for who in said_by(name)])
def test_the_actor_and_the_critic_have_their_keys(name: str, who: str) -> None:
    """Actions depend on the keys of the actor alone, and need no others; values on those of the critic alone. Which these
    are the experiment says, or else the environment."""
    if who == "environment":
        agent = agent_of(name, {field: tuple(keys) for field, keys in ASYMMETRIC.items()})
    else:
        otherwise = dict.fromkeys(ASYMMETRIC, ("bytes",))
        agent = agent_of(name, otherwise, **{field: keys for field, keys in ASYMMETRIC.items() if field in known(name)})
    assert agent.observation_keys == ("state",)
    learned = jax.jit(agent.init)(jax.random.key(0), agent.hyper).learned
    obs, act = drawn(50), jax.jit(lambda obs: agent.act_deterministic(learned, obs, ())[0])
    action = act({"state": obs["state"]})
    assert same(action, act(obs | {"privileged_state": obs["privileged_state"] + 1, "bytes": obs["bytes"] // 2}))
    assert not same(action, act(obs | {"state": obs["state"] + 1}))
    if name in ("dqn", "policy"):
        return  # no critic
    if agent.value is not None:
        value = jax.jit(lambda obs: agent.value(learned, obs, ()))  # type: ignore[misc]
    elif agent.networks is not None:
        value = jax.jit(lambda obs: agent.networks.values(learned.critics, obs, action))
    else:
        kernel = learned.critics["params"]["Dense_0"]["kernel"]  # of both: what they see of it, and the action
        assert kernel.shape[1] == 2 + 1 + action.shape[-1]
        return
    assert same(value(obs), value(obs | {"bytes": obs["bytes"] // 2}))
    for key in ASYMMETRIC["critic"]:
        assert not same(value(obs), value(obs | {key: obs[key] + 1}))


def test_actors_that_share_their_critics() -> None:
    """By shapes alone: critics that see more, one memory, and states in which behaviours are compared."""
    agent, n = agent_of("td3", **ASYMMETRIC), 2
    shape = (n, agent.rollout_length, agent.num_envs)
    obs, flags, numbers = drawn(*shape), jnp.zeros(shape, bool), jnp.zeros(shape)
    rollout = Rollout(obs, numbers[..., None], numbers, obs, flags, flags, ())
    learner = Dvd().learner(agent, n)

    def live(key: jax.Array) -> Any:
        hyper = jax.tree.map(lambda x: jnp.full(n, x), learner.agent.hyper)
        start = learner.init(key, jnp.arange(n), hyper)
        return start, learner.update(start, rollout, jax.random.split(key, n))[0]

    start, end = jax.eval_shape(live, jax.random.key(0))
    assert start == end and set(start.shared.replay_buffer.obs) == set(SHAPES)


BAD: dict[str, dict[str, Any]] = {
    "unknown": {"actor": ["stat"]},
    "twice": {"critic": ["state", "state"]},
    "shared": ASYMMETRIC | {"lstm_hidden_size": 4},
    "frames": {"frame_stack": 2},
    "image": {"network": "impala"},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what: str, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        agent_of("ppo", **BAD[what])
    said(error.value)


def test_keys_of_one_array(tmp_path: Path) -> None:
    outcome = shoal("train", "--env", "CartPole-v1", "--run-dir", tmp_path / "r", "--set", "config.critic=[state]")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "config.critic = ['state']: observations of this environment are one array, without keys" in outcome.err


# --------------------------------------------------------------------------------------- environments


def test_a_device_environment_gives_what_its_spec_says(said: Said) -> None:
    environment = in_parts()
    others = {
        "lacks bytes": lambda obs: {"state": obs["state"], "privileged_state": obs["privileged_state"]},
        "other type": lambda obs: obs | {"bytes": obs["bytes"].astype(jnp.float32)},
    }
    for odd in others.values():

        def reset(key: jax.Array, odd: Any = odd) -> Any:
            obs, state = environment.reset(key)
            return odd(obs), state

        with pytest.raises(BadInput) as error:
            jax.eval_shape(with_error_boundary(environment._replace(reset=reset), "x").reset, jax.random.key(0))
        said(error.value)
    with pytest.raises(BadInput) as error:
        with_error_boundary(
            environment._replace(spec=Spec(SHAPES, DTYPES, environment.spec.action, actor=("stat",))), "x"
        )
    said(error.value)


@pytest.fixture
def rooms() -> Iterator[HostEnvironment]:
    gymnasium.register("shoal-test/Rooms-v0", "support.parts:Rooms")
    try:
        yield registry.make("gym:shoal-test/Rooms-v0", {})
    finally:
        del gymnasium.registry["shoal-test/Rooms-v0"]


def test_dictionaries_of_gymnasium(rooms: HostEnvironment) -> None:
    """Every array as it is; what is none is flattened; and the last observation of an episode is its own."""
    shapes = {"bytes": (1, 2), "deep": (2,), "place": (2,), "room": (3,)}
    assert rooms.spec.obs_shape == shapes
    assert rooms.spec.obs_dtype == dict.fromkeys(shapes, "float32") | {"bytes": "uint8"}
    copies = with_error_boundary(rooms, "x").open(2)
    first, steps = copies.reset([3, 4]), []
    for _ in range(3):
        steps.append(copies.step(np.zeros((2, 1), np.float32))[0])
    copies.close()
    assert {key: (x.shape[1:], str(x.dtype)) for key, x in first.items()} == {
        key: (shapes[key], rooms.spec.obs_dtype[key]) for key in shapes
    }
    np.testing.assert_array_equal(first["place"], [[3, 0], [4, 0]])
    np.testing.assert_array_equal(steps[1].obs["room"], [[0, 0, 1]] * 2)
    np.testing.assert_array_equal(steps[1].obs["deep"], [[2, 1]] * 2)
    last: TimeStep = steps[2]
    np.testing.assert_array_equal(last.final_obs["place"], [[3, 3], [4, 3]])
    np.testing.assert_array_equal(last.obs["place"], [[-1, 0]] * 2)
    np.testing.assert_array_equal(last.obs["bytes"], np.zeros((2, 1, 2)))
    assert last.terminated.all() and not steps[1].terminated.any()


# ----------------------------------------------------------------------------------------------- runs

CONFIG = {"layers": [8], "rollout_length": 16, "num_envs": 2} | REPLAY


def test_what_is_seen_is_told(said: Said) -> None:
    plan = make_plan(tiny(env=in_parts, agent="td3", config=CONFIG | ASYMMETRIC))
    (found,) = checks.observations(plan)
    whole = "state (2,) float32, privileged_state (1,) float32, bytes (2, 2) uint8"
    assert (found.mark, found.text) == ("✓", f"{whole}; policies receive state")
    with pytest.raises(BadInput) as error:
        rendered("support.parts:in_parts", {}, None)
    said(error.value)
    seen = replace(in_parts().spec, actor=("state",), critic=("privileged_state",))
    assert described(in_parts()._replace(spec=seen))[0] == (
        f"observations: {whole}; actor: state; critic: privileged_state"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [("ppo", {"normalize_observations": True}), ("td3", {})])
def test_a_child_has_what_its_parent_learned_of_every_array(name: str, settings: dict[str, Any]) -> None:
    """Weights and statistics of policy and critic, which see different arrays; environments and memories stay its own."""
    agent = make_agent(name, "continuous", SHAPES, DTYPES, **ASYMMETRIC, **settings)
    hyper = {k: np.asarray(v) for k, v in hyper_of(name, agent, 3)._asdict().items()}
    shard = gradient_trained(in_parts(), independent(agent), np.arange(3), 0, EvaluationConfig(episodes=2))
    shard.begin(hyper)
    shard.train(0, iterations=2, chunk=2)
    before, world = jax.tree.map(np.asarray, (shard.population.members, shard.rollouts.world.obs))
    assert set(world) == set(SHAPES) and not same(member(before.learned, 0), member(before.learned, 1))
    shard.apply(Decision(np.array([2, 0, 2]), hyper), {})
    after = jax.tree.map(np.asarray, shard.population.members)
    for child, parent in enumerate((2, 0, 2)):
        assert same(member(after.learned, child), member(before.learned, parent))
    assert same(after.replay_buffer, before.replay_buffer) and same(shard.rollouts.world.obs, world)


@pytest.mark.slow
def test_a_run_goes_on_and_its_champion_acts(tmp_path: Path, trace_cache: None) -> None:
    """On the device: resumed it is the same, bit for bit; of the observations the champion needs what the policy sees."""
    changes = {"env": "support.parts:in_parts", "agent": "td3", "config": CONFIG | ASYMMETRIC}
    train(tiny(tmp_path / "whole", **changes))
    train(tiny(tmp_path / "parts", **changes, generations=1))
    resume(tmp_path / "parts", generations=2, trust_code=True)
    same_run(tmp_path / "whole", tmp_path / "parts")
    champion, obs = load_champion(tmp_path / "whole", trust_code=True), drawn(3)
    actions = champion.predict({"state": obs["state"]})[0]
    assert same(actions, champion.predict(obs)[0]) and actions.shape == (3, 1)
    one = [champion.predict({"state": x})[0] for x in obs["state"]]
    np.testing.assert_allclose(np.stack(one), actions, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_run_on_the_host(rooms: HostEnvironment, tmp_path: Path, said: Said) -> None:
    views = {"actor": ["place"], "critic": ["place", "room"]}
    config = CONFIG | views
    result = train(tiny(tmp_path / "r", env="gym:shoal-test/Rooms-v0", agent="td3", config=config, generations=1))
    assert result.champion.predict({"place": np.zeros((4, 2))})[0].shape == (4, 1)
    with pytest.raises(BadInput) as error:
        result.champion.predict({"room": np.zeros(3)})
    said(error.value)
    with pytest.raises(BadInput) as error:
        result.champion.predict({"place": np.zeros(3)})
    said(error.value)
