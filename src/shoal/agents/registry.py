"""The agents by name, their structure and their hyperparameters. No JAX: names are checked before it is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

from shoal.core.space import DISCOUNT, HyperparameterSpec, Range, end_factor
from shoal.rl.config import NetworkConfig, OffPolicy, Precision, TwinConfig


@dataclass(frozen=True)
class PpoConfig(NetworkConfig):
    """The structure of a PPO agent, which fixes shapes and is equal for all members."""

    frame_stack: int = 1
    """observations seen at once, along the channels of an image"""
    environments: int = 4
    """environments that each member acts in"""
    rollout: int = 128
    """steps in each environment between two updates"""
    minibatches: int = 4
    """parts that the rollout × environments steps are split into at each epoch"""
    normalise_rewards: bool = True
    """by the running standard deviation of the discounted return"""
    normalise_advantages: bool = True
    """within each minibatch"""
    clip_values: bool = False
    """keep the critic's new values within the clip range of the old ones"""
    auxiliary_loss: Any = None
    """module:function of a batch and its action distribution, added to the policy's loss"""


class PpoHyper(NamedTuple):
    """The numbers of PPO; each of them may differ per member and change between generations."""

    learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4
    learning_rate_end_factor: Annotated[Any, end_factor("learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    gae_lambda: Annotated[Any, HyperparameterSpec("lambda of GAE", Range(0.8, 0.99, "one_minus_log"), 0, 1)] = 0.95
    clip_range: Annotated[
        Any, HyperparameterSpec("of probability ratio and values", Range(0.05, 0.4, "log"), least=0)
    ] = 0.2
    clip_range_end_factor: Annotated[Any, end_factor("clip_range")] = 1.0
    entropy_coefficient: Annotated[Any, HyperparameterSpec("weight of the entropy", Range(1e-4, 0.1, "log"))] = 0.01
    value_coefficient: Annotated[Any, HyperparameterSpec("weight of the critic's loss", least=0)] = 0.5
    max_gradient_norm: Annotated[Any, HyperparameterSpec("longer gradients are scaled down to it", least=0)] = 0.5
    epochs: Annotated[Any, HyperparameterSpec("passes over each rollout, rounded", least=1, most=1e6)] = 4.0


@dataclass(frozen=True)
class Td3Config(TwinConfig):
    """The structure of a TD3 agent, which fixes shapes and is equal for all members."""


class Td3Hyper(NamedTuple):
    """The numbers of TD3; each of them may differ per member and change between generations."""

    policy_learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(3e-5, 3e-3, "log"), least=0)] = 1e-3
    critic_learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(3e-5, 3e-3, "log"), least=0)] = 1e-3
    learning_rate_end_factor: Annotated[Any, end_factor("policy_learning_rate", "critic_learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[
        Any, HyperparameterSpec("share by which targets follow at each update of the policy", least=0, most=1)
    ] = 0.005
    exploration_noise: Annotated[
        Any, HyperparameterSpec("standard deviation, where actions lie in [-1, 1]", Range(0.01, 1.0), least=0)
    ] = 0.1
    target_noise: Annotated[
        Any,
        HyperparameterSpec("standard deviation of the noise that smooths the target policy", Range(0.0, 1.0), least=0),
    ] = 0.2
    noise_clip: Annotated[Any, HyperparameterSpec("its largest size", Range(0.0, 1.0), least=0)] = 0.5
    policy_delay: Annotated[
        Any, HyperparameterSpec("updates of the critics for each of the policy", Range(1, 5, integer=True), 1, 1e6)
    ] = 2.0
    update_ratio: Annotated[Any, HyperparameterSpec("updates per environment step", least=0)] = 1.0


@dataclass(frozen=True)
class SacConfig(TwinConfig):
    """The structure of a SAC agent: what fixes shapes, equal for all members."""

    initial_temperature: float = 1.0
    """the temperature before the first update"""
    auxiliary_loss: Any = None
    """module:function of a batch and its action distribution, added to the policy's loss"""


class SacHyper(NamedTuple):
    """The numbers of SAC; each of them may differ per member and change between generations."""

    policy_learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(3e-5, 3e-3, "log"), least=0)] = 3e-4
    critic_learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(3e-5, 3e-3, "log"), least=0)] = 3e-4
    temperature_learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(3e-5, 3e-3, "log"), least=0)] = 3e-4
    learning_rate_end_factor: Annotated[
        Any, end_factor("policy_learning_rate", "critic_learning_rate", "temperature_learning_rate")
    ] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[
        Any, HyperparameterSpec("share by which the target critics follow at each update", least=0, most=1)
    ] = 0.005
    target_entropy_scale: Annotated[
        Any,
        HyperparameterSpec("the target is minus this times the number of action components", Range(0.2, 2.0, "log")),
    ] = 1.0
    reward_scale: Annotated[Any, HyperparameterSpec("factor of rewards, against entropy", Range(0.1, 10.0, "log"))] = (
        1.0
    )
    update_ratio: Annotated[Any, HyperparameterSpec("updates per environment step", least=0)] = 1.0


@dataclass(frozen=True)
class DqnConfig(OffPolicy):
    """The structure of a DQN agent, which fixes shapes and is equal for all members."""

    network: Any = "mlp"
    """feature extractor: mlp, minatar, nature_cnn, impala, or module:factory of your own"""
    batch: int = 64
    """transitions per update"""
    double: bool = True
    """the online network chooses the action of the target, which overestimates less"""
    n_step: int = 1
    """rewards that a target sums up before it adds the value of the target network"""
    frame_stack: int = 1
    """observations seen at once, along the channels of an image"""


class DqnHyper(NamedTuple):
    """The numbers of DQN; each of them may differ per member and change between generations."""

    learning_rate: Annotated[Any, HyperparameterSpec("of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4
    learning_rate_end_factor: Annotated[Any, end_factor("learning_rate")] = 1.0
    discount: Annotated[Any, DISCOUNT] = 0.99
    tau: Annotated[Any, HyperparameterSpec("share by which the target follows at its steps", least=0, most=1)] = 1.0
    target_period: Annotated[
        Any, HyperparameterSpec("updates between two steps of the target", Range(10, 2000, "log", integer=True), 1, 1e9)
    ] = 200.0
    epsilon: Annotated[
        Any, HyperparameterSpec("probability of a random action, at the end", Range(0.005, 0.5, "log"), 0, 1)
    ] = 0.05
    epsilon_updates: Annotated[
        Any, HyperparameterSpec("updates during which this probability falls from 1", least=0)
    ] = 5_000.0
    max_gradient_norm: Annotated[Any, HyperparameterSpec("longer gradients are scaled down to it", least=0)] = 10.0
    update_ratio: Annotated[Any, HyperparameterSpec("updates per environment step", least=0)] = 1.0


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
    recurrent: int = 0
    """units of an LSTM between the hidden layers and the output; 0: none"""
    normalise_observations: bool = False
    """by their running mean and standard deviation"""
    actor: tuple[str, ...] = ()
    """dictionary keys that the policy sees; empty: all, or those the environment names"""


class PolicyHyper(NamedTuple):
    """A policy has no hyperparameters."""


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
    """The hyperparameters of TD3 but for one of them, and `own`, each with its default."""
    kinds = get_type_hints(Td3Hyper, include_extras=True)
    kinds |= {x: Annotated[Any, number] for x, (_, number) in own.items()}
    values = Td3Hyper()._asdict() | {x: value for x, (value, _) in own.items()}
    kinds.pop(left_out, None)
    make: Any = NamedTuple  # of names that the checker of types does not know
    return make(name, list(kinds.items()))(**{x: values[x] for x in kinds})
