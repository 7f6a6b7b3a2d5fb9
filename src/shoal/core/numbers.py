"""What is known of a hyperparameter, said where it is declared:

class Hyper(NamedTuple):
    learning_rate: Annotated[Any, Number("of Adam", Range(1e-5, 1e-2, "log"), least=0)] = 3e-4
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_type_hints

from shoal.core.evolution import Range


class Number(NamedTuple):
    """One hyperparameter.

    meaning: what it is, in a few words
    tuned: the range that PBT tunes by default; without one it stays as it is, unless an experiment's `space` names it
    least, most: the limits beyond which it cannot be
    """

    meaning: str
    tuned: Range | None = None
    least: float = -math.inf
    most: float = math.inf


def declared(hyper: type) -> dict[str, Number]:
    """What a class of hyperparameters says of each of them; those of which it says nothing are left out."""
    hints = get_type_hints(hyper, include_extras=True)
    said = {
        name: [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Number)] for name, hint in hints.items()
    }
    return {name: numbers[0] for name, numbers in said.items() if numbers}
