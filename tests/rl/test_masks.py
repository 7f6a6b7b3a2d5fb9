"""Action masks: illegal choices are never made, in acting, log-probabilities, entropy, targets and export."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.messages import Said
from support.runs import tiny
from support.tiny import agent_for

from shoal.commands.export import export
from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, MultiDiscrete, Spec
from shoal.environments import registry
from shoal.environments.device import DeviceEnvironment, step_once
from shoal.environments.host import HostEnvironment
from shoal.rl.actor_critic import ActorCritic
from shoal.rl.config import NetworkConfig
from shoal.rl.masks import ActionMask
from shoal.rl.networks import categorical
from shoal.run.champion import load_champion
from shoal.run.train import train

SPACES = {"one": Discrete(4), "several": MultiDiscrete((3, 2))}
MASKS = {"one": [[1, 0, 1, 1], [0, 1, 0, 0]], "several": [[1, 0, 1, 0, 1], [0, 1, 0, 1, 1]]}
SB3_PROBABILITIES = [[0.1597319096326828, 0.0, 0.7158687114715576, 0.1243993267416954], [0.0, 1.0, 0.0, 0.0]]
SB3_LOG_PROBABILITIES, SB3_ENTROPIES = [-0.3342585265636444, 0.0], [0.7915551662445068, 0.0]
LEGAL = {
    "one": [{(0,), (2,), (3,)}, {(1,)}],
    "several": [{(0, 1), (2, 1)}, {(1, 0), (1, 1)}],
}


def spec_of(kind: str) -> Spec:
    width = len(MASKS[kind][0])
    return Spec({"observation": (2,), "action_mask": (width,)}, "float32", SPACES[kind])


def observed(kind: str) -> dict[str, jax.Array]:
    obs = np.random.default_rng(0).normal(size=(2, 2)).astype(np.float32)
    return {"observation": jnp.asarray(obs), "action_mask": jnp.asarray(MASKS[kind], jnp.float32)}


def chosen(action: Any) -> list[tuple[int, ...]]:
    return [tuple(np.atleast_1d(row).tolist()) for row in np.asarray(action)]


def by_hand(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Probabilities of a softmax over the legal choices alone."""
    legal = np.where(mask > 0, np.exp(logits - logits.max()), 0)
    return legal / legal.sum()


@pytest.mark.parametrize(
    ("name", "kind"), [("ppo", "one"), ("ppo", "several"), ("dqn", "one"), ("policy", "one"), ("policy", "several")]
)
def test_illegal_choices_are_never_made(name: str, kind: str) -> None:
    """Neither by sampling, nor at random at first, nor greedily; each legal one is."""
    agent = agent_for(spec_of(kind), name)
    assert agent.observation_keys == ("observation", "action_mask")
    obs = observed(kind)

    @jax.jit
    def choices(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        learned, carry = agent.init(jax.random.key(0), agent.hyper).learned, agent.carry((2,))
        sampled = jax.vmap(lambda key: agent.act(learned, agent.hyper, obs, carry, key)[0])(keys)
        return sampled, agent.act_deterministic(learned, obs, carry)[0]

    sampled, greedy = choices(jax.random.split(jax.random.key(0), 60))
    assert [set(row) for row in zip(*map(chosen, np.asarray(sampled)), strict=True)] == LEGAL[kind]
    assert all(action in legal for action, legal in zip(chosen(greedy), LEGAL[kind], strict=True))


@pytest.mark.parametrize("kind", SPACES)
def test_probabilities_are_those_of_the_legal_choices(kind: str) -> None:
    """Against a softmax by hand: log-probabilities and entropy, and no gradient to illegal logits."""
    networks, masked = ActorCritic(spec_of(kind), NetworkConfig(layers=(8,))), observed(kind)
    free = {**masked, "action_mask": np.ones(masked["action_mask"].shape, np.float32)}

    def told(params: Any, obs: Any) -> tuple[jax.Array, tuple[jax.Array, list[jax.Array]]]:
        distribution = networks.step(params, (), obs, ())[0]
        parts = [distribution] if kind == "one" else distribution.parts
        entropy = distribution.entropy()
        return entropy.sum(), (entropy, [part.logits for part in parts])

    @jax.jit
    def all_told() -> Any:
        params = networks.init(jax.random.key(1))
        (_, found), gradient = jax.value_and_grad(told, has_aux=True)(params, masked)
        return *found, told(params, free)[1][1], gradient

    entropy, logits, plain, gradient = all_told()
    sizes = [4] if kind == "one" else [3, 2]
    ends = np.cumsum(sizes)
    expected = np.zeros(2)
    for part, known, end, size in zip(logits, plain, ends, sizes, strict=True):
        for row in range(2):
            mask = np.array(MASKS[kind][row][end - size : end])
            p = by_hand(np.asarray(known[row]), mask)
            np.testing.assert_allclose(np.exp(part[row]), p, atol=1e-6)
            expected[row] -= sum(x * np.log(x) for x in p if x > 0)
    np.testing.assert_allclose(entropy, expected, atol=1e-6)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_the_distribution_is_that_of_sb3_contrib() -> None:
    """Figures of sb3-contrib 2.9.0's MaskableCategorical: probabilities, log-probabilities of two actions, entropies."""
    logits = jnp.array([[0.5, -1.0, 2.0, 0.25], [1.5, 0.0, -0.5, 3.0]])
    obs = {"action_mask": jnp.array([[1.0, 0, 1, 1], [0, 1.0, 0, 0]])}
    found = categorical(ActionMask(spec_of("one")).apply(obs, logits))
    np.testing.assert_allclose(np.exp(found.logits), SB3_PROBABILITIES, atol=1e-6)
    np.testing.assert_allclose(found.log_prob(jnp.array([2, 1])), SB3_LOG_PROBABILITIES, atol=1e-6)
    np.testing.assert_allclose(found.entropy(), SB3_ENTROPIES, atol=1e-6)


def test_a_mask_of_another_shape_is_refused(said: Said) -> None:
    with pytest.raises(BadInput) as error:
        agent_for(Spec({"observation": (2,), "action_mask": (3,)}, "float32", Discrete(4)), "ppo")
    said(error.value)


def corridor(stuck: bool = False) -> DeviceEnvironment:
    """Choice 1 alone is legal in step 0 and earns 1; after it, choice 2 alone, or nothing."""

    def obs_of(step: jax.Array) -> dict[str, jax.Array]:
        mask = jnp.where(step == 0, jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 0.0 if stuck else 1.0]))
        return {"observation": step[None].astype(jnp.float32), "action_mask": mask}

    def reset(key: jax.Array) -> tuple[Any, jax.Array]:
        return obs_of(jnp.int32(0)), jnp.int32(0)

    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, ...]:
        right = jnp.where(state == 0, action == 1, action == 2)
        state = state + 1
        return obs_of(state), state, right.astype(jnp.float32), state >= 2, jnp.bool_(False)

    spec = Spec({"observation": (1,), "action_mask": (3,)}, "float32", Discrete(3))
    return DeviceEnvironment(spec, reset, step)


def test_where_nothing_is_legal_the_episode_is_broken() -> None:
    for stuck in (False, True):
        environment = corridor(stuck)
        _, state = environment.reset(jax.random.key(0))
        *_, reward, terminated, truncated = step_once(environment, jax.random.key(0), state, jnp.int32(1))
        assert (bool(np.isnan(reward)), bool(terminated), bool(truncated)) == (stuck, False, stuck)


@pytest.mark.parametrize("masked", [True, False])
def test_on_the_host_actions_without_choices_have_no_mask(masked: bool) -> None:
    """What continuous actions observe by the name of a mask is an observation as any other."""

    class Stuck(Masked):
        observation_space = gymnasium.spaces.Dict({"action_mask": gymnasium.spaces.Box(0, 1, (3,), np.float32)})
        action_space = gymnasium.spaces.Discrete(3) if masked else gymnasium.spaces.Box(-1, 1, (1,))

        def _seen(self) -> tuple[Any, dict[str, Any]]:
            return {"action_mask": np.zeros(3, np.float32)}, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self._seen()[0], 1.0, False, False, {}

    environment = registry.made_by(Stuck, Stuck(), "env", {})
    assert isinstance(environment, HostEnvironment) and environment.spec.masked == masked
    with closing(environment.open(1)) as vector:
        vector.reset([0])
        (_, reward, terminated, truncated, _), _ = vector.step(np.zeros(1 if masked else (1, 1), np.float32))
    assert (np.isnan(reward[0]), terminated[0], truncated[0]) == (masked, False, masked)


class Masked(gymnasium.Env):
    """The same on the host, whose info has the mask. An illegal choice is an error."""

    observation_space = gymnasium.spaces.Box(0, 2, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen()

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        mask = np.zeros(3, np.int8)
        mask[1 + self.steps % 2] = 1
        return np.array([self.steps], np.float32), {"action_mask": mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == 1 + self.steps % 2, "an illegal choice"
        self.steps += 1
        obs, info = self._seen()
        return obs, 1.0, self.steps == 2, False, info


@pytest.mark.parametrize("last", [{}, {"action_mask": None}])
def test_an_info_without_a_mask_after_the_last_step(last: dict[str, Any]) -> None:
    """Nobody acts there, so that all is legal."""

    class MasklessEnd(Masked):
        def _seen(self) -> tuple[Any, dict[str, Any]]:
            obs, info = super()._seen()
            return obs, last if self.steps == 2 else info

    environment = registry.made_by(MasklessEnd, MasklessEnd(), "env", {})
    assert isinstance(environment, HostEnvironment)
    with closing(environment.open(1)) as vector:
        vector.reset([0])
        vector.step(np.array([1], np.int32))
        (obs, reward, terminated, truncated, final), _ = vector.step(np.array([2], np.int32))
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([1], [True], [False])
    assert (final["action_mask"].tolist(), obs["action_mask"].tolist()) == ([[1, 1, 1]], [[0, 1, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_masks_of_an_info_in_a_run(agent: str, tmp_path: Path) -> None:
    """Members that make no illegal choice have the highest return there is, from the first generation on."""
    config = {"ppo": {"num_minibatches": 1}, "dqn": {"batch_size": 8, "learning_starts": 8, "buffer_size": 64}}[agent]
    settings = {"config": {"layers": [], "rollout_length": 8, "num_envs": 2} | config, "method": "independent"}
    result = train(tiny(tmp_path / "run", env=Masked, agent=agent, generations=1, population=1, **settings))
    assert result.champion.fitness == 2
    champion = load_champion(tmp_path / "run", trust_code=True)
    assert (
        champion.predict({"observation": np.zeros(1, np.float32), "action_mask": np.array([0, 0, 1], np.uint8)})[0] == 2
    )


@pytest.mark.slow
def test_an_exported_policy_makes_legal_choices_alone(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    train(tiny(tmp_path / "run", env=Masked, generations=1, population=2))
    export(tmp_path / "run", str(tmp_path / "policy.onnx"), trust_code=True)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    for legal in range(3):
        mask = np.eye(3, dtype=np.uint8)[[legal] * 5]
        observation = np.random.default_rng(legal).normal(size=(5, 1)).astype(np.float32)
        (action,) = session.run(["action"], {"obs.observation": observation, "obs.action_mask": mask})
        assert action.tolist() == [legal] * 5


def test_jumanji_has_masks() -> None:
    pytest.importorskip("jumanji")
    environment = registry.make("jumanji:Maze-v0", {})
    assert isinstance(environment, DeviceEnvironment)
    assert environment.spec.masked and environment.spec.obs_shape["action_mask"] == (4,)
