"""What a copy copies and what it leaves, in a shard; for every agent."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.runs import build_run, tiny
from support.shards import gradient_trained
from support.tiny import hyper_of, kinds, make_agent, member, same, walk

from shoal.core import tree
from shoal.core.population import Decision
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.gradient_trained import GradientTrained, GradientTrainedShard
from shoal.members.protocol import Setup
from shoal.rl import replay_buffer as ring
from shoal.rl.independent import independent

N = 4
UID = np.array([10, 11, 12, 13])
SETTINGS = {"ppo": {"normalize_rewards": True}}  # so that a member has something of its own
MOVED_BY_RATES = {"params", "policy", "critics", "log_temperature"}  # by a gradient, and nothing else


class Case:
    """A shard after its first generation, again and again; its programs are compiled once."""

    def __init__(self, name: str, actions: str, copies_replay: bool = False):
        self.agent = agent = make_agent(name, actions, **SETTINGS.get(name, {}))
        self.hyper = {k: np.asarray(v) for k, v in hyper_of(name, agent, N)._asdict().items()}
        self.kind = GradientTrained(walk(actions), independent(agent), copies_replay)
        self.shard = self.kind.one_shard(UID, Setup(0, EvaluationConfig(episodes=3)))

    def begin(self, **changed: Any) -> GradientTrainedShard:
        self.shard.begin(self.hyper | {k: np.float32(v) for k, v in changed.items()})
        self.shard.train(0, iterations=2, chunk=2)
        return self.shard

    def adopt(self, *parents: int, **changed: Any) -> None:
        hyper = self.hyper | {k: np.float32(v) for k, v in changed.items()}
        self.shard.apply(Decision(np.array(parents), hyper), {})


made = functools.lru_cache(maxsize=2)(Case)


@pytest.fixture(scope="module", params=dict(kinds()).items(), ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    return made(*request.param)


def learned(shard: GradientTrainedShard) -> Any:
    return jax.tree.map(np.asarray, shard.population.members.learned)


def test_a_child_has_what_its_parent_learned_and_nothing_else_of_it(case):
    shard = case.begin()
    members, world, stats = jax.tree.map(
        np.asarray, (shard.population.members, shard.rollouts.world.obs, shard.stats())
    )
    state = jax.tree.map(np.asarray, shard.rollouts.world.state)
    total = np.asarray(shard.rollouts.world.progress.total)
    assert not same(member(members, 0), member(members, 1))
    case.adopt(0, 0, 2, 2)
    after = learned(shard)
    for child, parent in enumerate((0, 0, 2, 2)):
        assert same(member(after, child), member(members.learned, parent))
    assert same(shard.population.members.own, members.own) and same(
        shard.population.members.replay_buffer, members.replay_buffer
    )
    assert same((shard.rollouts.world.obs, shard.rollouts.world.state), (world, state))
    assert same(shard.rollouts.world.progress.total, total)
    assert same((shard.stats().uid, shard.stats().steps), (UID, stats.steps))


def test_a_chain_moves_old_states(case):
    """0 -> 1 -> 2 -> 3 -> 0 in one decision: everyone gets what its parent was before."""
    shard = case.begin()
    before = learned(shard)
    case.adopt(3, 0, 1, 2)
    for child, parent in enumerate((3, 0, 1, 2)):
        assert same(member(learned(shard), child), member(before, parent))


def test_nobody_copies(case):
    shard = case.begin()
    before = jax.tree.map(np.asarray, shard.state())
    case.adopt(0, 1, 2, 3)
    assert same(shard.state(), before)


def test_children_of_one_parent_go_their_own_ways(case):
    """Equal weights and equal hyperparameters, but keys and environments of their own."""
    shard = case.begin()
    case.adopt(0, 0, 0, 3)
    shard.train(1, iterations=1, chunk=1)
    after = learned(shard)
    assert not any(same(member(after, i), member(after, j)) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_a_child_learns_with_its_own_rates(case):
    """Each rate that comes with a decision is used at once: what it moves stays as it was copied where it is zero.

    Of four copies of one member, 0 and 1 have no rate at all and the others have every rate but one.
    """
    rates = [name for name in case.hyper if name.endswith("learning_rate")]
    assert rates
    shard, moved = case.begin(), set()
    before = member(learned(shard), 0)._asdict()
    online = {name for name in before if name in MOVED_BY_RATES}
    for rate in rates:
        off = {name: [0, 0, 1e-3, 1e-3] for name in rates} | {rate: [0, 0, 0, 1e-3]}
        shard = case.begin()
        case.adopt(0, 0, 0, 0, **off)
        for name, values in off.items():
            np.testing.assert_array_equal(shard.stats().hyper[name], np.float32(values))
        shard.train(1, iterations=1, chunk=1)
        still, without, every = (member(learned(shard), row)._asdict() for row in (1, 2, 3))
        assert all(same(still[name], before[name]) for name in online)
        assert not any(same(every[name], before[name]) for name in online)
        mine = {name for name in online if same(without[name], before[name])}
        assert mine and not mine & moved, f"{rate} moves nothing of its own"
        moved |= mine
    assert moved == online


def test_evaluations_are_the_same_for_all_fresh_in_each_generation_and_leave_members_alone(case):
    shard = case.begin()
    case.adopt(0, 0, 0, 0)
    before = jax.tree.map(np.asarray, shard.population)
    fitness = []
    for generation in (1, 2, 1):
        shard.evaluate(generation)
        fitness.append(shard.stats().fitness)
        assert len(set(fitness[-1])) == 1 and np.isfinite(fitness[-1]).all()
    assert fitness[0][0] == fitness[2][0] != fitness[1][0]
    assert same(shard.population, before)


def test_a_diverged_member_has_no_fitness(case):
    """Whatever of it is not finite, though its returns may be."""
    shard = case.begin()
    sound = shard.population
    leaves, structure = jax.tree.flatten(sound.members.learned)
    for i, leaf in enumerate(leaves):
        if leaf.dtype == np.float32:
            wrong = [*leaves[:i], leaf.at[2].set(np.inf), *leaves[i + 1 :]]
            members = sound.members._replace(learned=jax.tree.unflatten(structure, wrong))
            shard.population = sound._replace(members=members)
            shard.evaluate(0)
            np.testing.assert_array_equal(np.isnan(shard.stats().fitness), [False, False, True, False])


def test_whoever_takes_over_from_a_diverged_member_can_live(case):
    """Neither an environment that has left the numbers, nor weights that have, leave anything behind that a child meets."""
    shard = case.begin()
    x, time = shard.rollouts.world.state
    obs = shard.rollouts.world.obs.at[1, 0, 0].set(np.nan)
    shard.rollouts.world = shard.rollouts.world._replace(state=(x.at[1, 0].set(np.nan), time), obs=obs)
    metrics = shard.train(1, iterations=2, chunk=2)
    first = 1 / (2 * case.agent.rollout_length * case.agent.num_envs)  # one step; then its episode was at an end
    np.testing.assert_allclose(metrics["steps/broken"], [0, first, 0, 0], rtol=1e-6)
    assert tree.finite((shard.population.members, shard.rollouts.world.state, shard.rollouts.world.obs)).all()

    members = shard.population.members
    lost = jax.tree.map(lambda x: x.at[1].set(np.nan) if x.dtype == np.float32 else x, members.learned)
    shard.population = shard.population._replace(members=members._replace(learned=lost))
    for generation in (2, 3):
        shard.train(generation, iterations=2, chunk=2)
        shard.evaluate(generation)
        np.testing.assert_array_equal(np.isfinite(shard.stats().fitness), [True, generation == 3, True, True])
        case.adopt(0, 0, 2, 3)
    assert tree.finite(shard.population.members).all()


def test_a_snapshot_is_what_a_child_would_get(case):
    shard = case.begin()
    (snapshot, memory), shape = shard.snapshot(2), case.kind.snapshot
    shard.to_host()
    from_host = shard.snapshot(2)
    shard.to_device()
    assert same(from_host[0], snapshot)
    case.adopt(2, 1, 2, 3)
    assert same(snapshot, member(learned(shard), 0))
    assert memory == ()
    assert jax.tree.map(lambda x: (x.shape, x.dtype), shape) == jax.tree.map(
        lambda x: (x.shape, x.dtype), (snapshot, memory)
    )


def test_a_foreign_parent(case):
    """What another shard's member learned, as if it were here; all together with copies from within."""
    shard = case.begin()
    stranger = jax.tree.map(np.asarray, shard.snapshot(3))
    shard.train(1, iterations=1, chunk=1)
    before, own, world = jax.tree.map(
        np.asarray, (learned(shard), shard.population.members.own, shard.rollouts.world.obs)
    )
    hyper = case.hyper | {"discount": np.float32([0.5, 0.6, 0.7, 0.8])}
    shard.apply(Decision(np.array([1, 1, 2, 0]), hyper), {2: stranger, 1: stranger})
    after = learned(shard)
    for row, expected in enumerate((member(before, 1), stranger[0], stranger[0], member(before, 0))):
        assert same(member(after, row), expected)
    assert same((shard.population.members.own, shard.rollouts.world.obs), (own, world))
    np.testing.assert_array_equal(shard.stats().hyper["discount"], hyper["discount"])
    progress = shard.rollouts.world.progress  # episodes of the weights that were overwritten do not count, new ones do
    np.testing.assert_array_equal(progress.counts, np.asarray(progress.length) == 0)


# ------------------------------------------------------------------------------------------ replay buffer


def has_memory(name: str, actions: str) -> bool:
    agent = make_agent(name, actions)
    return bool(jax.tree.leaves(jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).replay_buffer))


REPLAYING = {name: actions for name, actions in kinds() if has_memory(name, actions)}


@pytest.fixture(scope="module", params=REPLAYING.items(), ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[Case, Case]:
    """The same members where memory is a member's own and where it is copied."""
    return made(*request.param), made(*request.param, copies_replay=True)


def test_agents_with_memory_are_known():
    assert set(REPLAYING) == {"td3", "sac", "dqn"}


def test_memory_of_a_child(pair):
    """Its own, or its parent's with position and count, bit for bit; what it owes and where it is stay its own."""
    for case, copied in zip(pair, (False, True), strict=True):
        shard = case.begin(update_ratio=[0.3, 0.35, 0.4, 0.45])  # of 16 steps: each owes another fraction
        memory = shard.population.members.replay_buffer
        # Members live in step with one another; here they do not, so that a mistaken position or count would show.
        odd = memory._replace(position=memory.position + UID[:, None] % 4, filled=memory.filled - UID[:, None] % 3)
        odd = jax.tree.map(lambda x, old: jax.device_put(x.astype(old.dtype), old.sharding), odd, memory)
        shard.population = shard.population._replace(members=shard.population.members._replace(replay_buffer=odd))
        before, world = jax.tree.map(np.asarray, (shard.population.members, shard.rollouts.world))
        assert len(set(np.asarray(before.own.pending_updates).tolist())) == N
        assert not any(
            same(member(before.replay_buffer, i), member(before.replay_buffer, j)) for i in range(N) for j in range(i)
        )
        parents = (3, 1, 1, 0)
        case.adopt(*parents)
        after = jax.tree.map(np.asarray, shard.population.members)
        for child, parent in enumerate(parents):
            assert same(member(after.replay_buffer, child), member(before.replay_buffer, parent if copied else child))
            assert same(member(after.learned, child), member(before.learned, parent))
        assert same(after.own, before.own)
        assert same(shard.rollouts.world._replace(progress=()), world._replace(progress=()))


@pytest.mark.usefixtures("compiled_when_called")
@pytest.mark.parametrize(
    ("agent", "replay", "shards"),
    others_slow(
        [("dqn", "keep", 2), *((name, "copy", n) for name in REPLAYING for n in (1, 2))],
        *[("dqn", "keep", 2), ("dqn", "copy", 2)],
    ),
)
def test_an_experiment_says_whose_replay_buffer_a_child_has(agent: str, replay: str, shards: int) -> None:
    """Of parents in its shard and in another; what travels is what all had before anybody changed, which is kept."""
    env = {"dqn": "gymnax:CartPole-v1"}.get(agent, "gymnax:Pendulum-v1")
    config = {
        "layers": [8],
        "num_envs": 2,
        "rollout_length": 8,
        "buffer_size": 16,
        "learning_starts": 16,
        "batch_size": 8,
    }
    run = build_run(tiny(env=env, agent=agent, config=config, replay=replay, shards=shards))
    _, hyper = run.evolver.init((0,), run.shard.uid)
    run.shard.begin(hyper)
    parts = getattr(run.shard, "_shards", [run.shard])  # private: no run needs the parts of a shard
    rng = np.random.default_rng(0)

    def drawn(x: jax.Array) -> jax.Array:
        return jax.device_put(rng.integers(0, 2 if x.dtype == bool else 100, x.shape).astype(x.dtype), x.sharding)

    def everybody() -> Any:
        members = [jax.tree.map(np.asarray, part.population.members) for part in parts]
        return jax.tree.map(lambda *x: np.concatenate(x), *members)

    for part in parts:
        learned, *rest = part.population.members
        members = type(part.population.members)(learned, *jax.tree.map(drawn, rest))
        part.population = part.population._replace(members=members)
    before, parents, of_each = everybody(), (3, 1, 1, 0), run.shard.learned()
    run.shard.apply(Decision(np.array(parents), hyper), {})
    after = everybody()
    assert all(same(of_each(row), member(before.learned, row)) for row in range(4)), "until they train on"
    for child, parent in enumerate(parents):
        assert same(member(after.learned, child), member(before.learned, parent))
        assert same(
            member(after.replay_buffer, child), member(before.replay_buffer, parent if replay == "copy" else child)
        )
    assert len(parts) == shards and same(after.own, before.own)


def test_a_child_writes_on_in_the_memory_that_it_has(pair):
    """After a copy, a child's next steps come from its own environments and lie where its memory was to go on."""
    for case in pair:
        shard = case.begin()
        case.adopt(1, 1, 2, 3)
        before = jax.tree.map(np.array, shard.population.members.replay_buffer)
        obs = np.asarray(shard.rollouts.world.obs)
        shard.train(1, iterations=1, chunk=1)
        after = jax.tree.map(np.asarray, shard.population.members.replay_buffer)
        rollout, slots = case.agent.rollout_length, before.steps.reward.shape[1]
        for i in range(N):
            (start,) = set(before.position[i].tolist())  # of all environments
            (first,) = after.steps.number[i, start][None]
            np.testing.assert_array_equal(after.obs[i, first, np.arange(len(first))], obs[i])
            old = np.delete(np.arange(slots), np.arange(start, start + rollout))
            kept = before.steps
            if case is pair[1] and i == 0:  # where the parent's steps end, its episodes do
                kept.truncated[i, start - 1] = True
            assert same(member(after.steps, (i, old)), member(kept, (i, old)))
        np.testing.assert_array_equal(after.position, (before.position + rollout) % slots)
        np.testing.assert_array_equal(after.filled, before.filled + rollout)


def test_a_copied_memory_is_learned_from(pair):
    """Two children of one parent that differ in nothing but their memory: what they learn tells whose it was."""
    ends = []
    for case in pair:
        shard = case.begin()
        case.adopt(1, 1, 2, 3)
        shard.train(1, iterations=1, chunk=1)
        ends.append(learned(shard))
    own, copied = ends
    assert not same(member(own, 0), member(copied, 0))
    assert same(member(own, np.array([1, 2, 3])), member(copied, np.array([1, 2, 3])))
    updates = own.updates
    assert (updates == updates[0]).all() and updates[0] > 0


@pytest.mark.usefixtures("compiled_when_called")
def test_sums_of_rewards_end_with_the_environments_that_gave_them() -> None:
    """As on the host, where a resumed run begins new episodes."""
    agent = make_agent("ppo", layers=())
    shard = gradient_trained(walk(), independent(agent), UID, 0, EvaluationConfig())
    shard.begin({k: np.asarray(v) for k, v in hyper_of("ppo", agent, N)._asdict().items()})
    members = shard.population.members
    shard.population = shard.population._replace(members=members._replace(own=members.own + 1))
    shard.rollouts.resumes_exactly = False
    shard.restore(shard.state(), 0)
    after = shard.population.members
    assert not np.asarray(after.own).any() and same(after.learned, members.learned)
    assert after.own.sharding == members.own.sharding


@pytest.mark.slow
@pytest.mark.parametrize("how", ["copied", "resumed"])
def test_no_transition_leads_to_the_steps_of_another_episode(how: str) -> None:
    """Neither from a parent's to its child's, nor over a break after which new episodes begin, as on the host: where
    transitions have several steps, the last ones before end there and bootstrap."""
    agent = make_agent("dqn", n_step=2)
    shard = gradient_trained(walk(), independent(agent), UID, 0, EvaluationConfig(), copies_replay=True)
    hyper = {k: np.asarray(v) for k, v in hyper_of("dqn", agent, N)._asdict().items()}
    shard.begin(hyper)
    shard.train(0, iterations=1, chunk=1)
    last = agent.rollout_length - 1  # the slot that was written last
    memory = jax.tree.map(lambda x: np.asarray(x)[1], shard.population.members.replay_buffer)
    steps, every = jax.tree.map(lambda x: x[last], memory.steps), np.arange(agent.num_envs)
    obs, next_obs = memory.obs[steps.number, every], memory.obs[steps.number + 1, every]
    if how == "copied":
        shard.apply(Decision(np.array([1, 1, 2, 3]), hyper), {})
    else:
        shard.rollouts.resumes_exactly = False
        shard.restore(shard.state(), 0)
    shard.train(1, iterations=1, chunk=1)
    row = 0 if how == "copied" else 1
    memory = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[row]), shard.population.members.replay_buffer)
    drawn = jax.tree.map(np.asarray, ring.sample(memory, jax.random.key(0), (500,), 2, jnp.float32(0.5)))
    going_on = 0
    for b in range(agent.num_envs):
        if not (steps.terminated[b] or steps.truncated[b]):
            these = (drawn.obs == obs[b]).all(-1)
            np.testing.assert_allclose(drawn.reward[these], steps.reward[b], rtol=1e-6)
            np.testing.assert_array_equal(drawn.bootstrap[these], 0.5)
            np.testing.assert_array_equal(drawn.next_obs[these], np.tile(next_obs[b], (these.sum(), 1)))
            going_on += 1
    assert going_on, "every episode ended with the rollout, so that nothing could lead on"
