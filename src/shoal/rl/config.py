"""The structure that several agents have in common. No JAX: what fields there are is known before it is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Precision = Literal["float32", "bfloat16"]  # of the layers; their parameters and outputs are float32


@dataclass(frozen=True)
class Views:
    """The keys of dictionary observations that policy and critic see, equal for all members."""

    actor: tuple[str, ...] = ()
    """dictionary keys that the policy sees; empty: all, or those the environment names"""
    critic: tuple[str, ...] = ()
    """dictionary keys that the critic sees; empty: all, or those the environment names"""


@dataclass(frozen=True)
class NetworkConfig(Views):
    """The structure of policy and critic, equal for all members."""

    network: Any = "mlp"
    """feature extractor: mlp, minatar, nature_cnn, impala, or module:factory of your own"""
    share_features_extractor: bool = True
    """policy and critic share that network and the LSTM; false: one each"""
    lstm_hidden_size: int = 0
    """units of an LSTM between that network and the hidden layers; 0: none"""
    layers: tuple[int, ...] = (64, 64)
    """widths of the hidden layers, of which policy and critic have their own"""
    activation: str = "tanh"
    """tanh, relu, elu, swish or gelu"""
    log_std_init: float = 0.0
    """logarithm of the standard deviation of continuous actions before the first update"""
    precision: Precision = "float32"
    """precision of the layers: float32, or bfloat16"""
    normalize_observations: bool = False
    """normalise observations by their running mean and standard deviation"""


@dataclass(frozen=True)
class OffPolicy:
    """The structure of an off-policy agent, which fixes shapes and is equal for all members."""

    layers: tuple[int, ...] = (256, 256)
    """widths of the hidden layers"""
    activation: str = "relu"
    """tanh, relu, elu, swish or gelu"""
    precision: Precision = "float32"
    """precision of the layers: float32, or bfloat16"""
    num_envs: int = 1
    """environments that each member acts in"""
    rollout_length: int = 32
    """steps in each environment between two rounds of updates"""
    buffer_size: int = 100_000
    """size of a member's replay buffer in steps, rounded up to whole rollouts"""
    learning_starts: int = 1_000
    """steps of random actions before the first update"""
    batch_size: int = 256
    """transitions per gradient update"""
    max_update_ratio: int = 1
    """upper limit of hyper.update_ratio"""


@dataclass(frozen=True)
class TwinConfig(Views, OffPolicy):
    """The structure of an agent with a policy and twin critics, which fixes shapes and is equal for all members."""
