"""The members that must fit into the memory of the devices: those that are there at a time."""

from __future__ import annotations

import jax
import pytest
from rich.filesize import decimal
from support.runs import tiny

from shoal.commands.doctor import checks
from shoal.core.errors import BadInput
from shoal.experiment.plan import make_plan
from shoal.run import memory

N = 8


@pytest.mark.parametrize(
    ("backend", "shards", "here", "fits", "at_a_time"),
    [("gpu", 1, N, False, N), ("gpu", 4, N, True, 2), ("cpu", 4, N, False, N), ("cpu", 4, 2, True, 2)],
    ids=["all on the device", "shards take turns there", "shards of one machine", "a rank of four machines"],
)
def test_what_must_fit(
    backend: str, shards: int, here: int, fits: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are for a population that is larger than the memory of a device, and ranks for one larger than a machine."""
    plan = make_plan(tiny(population=N, shards=shards))
    free = 0.9 * plan.kind.memory(N)[0]
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(memory, "free_memory", lambda: int(free))
    if fits:
        memory.check_memory(plan, here)
    else:
        with pytest.raises(BadInput, match=f"population = {N}: {at_a_time} members take"):
            memory.check_memory(plan, here)
    if here == N:
        assert decimal(memory.reckoned(plan, at_a_time).need) in next(checks.storage(plan)).text
