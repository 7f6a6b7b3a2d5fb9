"""A policy without an update of its own: a method that perturbs weights, such as `es`, trains it.

x, carry = network(normalised obs, carry)            the carry is the state of an LSTM, where there is one
action = tanh(x)                                     continuous
action ~ softmax(x), deterministic: argmax(x)        discrete, multi-discrete
update: nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from shoal.agents.registry import PolicyConfig, PolicyHyper
from shoal.core import tree
from shoal.core.errors import check_least
from shoal.core.schema import build
from shoal.core.spec import ActionSpace, Box
from shoal.core.types import Agent, Member, Metrics, Rollout
from shoal.rl import batching
from shoal.rl.initialisers import orthogonal
from shoal.rl.masks import ActionMask
from shoal.rl.networks import check_hidden, choice, hidden, make_network, outputs
from shoal.rl.observations import View, empty_statistics

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree


class PolicyLearned(NamedTuple):
    """The part of a policy that a child copies. The method that trains it also updates `observations`."""

    params: Any
    observations: Any  # Statistics of each array; empty where nothing is normalised


class Network(nn.Module):
    """Features, hidden layers, an LSTM, and an output: obs [B, *shape], carry -> [B, outputs], carry.

    The carry is the LSTM's (c, h), each [B, lstm_hidden_size]; `()` where there is none.
    """

    features: nn.Module
    space: ActionSpace
    config: PolicyConfig

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Any) -> tuple[jax.Array, Any]:
        config = self.config
        x = hidden(self.features(obs), config.layers, config.activation, config.precision)
        if config.lstm_hidden_size:
            carry, x = nn.OptimizedLSTMCell(config.lstm_hidden_size, recurrent_kernel_init=orthogonal(1.0))(carry, x)
        return nn.Dense(outputs(self.space), kernel_init=orthogonal(0.01))(x), carry


def policy(spec: Spec, **settings: Any) -> Agent:
    """A policy for discrete, multi-discrete and continuous actions; `settings` are the fields of `PolicyConfig`.

    Choices are sampled while acting, unless deterministic; continuous actions are the same either way. Raises BadInput where
    the settings do not fit.
    """
    config = build(PolicyConfig, settings, "config.")
    check_hidden(config.layers, config.activation)
    check_least(0, config, "lstm_hidden_size", within="config.")
    view, mask = View(spec, "config.actor", config.actor, spec.actor), ActionMask(spec)
    network = Network(make_network(config.network, view.spec, config.precision), spec.action, config)

    def carry(shape: tuple[int, ...]) -> Any:
        return (jnp.zeros((*shape, config.lstm_hidden_size)),) * 2 if config.lstm_hidden_size else ()

    def init(key: jax.Array, hyper: PolicyHyper) -> Member:
        params = network.init(key, tree.zeros(view.spec.obs, 1), carry((1,)))
        return Member(PolicyLearned(params, empty_statistics(spec) if config.normalize_observations else ()), (), ())

    def forward(carry: Any, learned: PolicyLearned, obs: PyTree) -> tuple[Any, jax.Array]:
        x = view.normalised(learned.observations, obs) if config.normalize_observations else view.look(obs)
        x, carry = network.apply(learned.params, x, carry)
        return carry, mask.apply(obs, x)

    if config.network != "mlp":  # on a CPU convolutions of many members are slow as one batch
        forward = batching.per_member(forward)

    def act(
        learned: PolicyLearned, hyper: PolicyHyper, obs: PyTree, carry: Any, key: jax.Array
    ) -> tuple[Any, Any, Any]:
        if isinstance(spec.action, Box):
            return *act_deterministic(learned, obs, carry), ()
        carry, x = forward(carry, learned, obs)
        return choice(spec.action, x).sample(key), carry, ()

    def act_deterministic(learned: PolicyLearned, obs: PyTree, carry: Any) -> tuple[jax.Array, Any]:
        carry, x = forward(carry, learned, obs)
        return (jnp.tanh(x) if isinstance(spec.action, Box) else choice(spec.action, x).mode()), carry

    def update(member: Member, hyper: PolicyHyper, rollout: Rollout, key: jax.Array) -> tuple[Member, Metrics]:
        return member, {}

    keys = view.keys + mask.keys
    return Agent(
        init, act, act_deterministic, update, carry, PolicyHyper(), rollout_length=1, num_envs=1, observation_keys=keys
    )
