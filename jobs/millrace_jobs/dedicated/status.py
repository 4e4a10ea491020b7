"""The state of a replica, as its loop reports it and as probes read it; thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from millrace_support.http_server import ProbeResult


class ReplicaStatus:
    """Liveness and readiness of a replica.

    Args:
        allowed_silence: seconds without a sign of life after which the replica counts as hung; longer than any call
            to Kafka is retried.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, allowed_silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed_silence = allowed_silence
        self._clock = clock
        self._lock = Lock()
        self._last_sign = clock()
        self._is_ready = False
        self._text = "starting"

    def works(self, text: str = "working") -> None:
        """Report that the replica has joined the group of its generation."""
        self._set(text, is_ready=True)

    def waits(self, reason: str) -> None:
        """Report that the replica cannot work yet: ``waiting`` for this reason."""
        self._set(f"waiting {reason}", is_ready=False)

    def failed(self, reason: str) -> None:
        """Report that the replica cannot go on with its work; the driver reports it, too."""
        self._set(f"failed: {reason}", is_ready=False)

    def liveness(self) -> ProbeResult:
        """Report whether the replica is alive."""
        with self._lock:
            silence = self._clock() - self._last_sign
            if silence > self._allowed_silence:
                return ProbeResult(False, f"hung: no sign of life for {silence:.0f} s")
            return ProbeResult(True, self._text)

    def readiness(self) -> ProbeResult:
        """Report whether the replica works."""
        with self._lock:
            return ProbeResult(self._is_ready, self._text)

    def _set(self, text: str, *, is_ready: bool) -> None:
        with self._lock:
            self._text, self._is_ready = text, is_ready
            self._last_sign = self._clock()
