"""Networks (flax.linen), and the distributions over actions that their outputs define."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from shoal.core.errors import BadField, type_in_words, unknown
from shoal.core.spec import Box, Discrete, MultiDiscrete
from shoal.core.user_code import call_own, import_from
from shoal.rl.images import Impala, MinAtar, NatureCNN
from shoal.rl.initialisers import orthogonal

if TYPE_CHECKING:
    from shoal.core.spec import ActionSpace, Spec
    from shoal.rl.config import Precision

ACTIVATIONS: dict[str, Callable] = {"tanh": nn.tanh, "relu": nn.relu, "elu": nn.elu, "swish": nn.swish, "gelu": nn.gelu}


class MLP(nn.Module):
    """Dense layers with orthogonal weights: [..., I] -> float32 [..., outputs].

    precision: of the hidden layers. The last one is always computed in float32: bfloat16 would round a value of 300 to
    the nearest even number, and differences between values are what is learned from.
    """

    layers: tuple[int, ...]
    outputs: int
    activation: str = "tanh"
    output_scale: float = 1.0
    precision: Precision = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = hidden(x, self.layers, self.activation, self.precision)
        return nn.Dense(self.outputs, kernel_init=orthogonal(self.output_scale))(x)


def hidden(x: jax.Array, layers: tuple[int, ...], activation: str, precision: Precision) -> jax.Array:
    """The hidden layers of the module that calls this, computed in `precision`: [..., I] -> float32 [..., layers[-1]]."""
    for width in layers:
        x = ACTIVATIONS[activation](nn.Dense(width, dtype=precision, kernel_init=orthogonal(2**0.5))(x))
    return x.astype(jnp.float32)


def flatten(obs: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Observations [..., *shape] as float32 vectors [..., F], `scaled`."""
    return scaled(obs).reshape(*obs.shape[: obs.ndim - len(shape)], -1)


def scaled(obs: jax.Array) -> jax.Array:
    """Observations as float32; those of uint8, which are images, divided by 255."""
    return obs.astype(jnp.float32) / 255 if obs.dtype == jnp.uint8 else obs.astype(jnp.float32)


class Features(nn.Module):
    """The input of a network's hidden layers, from observations: [..., *shape] -> float32 [..., F].

    kind: `mlp` (the numbers as they are), or the name of a network in `IMAGES`, computed in `precision`.
    """

    shape: tuple[int, ...]
    kind: str = "mlp"
    precision: Precision = "float32"

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        if self.kind == "mlp":
            return flatten(obs, self.shape)
        x = scaled(obs)
        x = jnp.moveaxis(x, -3, -1) if channels_first(self.shape) else x
        return IMAGES[self.kind](self.precision)(x).astype(jnp.float32)


def channels_first(shape: tuple[int, ...]) -> bool:
    """True where the channels of an image [*shape], of three axes, are its first axis instead of its last one.

    Sides that are equal are those of a square image. Where none are, the shorter one of first and last axis counts channels.
    """
    first, middle, last = shape
    return first != middle and (middle == last or first < last)


IMAGES: dict[str, Any] = {"minatar": MinAtar, "nature_cnn": NatureCNN, "impala": Impala}
NETWORKS = ("mlp", *IMAGES)


def make_network(network: Any, spec: Spec, precision: Precision = "float32") -> nn.Module:
    """Make the network before the hidden layers: observations [..., *shape] -> [..., F]. Raises BadInput.

    network: a name in NETWORKS, module:factory, or the factory: it takes the spec and returns such a flax module, which
    computes in what it likes; or a mapping of its `name` and what else it takes. precision: of the others.
    """
    shape, options = spec.obs_shape, dict(network) if isinstance(network, dict) else {}
    network = options.pop("name", None) if isinstance(network, dict) else network
    if network in NETWORKS and options:
        problem = f"{network} takes no options, only module:factory of your own does"
        raise BadField("config.network", problem, value=options)
    if isinstance(network, str) and network in NETWORKS:
        if network in IMAGES:
            least = IMAGES[network].least
            if len(shape) != 3 or min(shape[1:] if channels_first(shape) else shape[:-1]) < least:
                problem = f"takes images of at least {least} x {least}, not observations {shape}"
                raise BadField("config.network", problem, value=network)
        return Features(shape, network, precision)
    if isinstance(network, str) and ":" not in network:
        raise unknown("config.network", network, [*NETWORKS, "module:factory"])
    factory = import_from(network, "config.network") if isinstance(network, str) else network
    if not callable(factory):
        problem = f"write {', '.join(NETWORKS)} or module:factory of your own"
        raise BadField("config.network", problem, value=repr(network))
    made = call_own("config.network", "it", factory, spec, **options)
    if not isinstance(made, nn.Module):
        raise BadField("config.network", f"it gives {type_in_words(made)}", "it must give a flax.linen.Module")
    obs = jax.ShapeDtypeStruct((2, *shape), spec.obs_dtype)
    seen = call_own("config.network", "it", jax.eval_shape, made.init_with_output, jax.random.key(0), obs)[0]
    if getattr(seen, "shape", ())[:-1] != (2,):
        raise BadField("config.network", f"it gives {seen} for 2 observations", "it must give an array [2, features]")
    return made


class Categorical(NamedTuple):
    """One choice; `logits` [..., n] are normalised by the constructor `categorical`."""

    logits: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> jax.Array:
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    def log_prob(self, action: jax.Array) -> jax.Array:
        # A one-hot product instead of a gather: under vmap its gradient is a product too, not a scatter.
        return jnp.sum(self.logits * jax.nn.one_hot(action, self.logits.shape[-1]), -1)

    def entropy(self) -> jax.Array:
        return -jnp.sum(jnp.exp(self.logits) * self.logits, -1)


class MultiCategorical(NamedTuple):
    """Independent choices, one `Categorical` each."""

    parts: tuple[Categorical, ...]

    def sample(self, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(self.parts))
        return jnp.stack([part.sample(k) for part, k in zip(self.parts, keys, strict=True)], -1)

    def mode(self) -> jax.Array:
        return jnp.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return sum((part.log_prob(action[..., i]) for i, part in enumerate(self.parts)), start=jnp.float32(0))

    def entropy(self) -> jax.Array:
        return sum((part.entropy() for part in self.parts), start=jnp.float32(0))


# Bounds of the log standard deviation, where actions lie in [-1, 1]. Above, nine of ten actions are clipped to a bound
# and the mean hardly matters; below, it comes near to how float32 rounds an action, and probabilities become noise.
LOG_STD = (-10.0, 2.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def held_within(x: jax.Array, low: float, high: float) -> jax.Array:
    """Clip x [...] to [low, high]. Beyond a bound x keeps the gradients that lead it back, for descent, and only those.

    A plain clip has no gradient there, so that x could never come back.
    """
    return jnp.clip(x, low, high)


def _held_forwards(x: jax.Array, low: float, high: float) -> tuple[jax.Array, jax.Array]:
    return jnp.clip(x, low, high), x


def _held_backwards(low: float, high: float, x: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    out = ((x >= high) & (gradient < 0)) | ((x <= low) & (gradient > 0))
    return (jnp.where(out, 0.0, gradient),)


held_within.defvjp(_held_forwards, _held_backwards)


class Normal(NamedTuple):
    """A diagonal Gaussian; mean and log_std [..., A]. The environment clips actions to [-1, 1]."""

    mean: jax.Array
    log_std: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> jax.Array:
        return self.mean

    def log_prob(self, action: jax.Array) -> jax.Array:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(z) - self.log_std - 0.5 * jnp.log(2 * jnp.pi), -1)

    def entropy(self) -> jax.Array:
        return jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e), -1)


class SquashedNormal(NamedTuple):
    """tanh of a diagonal Gaussian, within (-1, 1); mean and log_std [..., A] are those before the tanh."""

    mean: jax.Array
    log_std: jax.Array

    def sample_with_log_prob(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action [..., A] and its log-density [...] (Haarnoja et al. 2018, arXiv 1812.05905, appendix C)."""
        normal = Normal(self.mean, self.log_std)
        x = normal.sample(key)
        # log(1 - tanh(x)^2), in a form that does not round to log(0) for large |x|
        slope = 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))
        return jnp.tanh(x), normal.log_prob(x) - slope.sum(-1)

    def mode(self) -> jax.Array:
        return jnp.tanh(self.mean)


Distribution = Categorical | MultiCategorical | Normal


def categorical(logits: jax.Array) -> Categorical:
    """A distribution over n choices, from unnormalised logits [..., n]."""
    return Categorical(jax.nn.log_softmax(logits))


def outputs(space: ActionSpace) -> int:
    """The number of outputs that a network needs for an action: one per choice, or per component."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.nvec) if isinstance(space, MultiDiscrete) else len(space.low)


def choice(space: Discrete | MultiDiscrete, logits: jax.Array) -> Categorical | MultiCategorical:
    """A distribution over one choice, or several, from unnormalised logits [..., outputs(space)]."""
    if isinstance(space, Discrete):
        return categorical(logits)
    splits = [sum(space.nvec[: i + 1]) for i in range(len(space.nvec) - 1)]
    return MultiCategorical(tuple(categorical(part) for part in jnp.split(logits, splits, -1)))


class PolicyHead(nn.Module):
    """An MLP that gives a distribution over the actions of a space: [..., I] -> Distribution."""

    space: ActionSpace
    layers: tuple[int, ...]
    activation: str = "tanh"
    log_std_init: float = 0.0
    precision: Precision = "float32"

    @nn.compact
    def __call__(self, x: jax.Array, legal: Callable[[jax.Array], jax.Array] = lambda logits: logits) -> Distribution:
        """legal: lowers the logits of illegal choices."""
        width = outputs(self.space)
        x = MLP(self.layers, width, self.activation, 0.01, precision=self.precision)(x)
        if isinstance(self.space, Box):
            log_std = self.param("log_std", nn.initializers.constant(self.log_std_init), (width,))
            log_std = held_within(log_std, *LOG_STD)
            return Normal(x, jnp.broadcast_to(log_std, x.shape))
        return choice(self.space, legal(x))


def check_hidden(layers: tuple[int, ...], activation: str) -> None:
    """Raise BadInput for hidden layers that cannot be, or an activation that does not exist."""
    if any(width < 1 for width in layers):
        raise BadField("config.layers", "every width must be at least 1", value=list(layers))
    if activation not in ACTIVATIONS:
        raise unknown("config.activation", activation, ACTIVATIONS)
