"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), clipped objective, for one member.

One update learns from a rollout of T steps in B environments, with the policy pi and the critic V:

    δ[t] = r[t] + γ V(s[t+1]) - V(s[t])                                equation 12
    A[t] = δ[t] + γ λ A[t+1]                                           equation 11
    pi_old, V_old = pi, V
    repeat `epochs` times, for each of `num_minibatches` random parts of the T x B steps:
        ratio = pi(a|s) / pi_old(a|s)
        L_clip = mean of min(ratio A, clip(ratio, 1 - ε, 1 + ε) A)     equation 7
        L_value = mean of (V(s) - (V_old(s) + A))² / 2
        ascend L_clip - c1 L_value + c2 entropy(pi)                    equation 9, by Adam

Where an episode ends, A[t+1] counts as 0; where it terminates, V(s[t+1]) does too. With `clip_value_loss`, L_value is the
larger of itself and that of V(s) clipped to V_old(s) ± ε.

With `lstm_hidden_size`, pi and V also depend on the state of an LSTM. The parts are then whole environments, each a sequence
of T steps, which begins with the state at the beginning of the rollout. Gradients go back to there.

Where two players take turns, one member plays both: s[t+1] is then the next observation of the same player, and A[t+1] its
advantage. A move whose log-probability is NaN was made by another policy, and is not learned from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from shoal.agents.registry import PpoConfig, PpoHyper
from shoal.core import tree
from shoal.core.errors import BadField, check_least
from shoal.core.keys import order
from shoal.core.schema import build
from shoal.core.spec import PLAYER
from shoal.core.types import Agent, Member, Metrics, Rollout
from shoal.rl.actor_critic import ActorCritic
from shoal.rl.advantages import advantages_in_turns, generalised_advantages, next_values
from shoal.rl.auxiliary_loss import make_auxiliary_loss
from shoal.rl.batching import in_parts, per_member
from shoal.rl.frames import of_rollout, stack, stacked, stacking
from shoal.rl.networks import Categorical
from shoal.rl.normalize import Statistics, empty, running_returns, update_statistics
from shoal.rl.observations import empty_statistics, update_all_statistics
from shoal.rl.steps import is_bounded, mask_steps, valid_steps

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree


IMAGES_AT_ONCE = 16  # of a minibatch, on a CPU


class PpoLearned(NamedTuple):
    """The part of a PPO agent that a child copies."""

    params: Any
    optimizer: Any
    observations: PyTree  # Statistics of each array
    returns: Statistics


class Acted(NamedTuple):
    """Extras of acting that the update needs, float32 [..., B] each."""

    log_prob: jax.Array
    value: jax.Array


class Minibatch(NamedTuple):
    """Steps as the loss sees them; every leaf is [batch, ...], or [batch, T, ...] where they are sequences."""

    obs: PyTree  # or the places of frames, [..., K], until a minibatch is taken
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    target: jax.Array  # of the new value
    advantage: jax.Array  # in a minibatch normalised, where that is wanted
    weight: jax.Array  # 0 for steps that are not learned from; those of a minibatch sum up to 1
    carry: Any = ()  # of sequences: the recurrent state before their first step, [batch, ...]
    is_first: Any = ()  # of sequences: the first steps of episodes


def ppo(spec: Spec, **settings: Any) -> Agent:
    """PPO for all action spaces; `settings` are the fields of `PpoConfig`. Raises BadInput where they do not fit."""
    config = build(PpoConfig, settings, "config.")
    check_least(1, config, "num_envs", "rollout_length", "num_minibatches", within="config.")
    networks = ActorCritic(stacked(spec, config.frame_stack), config)
    if spec.turns and config.lstm_hidden_size:
        problem = "is of no use in games, where an observation has all that a player knows"
        raise BadField("config.lstm_hidden_size", problem, "leave it out", value=config.lstm_hidden_size)
    auxiliary_loss = make_auxiliary_loss(config.auxiliary_loss)
    steps = config.rollout_length * config.num_envs
    rows = config.num_envs if config.lstm_hidden_size else steps  # which minibatches divide among them
    if rows % config.num_minibatches:
        what = f"steps of a rollout (config.rollout_length {config.rollout_length} x config.num_envs {config.num_envs})"
        what = (
            "environments, each of which stays whole with config.lstm_hidden_size" if config.lstm_hidden_size else what
        )
        raise BadField("config.num_minibatches", f"does not divide the {rows} {what}", value=config.num_minibatches)
    if config.normalize_advantages and steps == config.num_minibatches:
        problem = "a minibatch of one step has no advantage over its own mean, so that nothing is learned"
        advice = "take fewer, or config.normalize_advantages: false"
        raise BadField("config.num_minibatches", problem, advice, value=config.num_minibatches)

    def optimizer(hyper: PpoHyper) -> optax.GradientTransformation:
        # Built from the hyperparameters at every use, so that a new learning rate takes effect at once.
        clip = optax.clip_by_global_norm(hyper.max_gradient_norm)
        return optax.chain(clip, optax.adam(hyper.learning_rate, eps=1e-5))

    def init(key: jax.Array, hyper: PpoHyper) -> Member:
        params = networks.init(key)
        learned = PpoLearned(params, optimizer(hyper).init(params), empty_statistics(networks.spec), returns=empty(()))
        return Member(learned, replay_buffer=(), own=jnp.zeros(config.num_envs))

    def looked(frames: Any, obs: PyTree) -> PyTree:
        """Return the observations of a batch, which holds their places where frames are stacked."""
        return stack(frames[obs], spec.obs_shape) if config.frame_stack > 1 else obs

    def act(learned: PpoLearned, hyper: PpoHyper, obs: PyTree, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        distribution, value, carry = networks.step(learned.params, learned.observations, obs, carry)
        action = distribution.sample(key)
        return action, carry, Acted(distribution.log_prob(action), value)

    def act_deterministic(learned: PpoLearned, obs: PyTree, carry: Any) -> tuple[jax.Array, Any]:
        distribution, carry = networks.act(learned.params, learned.observations, obs, carry)
        return distribution.mode(), carry

    def value(learned: PpoLearned, obs: PyTree, carry: Any) -> jax.Array:
        """Values of observations; NaN for those that cannot be learned from."""
        _, values, _ = networks.step(learned.params, learned.observations, obs, carry)
        values = values * (1 - 2 * obs[PLAYER]) if spec.turns else values
        return jnp.where(is_bounded(obs, 1), values, jnp.nan)

    def probabilities(learned: PpoLearned, obs: PyTree) -> jax.Array:
        distribution, _ = networks.act(learned.params, learned.observations, obs, ())
        assert isinstance(distribution, Categorical)
        return jnp.exp(distribution.logits)

    def weighed(part: Minibatch) -> Minibatch:
        """Scale the weights of a minibatch, so that weighted sums are means over its steps."""
        weight = part.weight / jnp.maximum(part.weight.sum(), 1.0)
        advantage = part.advantage
        if config.normalize_advantages:
            advantage = advantage - (advantage * weight).sum()
            advantage = advantage / (jnp.sqrt((jnp.square(advantage) * weight).sum()) + 1e-8)
        return part._replace(weight=weight, advantage=advantage)

    def loss(params: Any, statistics: PyTree, hyper: PpoHyper, batch: Minibatch) -> tuple[jax.Array, Metrics]:
        def mean(x: jax.Array) -> jax.Array:
            return (x * batch.weight).sum()

        distribution, value = networks.steps(params, statistics, batch.obs, batch.carry, batch.is_first)
        log_ratio = distribution.log_prob(batch.action) - batch.log_prob
        ratio, advantage = jnp.exp(log_ratio), batch.advantage
        clipped = jnp.clip(ratio, 1 - hyper.clip_range, 1 + hyper.clip_range)
        policy_loss = -mean(jnp.minimum(ratio * advantage, clipped * advantage))  # equation 7

        error = jnp.square(value - batch.target)
        if config.clip_value_loss:
            near = batch.value + jnp.clip(value - batch.value, -hyper.clip_range, hyper.clip_range)
            error = jnp.maximum(error, jnp.square(near - batch.target))
        value_loss = 0.5 * mean(error)
        entropy = mean(distribution.entropy())
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            "policy/approx_kl": mean(ratio - 1 - log_ratio),  # the low-variance estimator of KL(old, new)
            "policy/clip_fraction": mean((jnp.abs(ratio - 1) > hyper.clip_range).astype(jnp.float32)),
        }
        total = policy_loss + hyper.value_coefficient * value_loss - hyper.entropy_coefficient * entropy
        if auxiliary_loss is not None:
            metrics["loss/auxiliary"] = mean(auxiliary_loss(batch, distribution, value))
            total += metrics["loss/auxiliary"]
        return total, metrics

    @per_member
    def improve(learned: Any, hyper: PpoHyper, batch: Minibatch, frames: Any, key: Any) -> tuple[PpoLearned, Metrics]:
        """Make `hyper.epochs` passes over the batch of all steps, in minibatches. No member waits for longer ones."""
        tx = optimizer(hyper)

        def gradient(params: Any, part: Minibatch) -> tuple[Any, Metrics]:
            # The statistics that the policy acted with: the ratio of an unchanged policy is then exactly one.
            return jax.grad(loss, has_aux=True)(params, learned.observations, hyper, part)

        if config.network != "mlp":
            gradient = in_parts(gradient, max(IMAGES_AT_ONCE * rows // steps, 1))

        def minibatch(carry: tuple[Any, Any], part: jax.Array) -> tuple[tuple[Any, Any], Metrics]:
            params, state = carry
            steps = tree.take(batch, part)
            gradients, metrics = gradient(params, weighed(steps._replace(obs=looked(frames, steps.obs))))
            updates, state = tx.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), metrics

        def epoch(i: jax.Array, carry: tuple[Any, Any, dict]) -> tuple[Any, Any, dict]:
            params, state, _ = carry
            parts = order(jax.random.fold_in(key, i), rows).reshape(config.num_minibatches, -1)
            (params, state), metrics = jax.lax.scan(minibatch, (params, state), parts)
            return params, state, jax.tree.map(lambda x: x.mean(0), metrics)

        whole = batch._replace(obs=jax.eval_shape(looked, frames, batch.obs))
        nothing = tree.zeros(jax.eval_shape(loss, learned.params, learned.observations, hyper, whole)[1])
        epochs = jnp.round(hyper.epochs).astype(jnp.int32)
        params, state, metrics = jax.lax.fori_loop(0, epochs, epoch, (learned.params, learned.optimizer, nothing))
        return learned._replace(params=params, optimizer=state), metrics

    def learn(member: Member, hyper: PpoHyper, rollout: Rollout, key: jax.Array) -> tuple[Member, Metrics]:
        learned, sums, acted = member.learned, member.own, rollout.extras
        ends = rollout.terminated | rollout.truncated | ~is_bounded(rollout.obs, 2)
        is_first = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
        known = jnp.where(is_bounded(rollout.obs, 2), acted.value, jnp.nan)
        next_value = next_values(known, rollout.bootstrap_value, rollout.terminated, rollout.truncated)
        of_another = jnp.isnan(acted.log_prob) if spec.turns else jnp.zeros_like(ends)
        rollout = rollout._replace(extras=acted._replace(log_prob=jnp.where(of_another, 0.0, acted.log_prob)))
        kept = valid_steps(rollout._replace(bootstrap_value=next_value))
        rollout, next_value = mask_steps(rollout, ~kept), jnp.where(kept, next_value, 0.0)
        terminated, truncated = rollout.terminated.astype(jnp.float32), rollout.truncated.astype(jnp.float32)
        reward, returns = rollout.reward, learned.returns
        if config.normalize_rewards:
            sums, returned = running_returns(sums, reward, jnp.maximum(terminated, truncated), hyper.discount)
            returns = update_statistics(returns, returned, kept)
            reward = jnp.clip(reward * jax.lax.rsqrt(returns.variance + 1e-8), -10, 10)

        # Steps that are left out have an advantage of 0, and add nothing to those before them.
        value = rollout.extras.value
        rates = hyper.discount, hyper.gae_lambda
        if spec.turns:
            ended = jnp.maximum(terminated, truncated)
            advantage = advantages_in_turns(reward, value, next_value[-1], ended, rollout.obs[PLAYER], *rates)
        else:
            advantage = generalised_advantages(reward, value, next_value, terminated, truncated, *rates)
        obs, carry, frames = rollout.obs, rollout.carry, None
        if config.frame_stack > 1:
            obs, carry, frames = of_rollout(carry, obs, is_first)
        batch = Minibatch(
            obs=obs,
            action=rollout.action,
            log_prob=rollout.extras.log_prob,
            value=value,
            target=value + advantage,
            advantage=advantage,
            weight=(kept & ~of_another).astype(jnp.float32),
        )
        if config.lstm_hidden_size:
            batch = jax.tree.map(lambda x: x.swapaxes(0, 1), batch._replace(is_first=is_first))._replace(carry=carry)
        else:
            batch = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), batch)
        learned, metrics = improve(learned, hyper, batch, frames, key)

        residual = 1 - jnp.var(advantage) / (jnp.var(advantage + value) + 1e-8)
        metrics |= {"value/explained_variance": jnp.maximum(residual, -1.0)}
        observations = learned.observations
        if config.normalize_observations:
            observations = update_all_statistics(observations, looked(frames, obs), kept)
        learned = learned._replace(observations=observations, returns=returns)
        return Member(learned, (), sums), metrics

    agent = Agent(
        init, act, act_deterministic, learn, networks.carry, PpoHyper(), config.rollout_length, config.num_envs
    )
    agent = agent._replace(
        value=value,
        end_episodes=lambda member: member._replace(own=jnp.zeros_like(member.own)),
        observation_keys=networks.observation_keys,
        probabilities=probabilities,
    )
    return stacking(agent, spec, config.frame_stack)
