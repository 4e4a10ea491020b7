"""The rates of arrival of hours, days and weeks, as means over slots of equal length; bounded in memory."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .shape import Vector


class RateHistory:
    """Mean records per second in the last ``slots`` slots of ``width`` seconds; NaN where too little is known.

    Slot k is the time from ``k * width`` on. A slot is closed, and its mean known, once a later one has begun.
    """

    def __init__(self, width: float, slots: int) -> None:
        self.width, self._most = width, slots
        self._closed = np.full(0, np.nan)
        self._open: int | None = None
        self._records = self._seconds = 0.0

    @property
    def open_slot(self) -> int | None:
        """The slot that is not closed yet; None before the first rate."""
        return self._open

    @property
    def closed(self) -> Vector:
        """Means of the closed slots, the last one being that before ``open_slot``; shape ``(slots,)`` or fewer."""
        return self._closed

    def slot(self, time: float) -> int:
        """Return the slot that a time lies in."""
        return math.floor(time / self.width)

    def add(self, since: float, until: float, rate: float) -> None:
        """Record that ``rate`` records per second arrived within a time; what lies before the open slot is left out.

        If the time is before the slot that was open before, the clock was set back, and the history starts again.
        """
        if self._open is not None and self.slot(until) < self._open - 1:
            self._closed, self._open = np.full(0, np.nan), None
            self._records = self._seconds = 0.0
        if self._open is None:
            self._open = self.slot(since)
        since = max(since, self._open * self.width, until - self._most * self.width)
        while since < until:
            self._begin(self.slot(since))
            end = min((self._open + 1) * self.width, until)
            self._records += rate * (end - since)
            self._seconds += end - since
            since = end

    def _begin(self, slot: int) -> None:
        """Close slots up to ``slot``; those of which less than half is known are NaN."""
        if self._open is None or slot <= self._open:
            return
        known = self._seconds >= self.width / 2
        skipped = min(slot - self._open - 1, self._most)
        last = self._records / self._seconds if known else np.nan
        new = _as_saved(np.array([last, *[np.nan] * skipped]))
        self._closed = np.concatenate([self._closed, new])[-self._most :]
        self._open, self._records, self._seconds = slot, 0.0, 0.0

    def between(self, since: float, until: float) -> Vector:
        """Return the means of the closed slots that a time touches, as far back as they are known."""
        if self._open is None:
            return np.full(0, np.nan)
        first = self._open - len(self._closed)
        low, high = max(self.slot(since) - first, 0), max(self.slot(until) + 1 - first, 0)
        return self._closed[low:high]

    def save(self) -> dict[str, Any]:
        """Return the state in JSON types: logarithms in half precision, which are within 1 % of the rates."""
        logs = _logs(self._closed)
        return {
            "open": self._open,
            "partly": [self._records, self._seconds],
            "logs": base64.b64encode(logs.tobytes()).decode(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned. Raises an error if these are no numbers."""
        self._open = None if saved["open"] is None else int(saved["open"])
        self._records, self._seconds = map(float, saved["partly"])
        logs = np.frombuffer(base64.b64decode(saved["logs"]), dtype=np.float16).astype(np.float64)
        self._closed = np.expm1(logs)[-self._most :]


def _logs(rates: Vector) -> NDArray[np.float16]:
    return np.log1p(rates).astype(np.float16)


def _as_saved(rates: Vector) -> Vector:
    """Return what ``save`` and ``restore`` make of rates, so that a restart changes none."""
    return np.expm1(_logs(rates).astype(np.float64))
