"""Liveness and readiness of the query, as the run loop sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Literal

from millrace_support.http_server import ProbeResult


class Health:
    """State of the query, written by the run loop and read by the probes; thread-safe.

    A query goes from starting to running to closing, and from any of them to failed, which is final.

    Args:
        patience: seconds without a sign of life after which a running query counts as hung. It must be longer than
            the longest acceptable batch, such as the first one on a backlog.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._lock = Lock()
        self._state: Literal["starting", "running", "closing", "failed"] = "starting"
        self._reason = ""
        self._last_sign = clock()

    def ready(self) -> None:
        """Mark a starting query as running."""
        with self._lock:
            if self._state == "starting":
                self._state = "running"
                self._last_sign = self._clock()

    def progressed(self) -> None:
        """Record a sign of life: a batch has finished, or there is nothing to do."""
        with self._lock:
            self._last_sign = self._clock()

    def closing(self) -> None:
        """Mark the query as closing, unless it has failed."""
        with self._lock:
            if self._state != "failed":
                self._state = "closing"

    def failed(self, reason: str) -> None:
        """Mark the query as failed; the first reason is kept."""
        with self._lock:
            if self._state != "failed":
                self._state, self._reason = "failed", reason

    def liveness(self) -> ProbeResult:
        """Report whether the query is alive: not ok if the query has failed or hangs, so that only a restart helps."""
        with self._lock:
            if self._state == "failed":
                return ProbeResult(False, f"failed: {self._reason}")
            silence = self._clock() - self._last_sign
            if self._state == "running" and silence > self._patience:
                return ProbeResult(
                    False, f"hung: no batch finished for {silence:.0f} s, allowed {self._patience:.0f} s"
                )
            return ProbeResult(True, self._state)

    def readiness(self) -> ProbeResult:
        """Report whether the query is ready: ok while the query runs."""
        with self._lock:
            reason = f": {self._reason}" if self._reason else ""
            return ProbeResult(self._state == "running", self._state + reason)
