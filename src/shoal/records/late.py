"""Signals that come when a run is over."""

from __future__ import annotations

import signal
from typing import Any

from shoal.core.interrupts import SIGNALS
from shoal.records.recorder import Recorder


class Late(Recorder):
    """Hears signals before a run begins, which end the command as before, and once it is over: so does the command then, in
    a moment. In between it is the run that hears them."""

    def __init__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self._over = False

    def finish(self, result: dict[str, Any] | None) -> None:
        self._over = True

    def hear(self, number: int) -> None:
        handler = self._before[signal.Signals(number)]
        if not self._over and callable(handler):
            handler(number, None)
