"""What a run asks of a kind of member, before it has any and without.

Members are gradient-trained, sampled around a mean by an evolution strategy, or trained by external trainers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from shoal.core.spec import Spec
from shoal.core.types import PyTree, Tunable
from shoal.members.acting import Acting
from shoal.members.compiled import Compiled
from shoal.members.shard import Setup, Shard, Tester


class Kind(Protocol):
    """A kind of member, with all that it needs to make members.

    tunable: what has the hyperparameters. env_parameters: those of the environment, with their own values
    spec: of the environment; None where a trainer does not say it
    acting: what members learn, and how it acts
    snapshot: shapes and dtypes of what a child copies: see `Shard.snapshot`
    compiled: itself, where it is compiled, with an agent and an environment; None where Shoal does not see them
    resumes_exactly: whether a run that continues from a state equals one that never stopped
    episodes: that measure a member, where the experiment does not say how many
    sampled: members are sampled anew around a mean in every generation, instead of living on
    together: members learn from one another, so that all must be on one device
    side_by_side: the number of consecutive members that must be on the same device
    """

    env_parameters: Mapping[str, float]
    resumes_exactly: bool
    episodes: int
    sampled: bool
    together: bool
    side_by_side: int

    @property
    def tunable(self) -> Tunable: ...

    @property
    def spec(self) -> Spec | None: ...

    @property
    def acting(self) -> Acting: ...

    @property
    def snapshot(self) -> PyTree: ...

    @property
    def compiled(self) -> Compiled | None: ...

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        """The parts of an interval of so many `steps` of a member, and how many it has in truth; 0 where whole episodes
        make one. Raises BadInput where nothing would be learned."""

    def devices(self, uids: Sequence[np.ndarray]) -> int:
        """How many devices the members of a process are spread over, whose uids [n] are given for each shard; of trainers,
        processes."""

    def memory(self, members: int) -> tuple[int, int]:
        """Bytes that the state of so many members takes on the devices, and how many of them are replay buffer."""

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        """What trains members, whose uids [n] are given for each shard."""

    def tester(self, setup: Setup) -> Tester:
        """What lets champions play, without members."""

    def close(self) -> None:
        """Give back what is held; its shards are closed by themselves."""
