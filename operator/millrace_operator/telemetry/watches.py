"""Health of the operator's watches: when each last heard from the API server, its errors, and what it knows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STALE_SECONDS = 240.0
"""Seconds without a word from the API server after which a watch is stale.

The API server sends a bookmark every minute, so a watch that lives is never that old. One whose connection dies
silently is noticed after 70 seconds, reopened after a pause of up to 30, and hears a bookmark within a minute after
that: it is stale only if it cannot be reopened.
"""


class WatchHealth:
    """Health of one watch; its thread reports, and scrapes and probes read.

    Args:
        resource: plural of the kind.
        namespace: namespace that is watched; None for all.
        clock: monotonic clock, in seconds.
        needed: whether the operator cannot work without it.
    """

    def __init__(
        self,
        resource: str,
        namespace: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        needed: bool = True,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.needed = needed
        self.errors = 0
        """Lists and watches that ended with an error."""
        self.objects = 0
        """Objects that the watch knows."""
        self.refused = False
        """Whether the API server refuses to list the objects of the watch's own namespace."""
        self._clock = clock
        self._heard = clock()

    def heard(self, objects: int) -> None:
        """Note that the API server has sent something, and the number of objects that are known now."""
        self._heard = self._clock()
        self.objects = objects
        self.refused = False

    def refuse(self) -> None:
        """Note that the API server refuses the watch, which knows no objects any more."""
        self.objects = 0
        self.refused = True

    def failed(self) -> None:
        """Count a list or a watch that ended with an error."""
        self.errors += 1

    @property
    def age(self) -> float:
        """Seconds since the API server last sent something; since the start, if it never did."""
        return self._clock() - self._heard

    def __str__(self) -> str:
        return f"the watch of {self.resource}" + (f" in {self.namespace}" if self.namespace else "")


class Watches:
    """All watches of an operator. Each kind is watched in all namespaces at once, or in each one individually."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[tuple[str, str | None], WatchHealth] = {}

    def of(self, resource: str, namespace: str | None, *, needed: bool = True) -> WatchHealth:
        """Return the health of a watch, which begins with the first call."""
        with self._lock:
            watch = WatchHealth(resource, namespace, needed=needed)
            return self._watches.setdefault((resource, namespace), watch)

    def by_resource(self) -> dict[str, list[WatchHealth]]:
        """Return all watches by the plural of their kind."""
        with self._lock:
            found: dict[str, list[WatchHealth]] = {}
            for (resource, _), watch in sorted(self._watches.items(), key=lambda each: (each[0][0], each[0][1] or "")):
                found.setdefault(resource, []).append(watch)
            return found

    def is_refused(self, resource: str, namespace: str | None) -> bool:
        """Return whether the API server refuses a watch."""
        with self._lock:
            watch = self._watches.get((resource, namespace))
        return watch is not None and watch.refused

    def refuses(self, namespace: str) -> bool:
        """Return whether the API server refuses a needed watch of this namespace, so that not all of it is known."""
        with self._lock:
            return any(each.refused and each.needed for (_, of), each in self._watches.items() if of == namespace)

    @property
    def refused(self) -> list[str]:
        """The namespaces that are to be watched, and are gone or forbidden."""
        watches = [each for found in self.by_resource().values() for each in found]
        return sorted({each.namespace for each in watches if each.needed and each.refused and each.namespace})

    @property
    def stale(self) -> list[WatchHealth]:
        """The needed watches that have heard nothing for longer than ``STALE_SECONDS``, oldest first."""
        watches = [each for found in self.by_resource().values() for each in found]
        stale = [each for each in watches if each.needed and not each.refused and each.age > STALE_SECONDS]
        return sorted(stale, key=lambda each: -each.age)
