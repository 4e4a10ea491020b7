"""The thread that delivers lineage events; it never delays a batch or makes it fail."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition, Event, Thread
from typing import Any

from millrace_jobs.lineage.transports import DeliveryError, Transport
from millrace_support.backoff import Backoff

MOST_WAITING = 16
"""Maximum number of waiting events: a query sends few, and each one replaces what earlier ones reported."""

ATTEMPTS = 4
CLOSING_SECONDS = 5.0
"""Longest wait for the last event at the end of a run."""


EventMaker = Callable[[], Mapping[str, Any]]
"""Returns an event; called in the thread of the sender, since the columns of a large query take time to follow."""


class LineageSender:
    """Delivers events in order. An event that finds no room, or is not delivered in ``ATTEMPTS`` attempts, is dropped.

    Args:
        transport: the way to deliver them.
        report: shows the user a message; called when the receiver fails for the first time, and when it works again.
        pause: first pause between two attempts, in seconds.
    """

    def __init__(self, transport: Transport, report: Callable[[str], None], pause: float = 1.0) -> None:
        self.sent = self.dropped = 0
        self._transport, self._report = transport, report
        self._pause = pause
        self._waiting: deque[EventMaker] = deque()
        self._changed = Condition()
        self._closing = Event()
        self._is_failing = False
        self._until = float("inf")
        self._thread = Thread(target=self._deliver, name="lineage", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """Whether an event waits, so that one of a running query would only add to it."""
        return bool(self._waiting)

    def send(self, make: EventMaker) -> None:
        """Make an event and deliver it soon; return at once."""
        with self._changed:
            if len(self._waiting) == MOST_WAITING:
                self.dropped += 1
            else:
                self._waiting.append(make)
                self._changed.notify()

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Deliver the waiting events for at most ``seconds``, and drop the rest."""
        self._until = time.monotonic() + seconds
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _deliver(self) -> None:
        while (make := self._next()) is not None:
            self._deliver_one(make)

    def _next(self) -> EventMaker | None:
        """Wait for the next event, without waking up before there is one; None at the end of the run."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
            return self._waiting.popleft() if self._waiting else None

    def _deliver_one(self, make: EventMaker) -> None:
        backoff = Backoff(self._pause, longest=15.0, jitter=0.2)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transport.send(make())
            except Exception as error:  # whatever it is, the query goes on
                self._failed(error)
                pause = backoff.next()
                may_pass = isinstance(error, DeliveryError) and error.may_pass
                if not may_pass or attempt == ATTEMPTS or time.monotonic() + pause > self._until:
                    self.dropped += 1
                    return
                if self._closing.wait(pause):
                    time.sleep(min(pause, 1.0))
            else:
                self.sent += 1
                if self._is_failing:
                    self._report("lineage: the receiver takes events again")
                self._is_failing = False
                return

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._report(f"lineage: an event was not delivered, and the query goes on: {error}")
