"""Policy and critic of one member: a network in common, or one each; an LSTM after it; and hidden layers of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.keys import stream
from shoal.rl.initialisers import orthogonal
from shoal.rl.networks import MLP, Distribution, Policy, Precision, check_activation, make_network, scaled
from shoal.rl.normalize import normalise
from shoal.rl.steps import bounded

if TYPE_CHECKING:
    from shoal.core.types import Spec
    from shoal.rl.normalize import Statistics


@dataclass(frozen=True)
class Networks:
    """The structure of policy and critic, equal for all members."""

    network: Any = "mlp"
    """what comes before the hidden layers: mlp (nothing), minatar, nature_cnn or impala (convolutions over an image), or
    module:factory of your own"""
    shared: bool = True
    """policy and critic have that network, and the LSTM after it, in common; false: one each"""
    recurrent: int = 0
    """units of an LSTM between that network and the hidden layers, whose state lasts for an episode; 0: none"""
    layers: tuple[int, ...] = (64, 64)
    """widths of the hidden layers, of which policy and critic have their own"""
    activation: str = "tanh"
    """tanh, relu, elu, swish or gelu"""
    precision: Precision = "float32"
    """what layers compute in, up to the last one: float32, or bfloat16, which is faster on accelerators; weights, optimiser,
    losses and an LSTM stay in float32"""
    normalise_observations: bool = False
    """subtract the running mean of the observations, and divide by their running deviation"""


class ActorCritic:
    """The functions of policy and critic. Their parameters are a dict; what they remember from step to step, the carry, is
    for each network the LSTM's (c, h), [..., recurrent] each, and `()` where there is no LSTM.
    """

    def __init__(self, spec: Spec, config: Networks):
        """Raises BadInput where the fields do not fit."""
        if any(width < 1 for width in config.layers):
            raise BadField("config.layers", "every width must be at least 1", value=list(config.layers))
        if config.recurrent < 0:
            raise BadField("config.recurrent", "must be at least 0", value=config.recurrent)
        check_activation(config.activation)
        self.spec, self._config = spec, config
        self._network = make_network(config.network, spec, config.precision)
        self._cell = nn.OptimizedLSTMCell(config.recurrent, recurrent_kernel_init=orthogonal(1.0))
        self._policy = Policy(spec.action, config.layers, config.activation, precision=config.precision)
        self._critic = MLP(config.layers, 1, config.activation, precision=config.precision)

    def init(self, key: jax.Array) -> dict[str, Any]:
        """New parameters."""
        policy_key, critic_key = jax.random.split(key)
        keys = [key] if self._config.shared else [policy_key, critic_key]
        obs = jnp.zeros((1, *self.spec.obs_shape), self.spec.obs_dtype)
        params: dict[str, Any] = {"networks": [self._network.init(stream(k, "network"), obs) for k in keys]}
        x = self._network.apply(params["networks"][0], obs)
        if self._config.recurrent:
            carry = self.carry((1,))[0]
            params["recurrent"] = [self._cell.init(stream(k, "recurrent"), carry, x) for k in keys]
            x = carry[1]
        return params | {"policy": self._policy.init(policy_key, x), "critic": self._critic.init(critic_key, x)}

    def carry(self, shape: tuple[int, ...]) -> Any:
        """The carry [*shape, ...] at the start of episodes."""
        if not self._config.recurrent:
            return ()
        nothing = jnp.zeros((*shape, self._config.recurrent))
        return ((nothing, nothing),) * (1 if self._config.shared else 2)

    def step(
        self, params: Any, statistics: Statistics, obs: jax.Array, carry: Any
    ) -> tuple[Distribution, jax.Array, Any]:
        """For observations [..., *obs_shape] the distribution of the actions, the values [...], and the carry after them.

        statistics: of the observations. One that cannot be learned from is not remembered, nor what came before it.
        """
        features: Any = self._features(params, statistics, obs)
        if self._config.recurrent:
            told = [self._cell.apply(*x) for x in zip(params["recurrent"], carry, features, strict=True)]
            carry, features = zip(*told, strict=True)
            lasting = bounded(obs, obs.ndim - len(self.spec.obs_shape))
            carry = tree.where(lasting, carry, self.carry(lasting.shape))
        return *self._heads(params, features), carry

    def steps(
        self, params: Any, statistics: Statistics, obs: jax.Array, carry: Any, begins: Any
    ) -> tuple[Distribution, jax.Array]:
        """For observations [..., *obs_shape] the distributions of the actions, and the values [...].

        With an LSTM these are sequences, [B, T, *obs_shape]. carry [B, ...]: before their first step; it is that of an
        episode's start at steps where one `begins`, bool [B, T].
        """
        features = self._features(params, statistics, obs)
        if self._config.recurrent:
            features = [follow(*x, begins) for x in zip(params["recurrent"], carry, features, strict=True)]
        return self._heads(params, features)

    def _features(self, params: Any, statistics: Statistics, obs: jax.Array) -> list[jax.Array]:
        """What policy and critic see of observations, [..., F]: the same, or each its own."""
        if self._config.normalise_observations:
            obs = normalise(statistics, scaled(obs))
        return [self._network.apply(p, obs) for p in params["networks"]]

    def _heads(self, params: Any, features: Any) -> tuple[Distribution, jax.Array]:
        value = self._critic.apply(params["critic"], features[-1])[..., 0]
        return self._policy.apply(params["policy"], features[0]), value


def follow(params: Any, carry: tuple[jax.Array, jax.Array], x: jax.Array, begins: jax.Array) -> jax.Array:
    """The outputs of flax's `OptimizedLSTMCell` along sequences, [B, T, F] -> [B, T, units].

    carry, begins: as for `ActorCritic.steps`. Its inputs are multiplied at once: step by step, a gradient as large as their
    kernels would be added up T times.
    """
    cell = params["params"]

    def gates(name: str, part: str) -> jax.Array:
        return jnp.concatenate([cell[f"{name}{gate}"][part] for gate in "ifgo"], -1)

    x, again, bias = x @ gates("i", "kernel"), gates("h", "kernel"), gates("h", "bias")
    x = x + jnp.broadcast_to(bias, x.shape)

    def step(carry: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        x, begins = now
        c, h = tree.where(begins, jax.tree.map(jnp.zeros_like, carry), carry)
        i, f, g, o = jnp.split(x + h @ again, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (c, h), h

    return jax.lax.scan(step, carry, (x.swapaxes(0, 1), begins.T))[1].swapaxes(0, 1)
