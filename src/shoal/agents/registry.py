"""The agents by name, their structure and their hyperparameters. No JAX: names are checked before it is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

from shoal.core.space import DISCOUNT, HyperparameterSpec, Range, end_factor
from shoal.rl.config import NetworkConfig, OffPolicy, Precision, TwinConfig

LIMITED_BY = "config.max_update_ratio"
UPDATE_RATIO = HyperparameterSpec(
    "gradient updates per environment step (update-to-data ratio)", least=0, limited_by=LIMITED_BY
)


@dataclass(frozen=True)
class PpoConfig(NetworkConfig):
    """The structure of a PPO agent, which fixes shapes and is equal for all members."""

    frame_stack: int = 1
    """frame stacking: observations seen at once, along the channels of an image"""
    num_envs: int = 4
    """environments that each member acts in"""
    rollout_length: int = 128
    """steps in each environment between two updates"""
    num_minibatches: int = 4
    """minibatches per epoch, into which the rollout × environments steps are split"""
    normalize_rewards: bool = True
    """divide rewards by the running standard deviation of the discounted return"""
    normalize_advantages: bool = True
    """normalise advantages within each minibatch"""
    clip_value_loss: bool = False
    """value clipping: the value loss clips new values to clip_range around the old ones"""
    auxiliary_loss: Any = None
    """module:function of a batch and its action distribution, added to the policy's loss"""


class PpoHyper(NamedTuple):
    """The hyperparameters of PPO; each may differ per member and change between generations."""

    learning_rate: Annotated[Any, HyperparameterSpec("learning rate of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4
    learning_rate_end_factor: Annotated[Any, end_factor("learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    gae_lambda: Annotated[Any, HyperparameterSpec("lambda of GAE", Range(0.8, 0.99, "one_minus_log"), 0, 1)] = 0.95
    clip_range: Annotated[
        Any,
        HyperparameterSpec(
            "clip range of the probability ratio, and with clip_value_loss of the values",
            Range(0.05, 0.4, "log"),
            least=0,
        ),
    ] = 0.2
    clip_range_end_factor: Annotated[Any, end_factor("clip_range")] = 1.0
    entropy_coefficient: Annotated[Any, HyperparameterSpec("weight of the entropy bonus", Range(1e-4, 0.1, "log"))] = (
        0.01
    )
    value_coefficient: Annotated[
        Any, HyperparameterSpec("weight of the value loss, half the mean squared error", least=0)
    ] = 0.5
    max_gradient_norm: Annotated[
        Any, HyperparameterSpec("gradient clipping: largest global norm of a gradient", least=0)
    ] = 0.5
    epochs: Annotated[Any, HyperparameterSpec("epochs over each rollout, rounded to an integer", least=1, most=1e6)] = (
        4.0
    )


@dataclass(frozen=True)
class Td3Config(TwinConfig):
    """The structure of a TD3 agent, which fixes shapes and is equal for all members."""


class Td3Hyper(NamedTuple):
    """The hyperparameters of TD3; each may differ per member and change between generations."""

    policy_learning_rate: Annotated[
        Any, HyperparameterSpec("learning rate of Adam", Range(3e-5, 3e-3, "log"), least=0)
    ] = 1e-3
    critic_learning_rate: Annotated[
        Any, HyperparameterSpec("learning rate of Adam", Range(3e-5, 3e-3, "log"), least=0)
    ] = 1e-3
    learning_rate_end_factor: Annotated[Any, end_factor("policy_learning_rate", "critic_learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[
        Any,
        HyperparameterSpec(
            "soft update (Polyak) coefficient of the target networks, at each policy update", least=0, most=1
        ),
    ] = 0.005
    exploration_noise: Annotated[
        Any,
        HyperparameterSpec(
            "standard deviation of the Gaussian action noise; actions lie in [-1, 1]", Range(0.01, 1.0), least=0
        ),
    ] = 0.1
    target_noise: Annotated[
        Any,
        HyperparameterSpec("target policy smoothing: standard deviation of the noise", Range(0.0, 1.0), least=0),
    ] = 0.2
    noise_clip: Annotated[
        Any, HyperparameterSpec("target policy smoothing: clip range of the noise", Range(0.0, 1.0), least=0)
    ] = 0.5
    policy_delay: Annotated[
        Any,
        HyperparameterSpec(
            "delayed policy updates: critic updates per policy update", Range(1, 5, integer=True), 1, 1e6
        ),
    ] = 2.0
    update_ratio: Annotated[Any, UPDATE_RATIO] = 1.0


@dataclass(frozen=True)
class SacConfig(TwinConfig):
    """The structure of a SAC agent, which fixes shapes and is equal for all members."""

    initial_temperature: float = 1.0
    """entropy temperature alpha before the first update"""
    auxiliary_loss: Any = None
    """module:function of a batch and its action distribution, added to the policy's loss"""


class SacHyper(NamedTuple):
    """The hyperparameters of SAC; each may differ per member and change between generations."""

    policy_learning_rate: Annotated[
        Any, HyperparameterSpec("learning rate of Adam", Range(3e-5, 3e-3, "log"), least=0)
    ] = 3e-4
    critic_learning_rate: Annotated[
        Any, HyperparameterSpec("learning rate of Adam", Range(3e-5, 3e-3, "log"), least=0)
    ] = 3e-4
    temperature_learning_rate: Annotated[
        Any, HyperparameterSpec("learning rate of Adam", Range(3e-5, 3e-3, "log"), least=0)
    ] = 3e-4
    learning_rate_end_factor: Annotated[
        Any, end_factor("policy_learning_rate", "critic_learning_rate", "temperature_learning_rate")
    ] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[
        Any,
        HyperparameterSpec("soft update (Polyak) coefficient of the target critics, at each update", least=0, most=1),
    ] = 0.005
    target_entropy_scale: Annotated[
        Any,
        HyperparameterSpec("target entropy: minus this times the number of action dimensions", Range(0.2, 2.0, "log")),
    ] = 1.0
    reward_scale: Annotated[
        Any, HyperparameterSpec("factor of rewards, relative to the entropy term", Range(0.1, 10.0, "log"))
    ] = 1.0
    update_ratio: Annotated[Any, UPDATE_RATIO] = 1.0


@dataclass(frozen=True)
class DqnConfig(OffPolicy):
    """The structure of a DQN agent, which fixes shapes and is equal for all members."""

    network: Any = "mlp"
    """feature extractor: mlp, minatar, nature_cnn, impala, or module:factory of your own"""
    batch_size: int = 64
    """transitions per gradient update"""
    double: bool = True
    """double DQN: the online network chooses the target's action"""
    n_step: int = 1
    """n-step returns: number of rewards in a target before it bootstraps"""
    frame_stack: int = 1
    """frame stacking: observations seen at once, along the channels of an image"""


class DqnHyper(NamedTuple):
    """The hyperparameters of DQN; each may differ per member and change between generations."""

    learning_rate: Annotated[Any, HyperparameterSpec("learning rate of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4
    learning_rate_end_factor: Annotated[Any, end_factor("learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[
        Any,
        HyperparameterSpec("soft update (Polyak) coefficient of the target network; 1: a hard copy", least=0, most=1),
    ] = 1.0
    target_update_interval: Annotated[
        Any,
        HyperparameterSpec(
            "gradient updates between two updates of the target network", Range(10, 2000, "log", integer=True), 1, 1e9
        ),
    ] = 200.0
    final_epsilon: Annotated[
        Any, HyperparameterSpec("final epsilon of epsilon-greedy exploration", Range(0.005, 0.5, "log"), 0, 1)
    ] = 0.05
    epsilon_decay_updates: Annotated[
        Any, HyperparameterSpec("gradient updates in which epsilon falls linearly from 1", least=0)
    ] = 5_000.0
    max_gradient_norm: Annotated[
        Any, HyperparameterSpec("gradient clipping: largest global norm of a gradient", least=0)
    ] = 10.0
    update_ratio: Annotated[Any, UPDATE_RATIO] = 1.0


@dataclass(frozen=True)
class PolicyConfig:
    """The structure of a policy, which fixes shapes and is equal for all members."""

    network: Any = "mlp"
    """feature extractor: mlp, minatar, nature_cnn, impala, or module:factory of your own"""
    layers: tuple[int, ...] = (64, 64)
    """widths of the hidden layers"""
    activation: str = "tanh"
    """tanh, relu, elu, swish or gelu"""
    precision: Precision = "float32"
    """precision of the layers: float32, or bfloat16"""
    lstm_hidden_size: int = 0
    """units of an LSTM between the hidden layers and the output; 0: none"""
    normalize_observations: bool = False
    """normalise observations by their running mean and standard deviation"""
    actor: tuple[str, ...] = ()
    """dictionary keys that the policy sees; empty: all, or those the environment names"""


class PolicyHyper(NamedTuple):
    """No hyperparameters: the method gives its members its own."""


class Declaration(NamedTuple):
    """The declaration of an agent, which is found by its name.

    factory: its module:function, (spec, **config) -> Agent
    config: the class of its structure
    hyper: the defaults of its hyperparameters, or of those that a method gives its members instead
    """

    factory: str
    config: type
    hyper: Any


AGENTS = {
    "ppo": Declaration("shoal.agents.ppo:ppo", PpoConfig, PpoHyper()),
    "td3": Declaration("shoal.agents.td3:td3", Td3Config, Td3Hyper()),
    "sac": Declaration("shoal.agents.sac:sac", SacConfig, SacHyper()),
    "dqn": Declaration("shoal.agents.dqn:dqn", DqnConfig, DqnHyper()),
}
POLICY = Declaration("shoal.agents.policy:policy", PolicyConfig, PolicyHyper())


def td3_hyper(name: str, left_out: str = "", **own: tuple[float, HyperparameterSpec]) -> Any:
    """Return the hyperparameters of TD3 without one of them, and with `own`, each with its default."""
    kinds = get_type_hints(Td3Hyper, include_extras=True)
    kinds |= {x: Annotated[Any, number] for x, (_, number) in own.items()}
    values = Td3Hyper()._asdict() | {x: value for x, (value, _) in own.items()}
    kinds.pop(left_out, None)
    make: Any = NamedTuple  # of names that the checker of types does not know
    return make(name, list(kinds.items()))(**{x: values[x] for x in kinds})
