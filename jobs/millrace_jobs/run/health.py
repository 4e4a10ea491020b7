"""Whether the query is alive and whether it is ready, as the run loop sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Literal, NamedTuple


class Verdict(NamedTuple):
    """The answer to a probe."""

    ok: bool
    text: str
    """One sentence for people; why not, where it is not ok."""


class Health:
    """Written by the run loop, read by the probes; safe between threads.

    A query goes from starting to running to closing, and from any of them to failed, which is for good.

    Args:
        patience: seconds without a sign of life, after which a running query counts as hung. It has to be longer
            than the longest batch that is still all right, such as the first one on a backlog.
        clock: monotonic seconds.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._lock = Lock()
        self._state: Literal["starting", "running", "closing", "failed"] = "starting"
        self._reason = ""
        self._last_sign = clock()

    def ready(self) -> None:
        """The query runs."""
        with self._lock:
            if self._state == "starting":
                self._state = "running"
                self._last_sign = self._clock()

    def progressed(self) -> None:
        """A sign of life: a batch has been finished, or there is nothing to do."""
        with self._lock:
            self._last_sign = self._clock()

    def closing(self) -> None:
        """The query is brought to an end, in good order."""
        with self._lock:
            if self._state != "failed":
                self._state = "closing"

    def failed(self, reason: str) -> None:
        """The query has failed; the first reason is the one that counts."""
        with self._lock:
            if self._state != "failed":
                self._state, self._reason = "failed", reason

    def liveness(self) -> Verdict:
        """Not ok when only a restart helps: the query has failed, or runs and shows no sign of life."""
        with self._lock:
            if self._state == "failed":
                return Verdict(False, f"failed: {self._reason}")
            silence = self._clock() - self._last_sign
            if self._state == "running" and silence > self._patience:
                return Verdict(False, f"hung: no batch finished for {silence:.0f} s, allowed {self._patience:.0f} s")
            return Verdict(True, self._state)

    def readiness(self) -> Verdict:
        """Ok while the query runs."""
        with self._lock:
            reason = f": {self._reason}" if self._reason else ""
            return Verdict(self._state == "running", self._state + reason)
