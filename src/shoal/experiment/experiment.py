"""The experiment: one dataclass that is the file, the flags and the Python argument."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from shoal.core.atomic import absolute
from shoal.core.errors import BadField
from shoal.core.schema import as_given, changed_in, converted
from shoal.core.space import Range
from shoal.core.trend import Trend
from shoal.core.user_code import name_of
from shoal.environments.levels import Levels
from shoal.methods.components import expand_shorthand
from shoal.trainers.trainers import TrainerProcesses, is_trainer

CHANGEABLE = (  # in a run
    *("generations", "budget", "time_limit", "stop.fitness", "stop.patience"),
    *("final_episodes", "checkpoint.every", "checkpoint.keep"),
    *("exchange.timeout", "python"),
    *(f"processes.{option.name}" for option in fields(TrainerProcesses)),
)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}  # seconds of each


def seconds(given: Any) -> Any:
    """Convert 90s, 30m, 2h or 1d to seconds; a number is one of seconds. Raises BadField for other text."""
    if not isinstance(given, str):
        return given
    found = re.fullmatch(r"(\d+\.?\d*) ?([smhd]?)", given)
    if not found:
        raise BadField("", "is not a duration", "write seconds, or 90s, 30m, 2h or 1d", value=f"{given!r}")
    return float(found[1]) * UNITS[found[2] or "s"]


def named(given: Any) -> Any:
    """Return a name, or an object of Python as it is. Raises BadField for other values of a file, such as none."""
    if given is None or isinstance(given, (bool, int, float, list, dict)):
        raise BadField("", "must be text", value=f"{given!r}")
    return given


@dataclass(frozen=True)
class Fitness:
    """Fitness of a member, which is its mean raw return."""

    source: Literal["evaluation", "training", "exploitability"] | None = None
    """evaluation: separate episodes without learning; training: the training episodes; exploitability: for games"""
    episodes: Annotated[int, "auto"] | None = None
    """per evaluation: 32 in JAX environments, else 8; auto: a tenth of the steps"""
    deterministic: bool = True
    """true: actions are the mode of the policy; false: sampled from it"""
    objective: Any = None
    """dotted key into the last step's info, or module:function of it, instead of the return"""
    tie_breaker: Any = None
    """second objective within the standard error: return, a dotted key, or module:function; more is better"""
    direction: Literal["maximize", "minimize"] = "maximize"
    """minimize: less of the objective is better, and fitness is its negative"""
    step_limit: int = 100_000
    """steps after which an evaluation stops, for environments that never end"""
    levels: Literal["validation", "train"] = "validation"
    """with levels: those that evaluate the fitness, validation or train"""
    final_selection: float = 0.02
    """share of the run's steps that select the champion at the end; 0: no selection"""

    @property
    def exact(self) -> bool:
        """True if the fitness is exact, without noise: exploitability."""
        return self.source == "exploitability"


@dataclass(frozen=True)
class Stop:
    """Early stopping: a run ends before its generations, budget or time limit once one of these is reached."""

    fitness: float | None = None
    """the run ends once the best fitness of a generation reaches it"""
    patience: int | None = None
    """generations without improvement, after which the run ends"""

    def reached(self, trend: Trend) -> str:
        """The field that ends the run now, and its value; empty where none does."""
        if self.fitness is not None and trend.recent and trend.recent[-1] >= self.fitness:
            return f"stop.fitness = {self.fitness:g}"
        if self.patience is not None and trend.since >= self.patience:
            return f"stop.patience = {self.patience}"
        return ""


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoints of a run."""

    every: int | None = None
    """generations between checkpoints; by default 1, or as many as take 0.25 s"""
    keep: int = 3
    """how many of them are kept on disk"""


@dataclass(frozen=True)
class ExchangeSettings:
    """Exchange between processes: a name, and what only that one has."""

    name: Literal["local", "mpi", "directory"] = "local"
    """local, mpi or directory"""
    timeout: float = 14_400.0
    """seconds that a rank waits for others before it ends the run (for mpi)"""
    workspace: str | None = None
    """shared directory of the workers (for directory)"""
    worker: str | None = None
    """name of this worker (for directory); a known name resumes (default: a number)"""

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise BadField("timeout", "must be greater than 0", value=self.timeout)

    @staticmethod
    def expand_shorthand(value: Any) -> Any:
        """The fields that a name alone stands for."""
        return {"name": value} if isinstance(value, str) else value


# By option, the name that has it.
OF_EXCHANGE = {"timeout": "mpi", "workspace": "directory", "worker": "directory"}


@dataclass(frozen=True)
class WeightsAndBiases:
    """Place of a run at Weights & Biases."""

    project: str = "shoal"
    """project, created if it does not exist"""
    runs: Literal["one", "member"] = "one"
    """one: one W&B run for the population; member: one more for each member"""
    group: str | None = None
    """group of the runs; by default the name of the run directory"""
    name: str | None = None
    """name of the run; by default that of its directory"""
    entity: str | None = None
    """user or team that owns the project; by default you"""
    tags: tuple[str, ...] = ()
    """tags of the runs"""
    mode: Literal["online", "offline"] = "online"
    """offline: nothing is sent, until `wandb sync RUN/wandb/offline-run-*` is called"""


@dataclass(frozen=True)
class Experiment:
    """A population-based training run. File, flags and Python name the same fields."""

    env: Annotated[Any, named] = "CartPole-v1"
    """suite:name, a bare name (fastest installed suite that has it), or module:factory of your own"""
    method: Any = None
    """how members learn: pbt, successive_halving, mf_pbt, pb2, es, cem_rl, dvd, independent or schedule"""
    agent: Annotated[Any, named] | None = None
    """algorithm: ppo, td3, sac, dqn, policy, sb3:PPO and the like, or module:factory of your own"""
    population: Annotated[int, "auto"] = 8
    """members trained side by side; auto: as many as train nearly as fast as one"""
    generations: int = 20
    """number of rounds of training, evaluation and evolution"""
    interval: int = 8192
    """environment steps of each member per generation, rounded up to whole rollouts"""
    budget: int | None = None
    """in place of `generations`: the run ends once all members' steps, evaluations included, reach it"""
    time_limit: Annotated[float, seconds] | None = None
    """in place of `generations`: the run ends once that time has passed: 90s, 30m, 2h"""
    stop: Stop = field(default_factory=Stop)
    shards: int | None = None
    """groups of members that train one after another in each process (default: one per process)"""
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    """how processes exchange members: local (one process), mpi, or directory (a shared one)"""
    seed: int = 0
    """all random numbers derive from it: same experiment, same seed, same run"""
    run_dir: str | None = None
    """where the run is written (default: runs/ENVIRONMENT-AGENT-SEED, with a number where that is taken)"""
    python: str | None = None
    """the interpreter that has a trainer's packages; by default this one"""
    init_from: str | None = None
    """warm start: RUN (member by member), RUN/champion (all of them), or a trainer's FILE"""
    processes: TrainerProcesses = field(default_factory=TrainerProcesses)
    fitness: Fitness = field(default_factory=Fitness)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    final_episodes: int = 100
    """held-out episodes that evaluate the champion at the end"""
    hyper: dict[str, float] = field(default_factory=dict)
    """fixed values of hyperparameters that are not tuned"""
    space: dict[str, Range] | None = None
    """search space: tuned hyperparameters and their ranges; by default those that the agent suggests"""
    config: dict[str, Any] = field(default_factory=dict)
    """structure of the agent: layers, rollout length, environments per member; {choices: [...]} tries several"""
    env_options: dict[str, Any] = field(default_factory=dict)
    """options of the environment, such as its time limit"""
    levels: Levels | None = None
    """numbered variants of the environment, to train on some and evaluate on others"""
    wandb: WeightsAndBiases | None = None
    """log the run to Weights & Biases"""

    def __post_init__(self) -> None:
        """Give each field its type, and the method its one form. Raises BadInput for what cannot have it."""
        vars(self).update(converted(Experiment, as_given(self)))
        if self.method is not None:
            vars(self).update(method=expand_shorthand(self.method))

    def __repr__(self) -> str:
        """The fields that are not as they are by default."""
        return f"Experiment({', '.join(f'{name}={value!r}' for name, value in changed_in(self).items())})"

    @property
    def env_name(self) -> str:
        """The environment as a file names it."""
        return name_of(self.env)

    @property
    def agent_name(self) -> str | None:
        """The agent as a file names it."""
        return name_of(self.agent)

    @property
    def method_name(self) -> str:
        """The method as a file names it, or the default."""
        return name_of(self.method_or_default["name"])

    @property
    def method_or_default(self) -> dict[str, Any]:
        """The method with its options; where they are given without a name, they are those of the default method."""
        given = self.method or {}
        if given.get("name") is not None:
            return given
        halves = not self.divided and not self.external
        default = {"name": "successive_halving"} if halves else {"name": "pbt", "default_members": 0.5}
        return default | {option: x for option, x in given.items() if option != "name"}

    @property
    def auto(self) -> bool:
        """True where the population is to be measured before there is a run."""
        return isinstance(self.population, str)

    @property
    def ends_by(self) -> list[str]:
        """The fields that say when the run ends."""
        return [name for name in ("budget", "time_limit") if getattr(self, name) is not None] or ["generations"]

    @property
    def stops_early(self) -> bool:
        """True where `stop` may end the run before these."""
        return self.stop != Stop()

    @property
    def divided(self) -> bool:
        """True where the population is divided over shards, processes or workers."""
        return self.exchange.name != "local" or (self.shards or 1) > 1

    @property
    def external(self) -> bool:
        """True where external trainers train the members."""
        return is_trainer(self.agent, self.python)

    @property
    def absolute_paths(self) -> dict[str, Any]:
        """Fields that hold paths, made absolute: user code may change the working directory."""
        paths: dict[str, Any] = {x: str(absolute(path)) for x in ("run_dir", "init_from") if (path := getattr(self, x))}
        if self.python and "/" in self.python:  # else it is looked for where commands are
            paths["python"] = str(absolute(self.python))
        if self.exchange.workspace:
            paths["exchange"] = replace(self.exchange, workspace=str(absolute(self.exchange.workspace)))
        return paths


def alone(experiment: Experiment, shards: int | None = 1) -> Experiment:
    """Return the experiment for a single process."""
    return replace(experiment, shards=shards, exchange=ExchangeSettings())
