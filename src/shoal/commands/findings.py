"""What `shoal doctor` finds."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One line of the answer."""

    mark: Literal["✓", "!", "✗"]
    topic: str
    text: str


fine = partial(Finding, "✓")  # as it should be
doubt = partial(Finding, "!")  # worth a thought
problem = partial(Finding, "✗")  # in the way of the run
