"""What every agent must keep, for every kind of actions that it has. A new entry of AGENTS is held to it by itself.

A population lives through two rounds of a made-up world: act T times, update. Observations, rewards and ends are drawn
once and for all, so that what becomes of a member depends on its state, hyperparameters, key and actions alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import REMEMBERING, close, hyper_of, kinds, leaves, make_agent, member, same, space_of

from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.keys import member_keys
from shoal.core.spec import Box
from shoal.core.types import Population, Rollout
from shoal.environments.spaces import to_bounds
from shoal.rl.independent import independent
from shoal.rl.schedules import scheduled

N = 3
OTHERS = np.array([0, 2])  # all but member 1, the one that tests touch


class World(NamedTuple):
    """What happens to a population in one round, whatever it does; leaves [N, T, B, ...]."""

    obs: Any
    next_obs: Any
    reward: Any
    terminated: Any
    truncated: Any


class Lived(NamedTuple):
    """What became of a population; every leaf [N, ...]."""

    population: Population
    metrics: dict[str, Any]
    actions: tuple[Any, ...]


class Case:
    """One agent with one kind of actions; its programs are compiled once."""

    def __init__(self, name: str, actions: str):
        self.space, self.traces = space_of(actions), 0
        self.agent = agent = make_agent(name, actions)

        def counted(*arguments: Any) -> Any:
            self.traces += 1
            return agent.update(*arguments)

        self.learner = independent(agent._replace(update=counted))
        self.init, self.round = jax.jit(self.learner.init), jax.jit(self._round)
        self.hyper = hyper_of(name, agent, N)
        self.key, self.uid = jax.random.key(1), jnp.arange(N)
        self.keys = member_keys(self.key, self.uid)
        self.start = jax.device_get(self.init(self.key, self.uid, self.hyper))
        self.worlds = [self._world(seed) for seed in range(2)]
        self.end = self.live()

    def _world(self, seed: int) -> World:
        rng, shape = np.random.default_rng(seed), (N, self.agent.rollout_length, self.agent.num_envs)
        obs, next_obs = rng.normal(size=(2, *shape, 2)).astype(np.float32)
        terminated, truncated = rng.random((2, *shape)) < 0.15
        return World(obs, next_obs, rng.normal(size=shape).astype(np.float32), terminated, truncated)

    def live(self, start: Population | None = None, worlds: list[World] | None = None, keys: Any = None) -> Lived:
        """Two rounds."""
        population, metrics, actions = start or self.start, {}, []
        keys = self.keys if keys is None else keys
        for i, world in enumerate(worlds or self.worlds):
            population, metrics, rollout = self.round(population, world, fold(keys, i))
            actions.append(rollout.action)
        return Lived(*jax.device_get((population, metrics, tuple(actions))))

    def _round(self, population: Population, world: World, keys: jax.Array) -> tuple[Population, Any, Rollout]:
        def step(carry: Any, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, Any]:
            obs, done, t = now
            action, carry, extras = self.learner.act(population, obs, carry, fold(keys, t))
            return tree.where(done, fresh, carry), (action, extras)

        fresh = self.agent.carry((N, self.agent.num_envs))
        seen = (jnp.moveaxis(x, 1, 0) for x in (world.obs, world.terminated | world.truncated))
        taken = jax.lax.scan(step, fresh, (*seen, jnp.arange(self.agent.rollout_length)))[1]
        action, extras = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), taken)
        rollout = Rollout(world.obs, action, world.reward, world.next_obs, world.terminated, world.truncated, extras)
        rollout = rollout._replace(carry=fresh)
        if self.learner.value is not None:
            needed = world.truncated.at[:, -1].set(True)
            rollout = rollout._replace(
                next_obs=(), bootstrap_value=jnp.where(needed, self._values(population, world), 0.0)
            )
        now = population._replace(hyper=scheduled(population.hyper, jnp.float32(0.5)))
        after, metrics = self.learner.update(now, rollout, keys)
        return after._replace(hyper=population.hyper), metrics, rollout

    def _values(self, population: Population, world: World) -> jax.Array:
        """The values of the next observations [N, T, B]."""
        value, carry = self.learner.value, self.agent.carry((N, self.agent.num_envs))
        assert value is not None
        return jax.vmap(lambda obs: value(population, obs, carry), 1, 1)(world.next_obs)

    def changed(self, field: str) -> Population:
        """The population, with another value of one hyperparameter for member 1."""
        values = getattr(self.hyper, field).copy()
        values[1] = values[1] / 2 if values[1] else 1
        return self.start._replace(hyper=self.hyper._replace(**{field: values}))


def fold(keys: jax.Array, i: Any) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, i)


KINDS = [*kinds(), *((name, "discrete") for name in REMEMBERING)]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


# ------------------------------------------------------------------------------ hyperparameters are data


def test_every_hyperparameter_takes_effect_on_its_member_alone(case):
    """Changing one value for one member changes its next state or action, and nothing of any other member."""
    before = case.end.population.members, case.end.actions
    for field in case.hyper._fields:
        end = case.live(case.changed(field))
        after = end.population.members, end.actions
        assert not same(member(after, 1), member(before, 1)), f"{field} changes nothing"
        assert same(member(after, OTHERS), member(before, OTHERS)), f"{field} of one member changes another"


def test_new_hyperparameters_are_not_traced_again(case):
    case.live()  # its programs may have been dropped since they were traced
    traces = case.traces
    case.live(case.start._replace(hyper=jax.tree.map(lambda x: x * np.float32(0.7), case.hyper)))
    assert case.traces == traces


def test_ranges_name_hyperparameters_and_hold_their_defaults(case):
    for name, range_ in case.agent.space.items():
        default = getattr(case.agent.hyper, name)
        assert default in range_.choices if range_.choices else range_.low <= default <= range_.high, name


# --------------------------------------------------------------------------------------- members are apart


def touched(case: Case, reward: float) -> list[World]:
    """The worlds, with something added to the rewards of member 1."""
    worlds = [world._replace(reward=world.reward.copy()) for world in case.worlds]
    for world in worlds:
        world.reward[1] += np.float32(reward)
    return worlds


def test_a_members_experience_is_its_own(case):
    end = case.live(worlds=touched(case, 1))
    assert not same(member(end.population.members, 1), member(case.end.population.members, 1))
    assert same(member(end, OTHERS), member(case.end, OTHERS))


def test_what_is_not_finite_is_not_learned_from(case):
    """Neither a reward nor an observation, whatever stands there; all else of that rollout is learned as ever."""
    ends = []
    for odd in (np.nan, np.inf, -1e30):
        worlds = [world._replace(obs=world.obs.copy(), next_obs=world.next_obs.copy()) for world in touched(case, 0)]
        for world in worlds:
            world.reward[1, 3, 0] = world.next_obs[1, 0, 1, 0] = world.obs[1, -1, 0, 1] = odd
        ends.append(case.live(worlds=worlds))
    for end in ends:
        members = end.population.members
        assert tree.finite(members).all(), "something of it is kept"
        assert same(member(members, 1), member(ends[0].population.members, 1)), "it matters what was not finite"
        assert not same(member(members.learned, 1), member(case.start.members.learned, 1)), "nothing is learned at all"
        assert same(member(members, OTHERS), member(case.end.population.members, OTHERS))


def test_a_members_weights_are_its_own(case):
    other = case.init(jax.random.key(99), case.uid, case.hyper).members
    mixed = jax.tree.map(lambda x, y: np.concatenate([x[:1], y[1:2], x[2:]]), case.start.members, other)
    end = case.live(case.start._replace(members=mixed))
    assert not same(member(end, 1), member(case.end, 1))
    assert same(member(end, OTHERS), member(case.end, OTHERS))


def test_weights_that_are_not_finite_stay_with_their_member(case):
    learned = case.start.members.learned
    learned = jax.tree.map(lambda x: jnp.asarray(x).at[1].set(np.nan) if x.dtype.kind == "f" else x, learned)
    end = case.live(start=case.start._replace(members=case.start.members._replace(learned=learned)))
    assert any(np.isnan(x).any() for x in leaves(member(end.population.members.learned, 1)) if x.dtype.kind == "f")
    assert same(member(end, OTHERS), member(case.end, OTHERS))


def test_a_population_is_its_members_one_by_one(case):
    """vmap equals a loop over the functions of one member."""
    agent, act, update = case.agent, jax.jit(case.agent.act), jax.jit(case.agent.update)
    keys = fold(case.keys, 0)
    population, metrics, rollouts = jax.device_get(case.round(case.start, case.worlds[0], keys))
    for i in range(N):
        hyper, start, rollout = (member(x, i) for x in (case.hyper, case.start.members, rollouts))
        carry = fresh = agent.carry((agent.num_envs,))
        for t in range(agent.rollout_length):
            action, carry, extras = act(start.learned, hyper, rollout.obs[t], carry, jax.random.fold_in(keys[i], t))
            carry = tree.where(rollout.terminated[t] | rollout.truncated[t], fresh, carry)
            close((action, extras), member((rollout.action, rollout.extras), t))
        end = update(start, hyper, rollout, keys[i])
        close(end, member((population.members, metrics), i), rtol=1e-3, atol=1e-4)
        assert not same(update(start, hyper, rollout, case.keys[i])[0], end[0]), "an update that ignores its key"


# ------------------------------------------------------------------------------------------------- actions


def test_deterministic_actions_are_those_and_in_their_space(case):
    obs = case.worlds[0].obs[:, 0]
    carry = case.agent.carry((N, case.agent.num_envs))
    greedy = jax.jit(case.learner.act_deterministic)
    action, after = greedy(case.end.population, obs, carry)
    assert same((action, after), greedy(case.end.population, obs, carry))
    assert jax.tree.structure(after) == jax.tree.structure(carry)
    check_actions(case, np.asarray(action))


def test_actions_are_in_their_space(case):
    for action in case.end.actions:
        check_actions(case, np.asarray(action))


def check_actions(case: Case, action: np.ndarray) -> None:
    """Actions [N, ..., B, *shape] of the dtype that the space asks for; within bounds after `to_bounds`."""
    space = case.space
    batch = action.shape[: action.ndim - len(space.shape)]
    assert batch in ((N, case.agent.num_envs), (N, case.agent.rollout_length, case.agent.num_envs))
    assert action.shape == (*batch, *space.shape)
    if isinstance(space, Box):
        assert action.dtype == np.float32 and np.isfinite(action).all()
        bounded = np.asarray(to_bounds(space, action))
        assert bounded.dtype == np.float32 and (np.abs(bounded) <= 2).all()
    else:
        assert action.dtype == np.int32 and np.isin(action, (0, 1)).all()


# --------------------------------------------------------------------------------------------------- state


def test_states_can_be_scanned(case):
    """An update keeps structure, shapes and dtypes, and metrics are a flat dict of finite float32 numbers [N]."""
    before, after = (jax.tree.map(lambda x: (x.shape, x.dtype), p) for p in (case.start, case.end.population))
    assert before == after
    for name, value in case.end.metrics.items():
        assert value.shape == (N,) and value.dtype == jnp.float32 and np.isfinite(value).all(), name


def test_what_a_copy_copies_holds_no_key(case):
    for x in jax.tree.leaves(case.end.population.members.learned):
        assert not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def test_everything_random_comes_from_the_key(case):
    other = jax.random.key(99)
    assert same(case.end, case.live())
    assert same(case.start, case.init(case.key, case.uid, case.hyper))
    begun, lived = case.init(other, case.uid, case.hyper), case.live(keys=member_keys(other, case.uid))
    for i in range(N):
        assert not same(member(begun.members, i), member(case.start.members, i))
        assert not same(member(lived.actions, i), member(case.end.actions, i))


def test_members_begin_apart(case):
    """Equal hyperparameters and unequal keys: no two members begin or act alike."""
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not same(member(case.start.members.learned, i), member(case.start.members.learned, j))
        assert not same(member(case.end.actions, i), member(case.end.actions, j))


@pytest.mark.parametrize(("shape", "dtype"), [((), "float32"), ((3, 4, 2), "float32"), ((4, 4), "uint8")], ids=str)
@pytest.mark.parametrize(("name", "actions"), KINDS)
def test_observations_of_any_shape(name, actions, shape, dtype):
    """By shapes alone. One that an agent does not take it refuses at once: images whose frames would be stacked astray."""
    if name in REMEMBERING and len(shape) == 3:
        with pytest.raises(BadInput, match="config.frame_stack"):
            make_agent(name, actions, shape, dtype)
        return
    agent = make_agent(name, actions, shape, dtype)
    assert agent.observation_keys == ()  # no keys of a dictionary

    def live(key: jax.Array) -> Any:
        start, batch = agent.init(key, agent.hyper), (agent.rollout_length, agent.num_envs)
        obs = jnp.zeros((*batch, *shape), dtype)
        carry = agent.carry((agent.num_envs,))
        step = agent.act(start.learned, agent.hyper, obs[0], carry, key)
        action, _, extras = jax.tree.map(lambda x: jnp.broadcast_to(x, (agent.rollout_length, *x.shape)), step)
        no = jnp.zeros(batch, bool)
        after = (obs, ()) if agent.value is None else ((), jnp.zeros(batch))
        rollout = Rollout(obs, action, jnp.zeros(batch), after[0], no, no, extras, after[1], carry)
        return (
            agent.act_deterministic(start.learned, obs[0], carry)[0],
            start,
            agent.update(start, agent.hyper, rollout, key)[0],
        )

    action, start, end = jax.eval_shape(live, jax.random.key(0))
    assert action.shape == (agent.num_envs, *space_of(actions).shape)
    assert start == end


@pytest.mark.parametrize(("name", "actions"), dict(kinds()).items())
def test_bytes_are_shares_of_255(name, actions):
    """An image of bytes is to every agent what its shares of 255 are, and so is what its statistics know of it."""
    ends = []
    for dtype, scale in (("uint8", np.uint8(1)), ("float32", np.float32(1 / 255))):
        agent = make_agent(name, actions, (2, 3), dtype, layers=())
        batch = (agent.rollout_length, agent.num_envs)
        obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (*batch, 2, 3), np.uint8) * scale)

        def live(key: Any, agent: Any = agent, obs: Any = obs, batch: Any = batch) -> Any:
            start, carry = agent.init(key, agent.hyper), agent.carry((agent.num_envs,))
            learned, step = start.learned, agent.act(start.learned, agent.hyper, obs[0], carry, key)
            if hasattr(learned, "observations"):
                action, _, extras = jax.tree.map(lambda x: jnp.broadcast_to(x, (agent.rollout_length, *x.shape)), step)
                done = jnp.ones(batch, bool)
                after = (obs, ()) if agent.value is None else ((), jnp.zeros(batch))
                rollout = Rollout(obs, action, jnp.ones(batch), after[0], done, done, extras, after[1], carry)
                learned = agent.update(start, agent.hyper, rollout, key)[0].learned
            now, carry, extras = step
            return now, extras, agent.act_deterministic(learned, obs[1], carry)[0], getattr(learned, "observations", ())

        ends.append(jax.jit(live)(jax.random.key(1)))
    close(*ends, rtol=1e-3, atol=1e-4)
