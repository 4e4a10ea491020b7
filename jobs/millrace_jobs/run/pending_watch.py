"""What a run says of calls that last: a message for each when it is found, and lines that follow it while it lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from millrace_api.errors import MillraceError
from millrace_jobs.page.history import problem_of
from millrace_jobs.pending import LOOK_SECONDS, CallKind, PendingCall

_FORGET_SECONDS = 120.0
"""Seconds after which a call that lasts again is announced again: four attempts of one task are not four messages."""

_REPORTED_SECONDS = 120.0
"""Seconds from which own code is reported: in a query that is well it may take long in each of its batches."""

_MOST_MESSAGES, _MESSAGES_SECONDS = 10, 60.0
"""How many messages there are at most in so many seconds; what is left is announced later if it still lasts."""


def worth_a_report(calls: Sequence[PendingCall], failing: MillraceError | None) -> Sequence[PendingCall]:
    """Return the calls to report; without one, why the query was started again, as long as it does not compute."""
    found = [each for each in calls if each.kind is CallKind.SERVER or each.all_seconds >= _REPORTED_SECONDS]
    if found or failing is None:
        return found
    why = f"the query was started again because {problem_of(failing)[0]}"
    return [PendingCall(CallKind.SERVER, "query", "starting again", 1, 0.0, 0.0, why=why)]


class PendingWatch:
    """A thread that looks for calls that last; a context manager around the batches of a run.

    Args:
        pending: returns the calls that last now.
        show: is called with the sentences on them after each look at which there are some, or were some before.
        announce: is called with the sentence on a call that is new.
        report: is called after each look with the calls that are worth a report, also if there are none, or with a
            failure in their place; at the end with none.
        failing: returns why the query was started again, until it computes.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        pending: Callable[[], Sequence[PendingCall]],
        show: Callable[[Sequence[str]], None],
        announce: Callable[[str], None],
        report: Callable[[Sequence[PendingCall]], None] = lambda _: None,
        failing: Callable[[], MillraceError | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pending, self._show, self._announce, self._clock = pending, show, announce, clock
        self._report, self._failing = report, failing
        self._announced: dict[str, float] = {}
        self._message_times: list[float] = []
        self._has_shown = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="calls that last", daemon=True)

    def look(self) -> None:
        """Look once."""
        found, now = self._pending(), self._clock()
        if found or self._has_shown:
            self._show([str(call) for call in found])
        self._has_shown = bool(found)
        self._announced = {what: at for what, at in self._announced.items() if now - at < _FORGET_SECONDS}
        self._message_times = [at for at in self._message_times if now - at < _MESSAGES_SECONDS]
        for call in found:
            if call.what not in self._announced:
                if len(self._message_times) >= _MOST_MESSAGES:
                    continue
                self._message_times.append(now)
                self._announce(str(call))
            self._announced[call.what] = now
        self._report(worth_a_report(found, self._failing()))

    def _follow(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with suppress(Exception):  # such as an output that is closed: the next look may succeed
                self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._report(())  # such as of a version that gives way to another in this process
