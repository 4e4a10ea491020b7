"""Canary: a StreamQuery that the leader touches periodically, and whose touches every operator's watch must show.

There is one canary in each namespace that is watched individually, otherwise one in the operator's own namespace. It
proves only the watch of StreamQueries. Kopf restarts any watch that stays silent for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from millrace_api.crd import GROUP
from millrace_api.model.streamquery import CANARY_LABEL

from ..kube.client import APPLY, MANAGER, QUERIES, Client
from ..telemetry.logs import in_short

TOUCH_SECONDS = 30.0
"""Seconds between two touches."""

MISSED = 3
"""Number of touches that the watch may miss before it counts as stale."""

CHECK_SECONDS = 2 * TOUCH_SECONDS
"""Seconds between two checks of a standby, and the age of the last touch at which a check asks the API server."""

TOUCHED = f"{GROUP}/touched"
"""Annotation with the time of the last touch."""

_REQUEST_SECONDS = 10.0
_SPEC = {
    "state": "Suspended",
    "sources": {"ticks": {"rate": {}}},
    "query": {"sql": "SELECT count(*) AS n FROM ticks"},
    "sink": {"console": {}},
}

log = logging.getLogger(__name__)


def is_canary(body: Mapping[str, Any]) -> bool:
    """Return whether a query is a canary, which is never deployed."""
    return CANARY_LABEL in body["metadata"].get("labels", {})


class CanaryApi:
    """API for one canary. Raises the errors of ``Client.request``."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def last_touch(self) -> str | None:
        """Return the stamp of the last touch from the API server; None without a canary or a stamp."""
        # a list with one item, because it needs no right beyond those for the watch
        query = {"fieldSelector": f"metadata.name={self._name}"}
        listed = self._client.request("GET", QUERIES.path(self._namespace), query, timeout=_REQUEST_SECONDS)
        found = [each["metadata"].get("annotations", {}).get(TOUCHED) for each in listed["items"]]
        return found[0] if found else None

    def touch(self, stamp: str) -> None:
        """Write the stamp to the canary; create the canary if it does not exist."""
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {CANARY_LABEL: "true"},
            "annotations": {TOUCHED: stamp},
        }
        document = {**QUERIES.type_meta, "metadata": metadata, "spec": _SPEC}
        path = QUERIES.path(self._namespace, self._name)
        apply = {"fieldManager": MANAGER, "force": "true"}
        self._client.request("PATCH", path, apply, document, APPLY, _REQUEST_SECONDS)


class Staleness:
    """Tracker of the touches that a watch has shown.

    A touch that the API server has not accepted does not count, because the watch is not at fault. All methods may be
    called from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._unshown: set[str] = set()
        self._unseen = 0
        self._seen_at: float | None = None

    def touching(self, stamp: str) -> None:
        """Announce a touch with a unique ``stamp``."""
        with self._lock:
            self._unshown.add(stamp)

    def touched(self, stamp: str) -> None:
        """Count a touch that the API server has accepted, unless the watch has already shown it."""
        with self._lock:
            if stamp in self._unshown:
                self._unseen += 1

    def reset(self) -> None:
        """Count from 0 again, because the watch works or the API server may be at fault."""
        with self._lock:
            self._unseen = 0

    def seen(self, stamp: str) -> None:
        """Record a touch shown by the watch, made by this operator or another one."""
        with self._lock:
            self._seen_at = self._clock()
            if stamp in self._unshown:
                self._unshown.clear()
                self._unseen = 0

    @property
    def stale(self) -> bool:
        """Whether the watch has missed more than ``MISSED`` of the counted touches and must be dead."""
        with self._lock:
            return self._unseen > MISSED

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed any touch; None before the first."""
        with self._lock:
            return None if self._seen_at is None else self._clock() - self._seen_at


class Canary:
    """Canaries of one operator, checked by a background thread from ``stand_by`` to ``stop``.

    The leader touches the canaries. A standby sends no request as long as its watch shows the leader's touches. When it
    does not, the standby checks whether there were any: a missing touch is no fault of the watch.

    Args:
        name: name of the canaries.
        apis: API for the canary of each namespace that has one.
    """

    def __init__(self, name: str, apis: Mapping[str, CanaryApi]) -> None:
        self._name = name
        self._apis = apis
        self._staleness = {namespace: Staleness() for namespace in apis}
        self._found: dict[str, str] = {}
        """Last touch found by a check, by namespace."""
        self._leads = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)

    def stand_by(self) -> None:
        """Start checking the watch as a standby."""
        self._thread.start()

    def lead(self) -> None:
        """Touch the canaries from now on; only one of several operators with the same canaries does so."""
        self._leads.set()

    def stop(self) -> None:
        """Stop the thread and the touches."""
        self._ending.set()
        self._leads.set()  # wakes the thread if it is waiting to lead
        if self._thread.is_alive():
            self._thread.join()

    def check(self, namespace: str) -> None:
        """Read the last touch by another operator and count it, because the watch should have shown it."""
        staleness = self._staleness[namespace]
        if staleness.age is not None and staleness.age < CHECK_SECONDS:
            staleness.reset()
            return
        try:
            stamp = self._apis[namespace].last_touch()
        except Exception as error:  # a failed request is no fault of the watch
            staleness.reset()
            log.warning("the last touch of the canary in %s cannot be read: %s", namespace, in_short(error))
            return
        if stamp is not None and stamp != self._found.get(namespace):
            self._found[namespace] = stamp
            staleness.touching(stamp)
            staleness.touched(stamp)

    def seen(self, body: Mapping[str, Any]) -> None:
        """Note a canary shown by the watch; canaries of another name or namespace are ignored."""
        metadata = body["metadata"]
        if metadata["name"] == self._name and metadata["namespace"] in self._staleness:
            self._staleness[metadata["namespace"]].seen(metadata.get("annotations", {}).get(TOUCHED, ""))

    @property
    def dead(self) -> list[str]:
        """Namespaces whose canary is no longer shown by the watch."""
        return [namespace for namespace, staleness in self._staleness.items() if staleness.stale]

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed a touch, the maximum of all canaries; None until each was shown once.

        Kopf delivers no event before its lists are complete, so a value also means that they are.
        """
        ages = [staleness.age for staleness in self._staleness.values()]
        return None if None in ages else max(age for age in ages if age is not None)

    def _run(self) -> None:
        while not self._leads.wait(CHECK_SECONDS):
            for namespace in self._apis:
                self.check(namespace)
        while not self._ending.is_set():
            for namespace in self._apis:
                self._touch(namespace)
            self._ending.wait(TOUCH_SECONDS)

    def _touch(self, namespace: str) -> None:
        staleness, stamp = self._staleness[namespace], datetime.now(UTC).isoformat()
        staleness.touching(stamp)
        try:
            self._apis[namespace].touch(stamp)
        except Exception as error:  # a failed request or a lost lease is no fault of the watch
            staleness.reset()
            log.warning("the canary in %s was not touched: %s", namespace, in_short(error))
        else:
            staleness.touched(stamp)
