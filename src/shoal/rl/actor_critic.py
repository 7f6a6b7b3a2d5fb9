"""Policy and critic of one member: a network in common, or one each; an LSTM after it; and hidden layers of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.errors import BadField, check_least
from shoal.core.keys import stream
from shoal.rl.initialisers import orthogonal
from shoal.rl.masks import ActionMask
from shoal.rl.networks import LOG_STD, MLP, Distribution, PolicyHead, check_hidden, make_network
from shoal.rl.observations import View
from shoal.rl.steps import is_bounded

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree
    from shoal.rl.config import NetworkConfig


class ActorCritic:
    """The functions of policy and critic, whose parameters are a dict.

    carry: the recurrent state from step to step, for each network the LSTM's (c, h), [..., lstm_hidden_size]
        each; `()` without an LSTM
    """

    def __init__(self, spec: Spec, config: NetworkConfig):
        """Raise BadInput where the fields do not fit."""
        check_hidden(config.layers, config.activation)
        check_least(0, config, "lstm_hidden_size", within="config.")
        if not LOG_STD[0] <= config.log_std_init <= LOG_STD[1]:
            problem = f"must be from {LOG_STD[0]:g} to {LOG_STD[1]:g}"
            raise BadField("config.log_std_init", problem, value=config.log_std_init)
        self.spec, self._config = spec, config
        actor = View(spec, "config.actor", config.actor, spec.actor)
        critic = View(spec, "config.critic", config.critic, spec.critic)
        self._mask = ActionMask(spec)
        self.observation_keys = actor.keys + self._mask.keys
        alike, nothing_to_share = actor.keys == critic.keys, config.network == "mlp" and not config.lstm_hidden_size
        if config.share_features_extractor and not (alike or nothing_to_share):
            problem = "policy and critic cannot have a network in common, as they see different observations"
            raise BadField(
                "config.share_features_extractor", problem, "write share_features_extractor: false", value=True
            )
        self._views = [actor] if config.share_features_extractor and alike else [actor, critic]
        self._networks = [make_network(config.network, view.spec, config.precision) for view in self._views]
        self._cell = nn.OptimizedLSTMCell(config.lstm_hidden_size, recurrent_kernel_init=orthogonal(1.0))
        head = {"log_std_init": config.log_std_init, "precision": config.precision}
        self._policy = PolicyHead(spec.action, config.layers, config.activation, **head)
        self._critic = MLP(config.layers, 1, config.activation, precision=config.precision)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """New parameters."""
        policy_key, critic_key = jax.random.split(key)
        keys = [key] if len(self._views) == 1 else [policy_key, critic_key]
        made = [
            network.init_with_output(stream(k, "network"), tree.zeros(view.spec.obs, 1))
            for k, network, view in zip(keys, self._networks, self._views, strict=True)
        ]
        seen, networks = zip(*made, strict=True)
        params: dict[str, Any] = {"networks": list(networks)}
        if self._config.lstm_hidden_size:
            carry = self.carry((1,))[0]
            cells = zip((stream(k, "recurrent") for k in keys), seen, strict=True)
            params["recurrent"] = [self._cell.init(k, carry, x) for k, x in cells]
            seen = (carry[1],)
        policy, critic = self._policy.init(policy_key, seen[0]), self._critic.init(critic_key, seen[-1])
        return params | {"policy": policy, "critic": critic}

    def carry(self, shape: tuple[int, ...]) -> Any:
        """The carry [*shape, ...] at the start of episodes."""
        if not self._config.lstm_hidden_size:
            return ()
        nothing = jnp.zeros((*shape, self._config.lstm_hidden_size))
        return ((nothing, nothing),) * len(self._views)

    def step(self, params: Any, statistics: PyTree, obs: PyTree, carry: Any) -> tuple[Distribution, jax.Array, Any]:
        """Return the distribution of actions, the values [...] and the new carry for observations [..., *].

        statistics: of the observations. One that cannot be learned from is not remembered, nor what came before it.
        """
        seen = [self._step(params, statistics, obs, carry, i) for i in range(len(self._views))]
        features, carry = zip(*seen, strict=True)
        return *self._heads(params, features, obs), carry if self._config.lstm_hidden_size else ()

    def act(self, params: Any, statistics: PyTree, obs: PyTree, carry: Any) -> tuple[Distribution, Any]:
        """Return distribution and carry, as `step` does. The critic's carry stays, and `obs` may lack keys that are not in
        `observation_keys`."""
        features, first = self._step(params, statistics, obs, carry, 0)
        return self._distribution(params, features, obs), (first, *carry[1:]) if self._config.lstm_hidden_size else ()

    def steps(
        self, params: Any, statistics: PyTree, obs: PyTree, carry: Any, is_first: Any
    ) -> tuple[Distribution, jax.Array]:
        """Return the distributions of actions and the values [...] for observations [..., *].

        With an LSTM these are sequences, [B, T, *]. carry [B, ...]: before their first step; it is that of an
        episode's start at steps where `is_first` is set, bool [B, T].
        """
        features = [self._features(params, statistics, obs, i) for i in range(len(self._views))]
        if self._config.lstm_hidden_size:
            features = [unroll_lstm(*x, is_first) for x in zip(params["recurrent"], carry, features, strict=True)]
        return self._heads(params, features, obs)

    def _step(self, params: Any, statistics: PyTree, obs: PyTree, carry: Any, i: int) -> tuple[jax.Array, Any]:
        """Return the features [..., F] of network i, after its LSTM if it has one, and the new carry."""
        features = self._features(params, statistics, obs, i)
        if not self._config.lstm_hidden_size:
            return features, ()
        own, features = self._cell.apply(params["recurrent"][i], carry[i], features)
        lasting = is_bounded(obs, features.ndim - 1)
        return features, tree.where(lasting, own, self.carry(lasting.shape)[i])

    def _features(self, params: Any, statistics: PyTree, obs: PyTree, i: int) -> jax.Array:
        """Return the features [..., F] of network i: the shared one, that of the policy, or that of the critic."""
        view = self._views[i]
        x = view.normalised(statistics, obs) if self._config.normalize_observations else view.look(obs)
        return self._networks[i].apply(params["networks"][i], x)

    def _heads(self, params: Any, features: Any, obs: PyTree) -> tuple[Distribution, jax.Array]:
        value = self._critic.apply(params["critic"], features[-1])[..., 0]
        return self._distribution(params, features[0], obs), value

    def _distribution(self, params: Any, features: jax.Array, obs: PyTree) -> Distribution:
        return self._policy.apply(params["policy"], features, partial(self._mask.apply, obs))


def unroll_lstm(params: Any, carry: tuple[jax.Array, jax.Array], x: jax.Array, is_first: jax.Array) -> jax.Array:
    """The outputs of flax's `OptimizedLSTMCell` along sequences, [B, T, F] -> [B, T, units].

    carry, is_first: as for `ActorCritic.steps`. All inputs are multiplied at once: step by step, a gradient as large as the
    kernels would be added up T times.
    """
    cell = params["params"]

    def gates(name: str, part: str) -> jax.Array:
        return jnp.concatenate([cell[f"{name}{gate}"][part] for gate in "ifgo"], -1)

    x, again, bias = x @ gates("i", "kernel"), gates("h", "kernel"), gates("h", "bias")
    x = x + jnp.broadcast_to(bias, x.shape)

    def step(carry: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        x, is_first = now
        c, h = tree.where(is_first, jax.tree.map(jnp.zeros_like, carry), carry)
        i, f, g, o = jnp.split(x + h @ again, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (c, h), h

    return jax.lax.scan(step, carry, (x.swapaxes(0, 1), is_first.T))[1].swapaxes(0, 1)
