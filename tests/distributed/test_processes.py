"""Whatever ends one process ends those that are in step with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed, Interrupted
from shoal.distributed.exchange import Exchange
from shoal.distributed.processes import Processes


class Told(Exchange):
    """An exchange that keeps what it is to tell the others."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def fail(self, message: str, code: int) -> None:
        self.codes.append(code)


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        (ValueError("x"), [1]),
        (SystemExit(0), [1]),
        (KeyboardInterrupt(), [1]),
        (Failed(Path("run"), OSError("full")), [1]),
        (BadInput("x"), [2]),
        (Interrupted(Path("run")), [3]),
        (Interrupted(Path("run"), agreed=True), []),
    ],
)
def test_what_the_others_are_told(error: BaseException, codes: list[int]) -> None:
    told = Told()
    with pytest.raises(type(error)), Processes(told, lambda message: None):
        raise error
    assert told.codes == codes
