"""The search space: facts about hyperparameters, and the ranges within which they are tuned. No JAX."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from shoal.core.errors import BadField

SAMPLED: Any = "sampled"  # in place of an initial value


@dataclass(frozen=True)
class Range:
    """The range of a hyperparameter, and the scale in which it is sampled and perturbed.

    low, high: bounds, both included
    scale:     linear; log (values over decades, low > 0); one_minus_log (discounts and traces: 1 - x over decades)
    integer:   integers only
    choices:   instead of bounds: the only values allowed
    ordered:   choices have an order, so that a perturbation changes to a neighbour
    initial:   the initial value of every member, by default as the method says; sampled: also for members that hold the
               default hyperparameters
    """

    low: float | None = None
    high: float | None = None
    scale: Literal["linear", "log", "one_minus_log"] = "linear"
    integer: bool = False
    choices: tuple[float, ...] | None = None
    ordered: bool = False
    initial: Annotated[float, "sampled"] | None = None

    @property
    def initial_value(self) -> float | None:
        """The initial value of every member, where the range gives one."""
        return None if self.initial == SAMPLED else self.initial

    @staticmethod
    def expand_shorthand(value: Any) -> dict[str, Any]:
        """The fields that [low, high] or [low, high, scale] stands for. Raises BadInput for what stands for none."""
        if isinstance(value, (list, tuple)) and len(value) in (2, 3):
            return dict(zip(("low", "high", "scale"), value, strict=False))
        if not isinstance(value, dict):
            raise BadField("", "write [low, high], [low, high, scale] or a mapping of its fields", value=f"{value!r}")
        return value


class HyperparameterSpec(NamedTuple):
    """Facts about a hyperparameter, given where it is declared:

    class Hyper(NamedTuple):
        learning_rate: Annotated[Any, HyperparameterSpec("learning rate of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4

    meaning: what it is, in a few words
    tuned: the default range of tuning; without one it is fixed, unless the `space` of an experiment names it
    least, most: limits of valid values, both included
    schedules: the hyperparameters that decay linearly over the run, to this fraction of their value
    limited_by: the setting of the agent that is the highest valid value, instead of `most`
    """

    meaning: str
    tuned: Range | None = None
    least: float = -math.inf
    most: float = math.inf
    schedules: tuple[str, ...] = ()
    limited_by: str = ""


DISCOUNT = HyperparameterSpec("discount factor gamma", Range(0.9, 0.999, "one_minus_log"), 0, 1)


def end_factor(*of: str) -> HyperparameterSpec:
    """Linear decay of other hyperparameters: the fraction of their value that is left at the end of the run."""
    names = " and ".join(filter(None, (", ".join(of[:-1]), of[-1])))
    meaning = f"linear decay of {names} to this fraction at the end; 1: none"
    return HyperparameterSpec(meaning, least=0, most=1, schedules=of)


def declared(hyper: type) -> dict[str, HyperparameterSpec]:
    """Return the declared specs of a class of hyperparameters, by name; those without one are left out."""
    hints = get_type_hints(hyper, include_extras=True)
    specs = {
        name: [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, HyperparameterSpec)]
        for name, hint in hints.items()
    }
    return {name: found[0] for name, found in specs.items() if found}


class SearchSpace(NamedTuple):
    """The hyperparameters of a population.

    ranges: what is tuned
    defaults: the default value of each of these that has one, within its range
    fixed: the values of all others
    """

    ranges: dict[str, Range]
    defaults: dict[str, float]
    fixed: dict[str, float]
