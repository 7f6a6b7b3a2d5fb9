"""One little world, written as a device environment and as a gymnasium environment: both rollouts must tell the same story.

The reference is a loop in plain Python. The policy that acts in it has a memory, steps since its episode began, so that
a memory which is not cleared at an episode's end shows too. All numbers are multiples of 1/8: no rounding anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.probes import endless_reward
from support.shards import gradient_trained

from shoal.agents.policy import policy
from shoal.core.population import Decision
from shoal.core.spec import ActionSpace, Box, Discrete, MultiDiscrete, Spec
from shoal.core.types import Agent, Member, Rollout
from shoal.environments.device import DeviceEnvironment
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.gymnasium import gymnasium_environment
from shoal.members.acting import Policy
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.rl.independent import independent

# Most tests only train, or only evaluate.
pytestmark = pytest.mark.usefixtures("compiled_when_called")
N, T, B, E = 4, 11, 2, 3
SPACES: dict[str, ActionSpace] = {
    "discrete": Discrete(3),
    "multi_discrete": MultiDiscrete((3, 2)),
    "continuous": Box((0.0, -1.0), (4.0, 1.0)),
}


class Taste(NamedTuple):
    """What tells the members apart."""

    choice: Any = 0.0


# ------------------------------------------------------------------------------- the world, three times over
# An observation is the time t since the episode's beginning. The action gives a push: its number, the sum of its numbers,
# or the sum of its two components within their bounds. A reward is t / 4 + push. Beyond t = 2 a push above 1.5 terminates;
# t = 4 truncates.


def device_world(kind: str) -> DeviceEnvironment:
    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros(1), jnp.int32(0)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        push, t = action.astype(jnp.float32).sum(), state + 1
        return t.astype(jnp.float32)[None], t, t.astype(jnp.float32) / 4 + push, (t > 2) & (push > 1.5), t == 4

    return DeviceEnvironment(Spec((1,), "float32", SPACES[kind]), reset, step)


class HostWorld(gymnasium.Env):
    """It shows one array, and one info, which it changes in place."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def __init__(self, kind: str):
        self.action_space = {
            "discrete": gymnasium.spaces.Discrete(3, start=4),  # gymnasium's choices may begin anywhere
            "multi_discrete": gymnasium.spaces.MultiDiscrete([3, 2]),
            "continuous": gymnasium.spaces.Box(np.float32([0, -1]), np.float32([4, 1])),
        }[kind]
        self.offset = 4 if kind == "discrete" else 0
        self.shown, self.info = np.zeros(1, np.float32), {"result": {"twice": 0.0}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.total, self.info["result"]["twice"] = 0, 0.0, -1.0
        self.shown[:] = 0
        return self.shown, self.info

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        push, self.t = float(np.sum(action)) - self.offset, self.t + 1
        reward = self.t / 4 + push
        self.total += reward
        self.info["result"]["twice"], self.shown[:] = 2 * self.total, self.t
        return self.shown, reward, self.t > 2 and push > 1.5, self.t == 4, self.info


def choose(kind: str, obs: float, memory: float, choice: float) -> Any:
    """The policy, as the agent below has it."""
    if kind == "discrete":
        return int(obs + memory + choice) % 3
    if kind == "multi_discrete":
        return [int(obs + memory + choice) % 3, int(obs + choice) % 2]
    return [(memory - choice) / 2, obs / 4 - choice]


def push_of(kind: str, action: Any) -> float:
    if kind != "continuous":
        return float(np.sum(action))
    first, second = (min(max(x, -1.0), 1.0) for x in action)
    return (first * 2 + 2) + second


@dataclass
class Story:
    """What a member lives through in one environment, step by step."""

    kind: str
    choice: float
    t: int = 0
    total: float = 0.0
    length: int = 0
    steps: list[tuple] = field(default_factory=list)
    episodes: list[tuple[float, int]] = field(default_factory=list)

    def step(self) -> None:
        memory = self.t  # the policy counts its own steps: as many as the world's, when it is cleared as it should be
        action = choose(self.kind, self.t, memory, self.choice)
        push, obs = push_of(self.kind, action), self.t
        self.t += 1
        reward, terminated, truncated = self.t / 4 + push, self.t > 2 and push > 1.5, self.t == 4
        self.steps.append((obs, action, reward, self.t, terminated, truncated, memory))
        self.total, self.length = self.total + reward, self.length + 1
        if terminated or truncated:
            self.episodes.append((self.total, self.length))
            self.t, self.total, self.length = 0, 0.0, 0


traces = {"update": 0, "act": 0}


def callback(kind: str, valued: bool = False) -> Agent:
    """An agent that learns its last rollout by heart; it counts how often it is traced.

    valued: it wants values in place of the next observations.
    """
    space = SPACES[kind]
    dtype = jnp.float32 if kind == "continuous" else jnp.int32

    def policy(obs: jax.Array, memory: jax.Array, choice: Any) -> jax.Array:
        obs = obs[..., 0]
        if kind == "discrete":
            return (obs + memory + choice).astype(jnp.int32) % 3
        if kind == "multi_discrete":
            parts = (obs + memory + choice).astype(jnp.int32) % 3, (obs + choice).astype(jnp.int32) % 2
            return jnp.stack(parts, -1)
        return jnp.stack([(memory - choice) / 2, obs / 4 - choice], -1)

    def init(key: jax.Array, hyper: Taste) -> Member:
        def zeros(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
            return jnp.zeros((T, B, *shape), dtype)

        ends = [zeros(dtype=bool), zeros(dtype=bool)]
        after = ((), zeros()) if valued else (zeros(1), ())
        rollout = Rollout(zeros(1), zeros(*space.shape, dtype=dtype), zeros(), after[0], *ends, zeros(), after[1])
        rollout = rollout._replace(carry=jnp.zeros(B))
        return Member((hyper.choice, rollout), (), ())

    def act(learned: Any, hyper: Taste, obs: jax.Array, carry: jax.Array, key: jax.Array) -> Any:
        traces["act"] += 1
        return policy(obs, carry, hyper.choice), carry + 1, carry

    def act_deterministic(learned: Any, obs: jax.Array, carry: jax.Array) -> Any:
        return policy(obs, carry, learned[0]), carry + 1

    def update(member: Member, hyper: Taste, rollout: Rollout, key: jax.Array) -> Any:
        traces["update"] += 1
        return Member((hyper.choice, rollout), (), ()), {"reward": rollout.reward.sum()}

    def value(learned: Any, obs: jax.Array, carry: jax.Array) -> jax.Array:
        return learned[0] + obs[..., 0] + 16 * carry

    return Agent(init, act, act_deterministic, update, jnp.zeros, Taste(), T, B, value=value if valued else None)


# ------------------------------------------------------------------------------------------------ the tests


@pytest.fixture(params=["device", "host"])
def rollouts(request: pytest.FixtureRequest) -> Any:
    """Opens a shard in either rollouts."""
    opened = []

    def open_shard(kind: str, fitness: str, agent: Agent | None = None, **settings: Any) -> GradientTrainedShard:
        if request.param == "device":
            world: Any = device_world(kind)
        else:
            world = gymnasium_environment("shoal-test/World-v0", {"kind": kind})
        agent = agent or callback(kind)
        learner = independent(agent)
        shard = gradient_trained(world, learner, np.arange(N), 0, EvaluationConfig(fitness, **settings))
        shard.begin({"choice": np.arange(N, dtype=np.float32)} if agent.hyper else {})
        opened.append(shard)
        return shard

    gymnasium.register("shoal-test/World-v0", HostWorld)
    yield open_shard
    for shard in opened:
        shard.close()
    del gymnasium.registry["shoal-test/World-v0"]


@pytest.mark.parametrize("kind", SPACES)
def test_rollouts_and_episodes(rollouts, kind):
    """Two generations, the second of two iterations: the last rollout of each, and the episodes that ended in it."""
    shard = rollouts(kind, "training")
    stories = [Story(kind, float(i)) for i in range(N)]
    for generation, iterations in enumerate((1, 2)):
        metrics = shard.train(generation, iterations, chunk=1)
        shard.evaluate(generation)
        stats = shard.stats()
        _, rollout = jax.tree.map(np.asarray, shard.population.members.learned)
        for i, story in enumerate(stories):
            story.episodes.clear()
            for _ in range(iterations * T):
                story.step()
            names = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "extras")
            for name, expected in zip(names, zip(*story.steps[-T:], strict=True), strict=True):
                for b in range(B):
                    got = getattr(rollout, name)[i, :, b]
                    np.testing.assert_array_equal(got.reshape(np.shape(expected)), expected, err_msg=f"{i} {name}")
            np.testing.assert_array_equal(rollout.carry[i], [story.steps[-T][-1]] * B)
            returns, lengths = np.array(story.episodes).T
            rewards = [step[2] for step in story.steps[-iterations * T :]]
            assert metrics["reward"][i] == B * sum(rewards) / iterations
            assert stats.episodes[i] == B * len(returns)
            np.testing.assert_allclose(stats.fitness[i], returns.mean(), rtol=1e-6)
            np.testing.assert_allclose(metrics["episode/return"][i], returns.mean(), rtol=1e-6)
            np.testing.assert_allclose(metrics["episode/length"][i], lengths.mean(), rtol=1e-6)
            np.testing.assert_allclose(stats.std[i], np.tile(returns, B).std(ddof=1), rtol=1e-4, atol=1e-6)
    assert rollout.carry.any(), "no rollout begins amid an episode"
    ends = [step[4:6] for story in stories for step in story.steps]
    assert (True, False) in ends and (False, True) in ends
    np.testing.assert_array_equal(shard.stats().steps, [3 * T * B] * N)


@pytest.mark.parametrize("rollouts", ["device"], indirect=True)
def test_what_is_remembered_is_part_of_a_checkpoint(rollouts):
    """Amid episodes: the next rollout is the same from what was saved."""
    shard = rollouts("discrete", "training")
    shard.train(0, 1, 1)
    saved, told = jax.tree.map(np.array, shard.state()), []
    for _ in range(2):
        shard.train(1, 1, 1)
        told.append(jax.tree.map(np.asarray, shard.population.members.learned))
        shard.restore(saved, 0)
    assert told[0][1].carry.any()
    jax.tree.map(np.testing.assert_array_equal, *told)


def test_values_in_place_of_next_observations(rollouts):
    """Where an episode is truncated, and where it goes on after the rollout; of the observation before the reset, with
    what the policy remembers then."""
    shard = rollouts("discrete", "training", callback("discrete", valued=True))
    shard.train(0, 1, chunk=1)
    _, rollout = jax.tree.map(np.asarray, shard.population.members.learned)
    assert rollout.next_obs == ()
    told = []
    for i in range(N):
        story = Story("discrete", float(i))
        for t in range(T):
            story.step()
            _, _, _, after, terminated, truncated, _ = story.steps[-1]
            needed = not terminated and (truncated or t == T - 1)
            told.append((needed, truncated))
            np.testing.assert_array_equal(rollout.bootstrap_value[i, t], [(i + 17 * after) * needed] * B)
    assert len(set(told)) == 4, "a kind of end that never comes"


def test_later_generations_trace_nothing(rollouts):
    """Whatever their hyperparameters, iterations and copies."""
    shard = rollouts("discrete", "evaluation", episodes=E, deterministic=False)
    seen = {}
    for generation in range(3):
        shard.train(generation, 1 + generation, chunk=2)
        shard.evaluate(generation)
        seen = seen or dict(traces)
        choice = np.float32([generation, 0.5, 1, 2])
        shard.apply(Decision(np.array([generation, 1, 2, 0]), {"choice": choice}), {})
    assert traces == seen


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation(rollouts, deterministic):
    """Whole episodes from their beginning; each of them counted once."""
    shard = rollouts("continuous", "evaluation", episodes=E, deterministic=deterministic)
    shard.evaluate(0)
    stories = [Story("continuous", float(i)) for i in range(N)]
    for story in stories:
        while not story.episodes:
            story.step()
    np.testing.assert_array_equal(shard.stats().fitness, [story.episodes[0][0] for story in stories])
    np.testing.assert_array_equal(shard.stats().episodes, [E] * N)
    assert shard.evaluation_steps == E * sum(story.episodes[0][1] for story in stories)
    policies = [Policy(shard.snapshot(row)[0], {"choice": float(row)}) for row in (2, 0, 2, 1)]
    for some in (policies, policies[:1]):  # wherever in the shard one plays, it is with its own numbers
        returns, steps, _ = shard.test(some, (1, 2), 5, "")
        expected = [stories[int(policy.hyper["choice"])].episodes[0] for policy in some]
        np.testing.assert_array_equal(returns, [[value] * 5 for value, _ in expected])
        assert steps == 5 * sum(length for _, length in expected)


@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_a_copy_rests_once_its_episode_is_measured(rollouts, monkeypatch):
    """While others have longer ones."""
    alive, step = [], HostWorld.step

    def counted(world: HostWorld, action: Any) -> Any:
        alive.append(world)
        return step(world, action)

    monkeypatch.setattr(HostWorld, "step", counted)
    shard = rollouts("continuous", "evaluation", episodes=E)
    alive.clear()  # the environment's first step is checked before it is used
    shard.evaluate(0)
    assert len(alive) == shard.evaluation_steps
    assert {alive.count(world) for world in alive} == {3, 4}


@pytest.mark.parametrize("fitness", ["evaluation", "training"])
def test_a_member_that_has_diverged_harms_nobody(rollouts, fitness):
    """Its actions are no numbers; no environment gets to see them, and it has no fitness."""
    shard = rollouts("continuous", fitness, episodes=E)
    choice = np.float32([0, 1, np.nan, 3])
    shard.begin({"choice": choice})
    metrics = shard.train(0, 1, 1)
    shard.evaluate(0)
    np.testing.assert_array_equal(np.isnan(shard.stats().fitness), np.isnan(choice))
    assert not metrics["steps/broken"].any()


@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_an_environment_that_leaves_the_numbers_begins_anew(rollouts, monkeypatch):
    """Its episode has no return, and neither has its member in that generation; nobody else notices."""
    worlds, step = [], HostWorld.step
    monkeypatch.setattr(HostWorld, "step", lambda world, action: worlds.append(world) or step(world, action))
    shard = rollouts("discrete", "training")
    worlds.clear()  # the environment's first step is checked before it is used
    shard.train(0, 1, 1)
    worlds[2 * B].t = np.nan
    told = []
    for generation in (1, 2):
        metrics = shard.train(generation, 1, 1)
        shard.evaluate(generation)
        told.append((metrics["steps/broken"], shard.stats().fitness))
    np.testing.assert_allclose(told[0][0], [0, 0, 1 / (T * B), 0])
    np.testing.assert_array_equal(np.isnan(told[0][1]), [False, False, True, False])
    assert not told[1][0].any() and np.isfinite(told[1][1]).all()


@pytest.mark.parametrize("fitness", ["evaluation", "training"])
@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_fitness_is_the_objective(rollouts, fitness):
    """Of the episode that ended, not of the one that the same step began; the return is told as ever."""
    shard = rollouts("discrete", fitness, episodes=E, measures=("result.twice",))
    metrics = shard.train(0, 1, 1)
    shard.evaluate(0)
    stories = [Story("discrete", float(i)) for i in range(N)]
    for story in stories:
        for _ in range(T):
            story.step()
    returns = [np.mean([total for total, _ in story.episodes]) for story in stories]
    np.testing.assert_allclose(metrics["episode/return"], returns, rtol=1e-6)
    np.testing.assert_array_equal(shard.stats().fitness, [2 * story.episodes[0][0] for story in stories])


@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_a_step_on_the_host_makes_no_fresh_memory(rollouts):
    """It takes JAX longer than the policy takes to act."""
    agent, made = callback("discrete"), []

    def carry(batch: tuple[int, ...]) -> Any:
        made.append(batch)
        return agent.carry(batch)

    shard = rollouts("discrete", "training", agent._replace(carry=carry))
    assert made
    made.clear()
    shard.train(0, 1, 1)
    assert not made


@pytest.mark.parametrize("fitness", others_slow(["training", "evaluation"], "training"))
def test_an_lstm_remembers_an_episode_and_no_longer(rollouts, fitness):
    """Across rollouts of one step each, in training; from its beginning, in every evaluation."""
    agent = policy(Spec((1,), "float32", SPACES["continuous"]), layers=(), lstm_hidden_size=5)
    shapes = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper)
    loud = agent._replace(init=lambda key, _: jax.tree.map(lambda x: 6 * jax.random.normal(key, x.shape), shapes))
    shard = rollouts("continuous", fitness, loud, episodes=E)
    greedy = jax.jit(agent.act_deterministic)

    def episode(learned: Any) -> float:
        t, total, carry, done = 0, 0.0, agent.carry((1,)), False
        while not done:
            action, carry = greedy(learned, np.full((1, 1), t, np.float32), carry)
            push, t = push_of("continuous", np.asarray(action)[0]), t + 1
            total, done = total + t / 4 + push, (t > 2 and push > 1.5) or t == 4
        return total

    expected = [episode(shard.snapshot(i)[0]) for i in range(N)]
    assert np.std(expected) > 0.01
    for generation in range(2):
        shard.train(generation, 9, 4)
        shard.evaluate(generation)
        np.testing.assert_allclose(shard.stats().fitness, expected, rtol=1e-5)


def test_step_limit(rollouts):
    """An evaluation that is cut short counts what it has seen."""
    shard = rollouts("discrete", "evaluation", episodes=E, step_limit=2)
    shard.evaluate(0)
    stories = [Story("discrete", float(i)) for i in range(N)]
    for story in stories:
        story.step(), story.step()
    np.testing.assert_array_equal(shard.stats().fitness, [story.total for story in stories])


@pytest.mark.parametrize("second", [None, "result.twice"])
@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_what_breaks_ties_is_measured_in_the_same_episodes(rollouts, second):
    shard = rollouts("discrete", "evaluation", episodes=E, measures=("result.twice", second))
    shard.evaluate(0)
    stats = shard.stats()
    np.testing.assert_allclose(stats.tie_breaker, stats.fitness / (1 if second else 2), rtol=1e-6)


@pytest.mark.parametrize("rollouts", ["host"], indirect=True)
def test_what_is_cut_short_is_worth_the_objective_so_far(rollouts):
    """As on the device."""
    shard = rollouts("discrete", "evaluation", episodes=E, step_limit=2, measures=("result.twice",))
    shard.evaluate(0)
    stories = [Story("discrete", float(i)) for i in range(N)]
    for story in stories:
        story.step(), story.step()
    np.testing.assert_array_equal(shard.stats().fitness, [2 * story.total for story in stories])


def test_an_episode_under_a_copy_does_not_count(rollouts):
    """Member 0 copies member 1 amid an episode: that one is not judged, the next ones are."""
    shard = rollouts("discrete", "training")
    keeper, child = Story("discrete", 1.0), Story("discrete", 0.0)
    shard.train(0, 1, 1)
    shard.apply(Decision(np.array([1, 1, 2, 3]), {"choice": np.float32([1, 1, 2, 3])}), {})
    shard.train(1, 2, 1)
    shard.evaluate(1)
    for t in range(3 * T):
        if t == T:
            assert child.t, "an episode must be under way"
            child.choice = 1.0
            child.episodes.clear(), keeper.episodes.clear()
        child.step(), keeper.step()
    stats = shard.stats()
    np.testing.assert_array_equal(stats.episodes[:2], [B * (len(child.episodes) - 1), B * len(keeper.episodes)])
    expected = [np.mean([total for total, _ in episodes]) for episodes in (child.episodes[1:], keeper.episodes)]
    np.testing.assert_allclose(stats.fitness[:2], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("limit", "child", "keeper"),
    [
        (5, 1, 2),  # of the second generation's two episodes, the first began before the copy
        (T, 1, 1),  # the copy falls between two episodes: nothing to leave out
        (T + 1, 0, 1),  # nothing that ended had begun after the copy
    ],
)
def test_nobody_is_judged_by_its_predecessor(limit, child, keeper):
    """Episodes of so many steps, with a reward of 1 for each."""
    shard = gradient_trained(
        endless_reward(limit), independent(callback("discrete")), np.arange(2), 0, EvaluationConfig("training")
    )
    hyper = {"choice": np.zeros(2, np.float32)}
    shard.begin(hyper)
    shard.train(0, 1, 1)
    shard.apply(Decision(np.array([1, 1]), hyper), {})
    shard.train(1, 1, 1)
    shard.evaluate(1)
    np.testing.assert_array_equal(shard.stats().episodes, [B * child, B * keeper])
    np.testing.assert_array_equal(shard.stats().fitness, [limit if child else np.nan, limit])


@pytest.mark.parametrize("fresh", [True, False])
def test_every_episode_begins_anew(fresh):
    """Or, where a reset is dear, with a start that each environment draws once per rollout. Episodes of one step."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        return jax.random.uniform(key, (1,)), ()

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        return jnp.zeros(1), (), jnp.float32(0), jnp.bool(True), jnp.bool(False)

    world = DeviceEnvironment(Spec((1,), "float32", SPACES["discrete"]), reset, step, fresh)
    shard = gradient_trained(world, independent(callback("discrete")), np.arange(2), 0, EvaluationConfig("training"))
    shard.begin({"choice": np.zeros(2, np.float32)})
    seen = []
    for generation in range(2):
        shard.train(generation, 1, 1)
        seen.append(np.asarray(shard.population.members.learned[1].obs)[..., 0])
    starts = np.concatenate(seen, 1)  # [N, 2 T, B]
    if not fresh:  # the first of a rollout began in the one before
        assert (np.diff(starts[:, 1 : T + 1], axis=1) == 0).all()
        starts = starts[:, [0, T, T + 1]]
    assert len(np.unique(starts)) == starts.size
