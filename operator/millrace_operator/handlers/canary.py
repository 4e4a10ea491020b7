"""Canary: a StreamQuery that the leader touches periodically, and that proves the path of every query.

Every operator's watch must show the touches. At the leader, a worker must also take the canary from the queue and
answer each touch in its status, and the watch must show the answer. There is one canary in each namespace that is
watched individually, otherwise one in the operator's own namespace. An informer restarts a watch that stays silent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from millrace_api.model.streamquery import CANARY_LABEL

from ..kube.client import APPLY, QUERIES, Client
from ..leadership.leader import NotLeadingError
from ..lifecycle.canary import TOUCHED, answered_touch, touch_of
from ..lifecycle.reconcile import ChangeForbiddenError
from ..resources.names import MANAGER
from ..telemetry.logs import in_short

TOUCH_SECONDS = 30.0
"""Seconds between two touches."""

MISSED = 3
"""Number of touches that the watch may miss before it counts as stale."""

UNANSWERED = 6
"""Number of touches that the workers may leave unanswered before the path counts as stuck.

The canary is first in the queue, so that it waits only until a worker has finished its step. Six touches take longer
than the longest step: the first one of a query makes ten requests, each of which may take up to 15 seconds.
"""

CHECK_SECONDS = 2 * TOUCH_SECONDS
"""Seconds between two checks of a standby, and the age of the last touch at which a check asks the API server."""

_REQUEST_SECONDS = 10.0
_SPEC = {
    "suspend": True,
    "sources": {"ticks": {"rate": {}}},
    "query": {"sql": "SELECT count(*) AS n FROM ticks"},
    "sink": {"console": {}},
}

log = logging.getLogger(__name__)


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
        found = [touch_of(each) for each in listed["items"]]
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
    """Tracker of the touches that a watch has shown, or of the answers to them.

    A touch that the API server has not accepted does not count, because the watch is not at fault. All methods may be
    called from any thread.

    Args:
        clock: monotonic clock, in seconds.
        missed: number of counted touches that may be missed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, missed: int = MISSED) -> None:
        self._clock = clock
        self._missed = missed
        self._lock = threading.Lock()
        self._unshown: dict[str, float] = {}
        """Time of each touch that was not shown yet."""
        self._unseen = 0
        self._waiting_since: float | None = None
        self._took: float | None = None
        self._seen_at: float | None = None

    def touching(self, stamp: str) -> None:
        """Announce a touch with a unique ``stamp``."""
        with self._lock:
            self._unshown[stamp] = self._clock()

    def touched(self, stamp: str) -> None:
        """Count a touch that the API server has accepted, unless the watch has already shown it."""
        with self._lock:
            if stamp in self._unshown:
                self._unseen += 1
                if self._waiting_since is None:
                    self._waiting_since = self._unshown[stamp]

    def reset(self) -> None:
        """Count from 0 again, because the watch works or the API server may be at fault."""
        with self._lock:
            self._unshown.clear()
            self._unseen, self._waiting_since = 0, None

    def seen(self, stamp: str) -> None:
        """Record a touch shown by the watch, made by this operator or another one."""
        with self._lock:
            self._seen_at = self._clock()
            if stamp in self._unshown:
                self._took = self._seen_at - self._unshown[stamp]
                self._unshown.clear()
                self._unseen, self._waiting_since = 0, None

    def awaits(self, stamp: str) -> bool:
        """Return whether this is an own touch that has not been shown yet."""
        with self._lock:
            return stamp in self._unshown

    @property
    def stale(self) -> bool:
        """Whether the watch has missed more of the counted touches than it may, and must be dead."""
        with self._lock:
            return self._unseen > self._missed

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed any touch; None before the first."""
        with self._lock:
            return None if self._seen_at is None else self._clock() - self._seen_at

    @property
    def took(self) -> float | None:
        """Seconds from the last own touch until it was shown, or for which a counted one has waited so far."""
        with self._lock:
            return self._took if self._waiting_since is None else self._clock() - self._waiting_since


class Canary:
    """Canaries of one operator, checked by a background thread from ``stand_by`` to ``stop``.

    The leader touches the canaries. A standby sends no request as long as its watch shows the leader's touches. When it
    does not, the standby checks whether there were any: a missing touch is no fault of the watch.

    Args:
        name: name of the canaries.
        apis: API for the canary of each namespace that has one.
        is_refused: returns whether a namespace is gone or forbidden, and says nothing about the path.
    """

    def __init__(
        self, name: str, apis: Mapping[str, CanaryApi], is_refused: Callable[[str], bool] = lambda namespace: False
    ) -> None:
        self._name = name
        self._apis = apis
        self._is_refused = is_refused
        self._staleness = {namespace: Staleness() for namespace in apis}
        self._answers = {namespace: Staleness(missed=UNANSWERED) for namespace in apis}
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

    def owns(self, namespace: str, name: str) -> bool:
        """Return whether a canary is one of this operator's, and not another shard's."""
        return name == self._name and namespace in self._apis

    def seen(self, body: Mapping[str, Any]) -> bool:
        """Note an own canary shown by the watch; return whether a worker has to answer its last touch."""
        namespace, touch, answered = body["metadata"]["namespace"], touch_of(body), answered_touch(body)
        self._staleness[namespace].seen(touch or "")
        self._answers[namespace].seen(answered or "")
        if touch is None or (touch != answered and not self._answers[namespace].awaits(touch)):
            self.disturbed(namespace)
        return touch != answered

    def disturbed(self, namespace: str) -> None:
        """Note that something else has changed or removed an own canary, as those may who edit queries there.

        The touches before it may stay without an answer, and that is no fault of the path.
        """
        self._answers[namespace].reset()

    def failed(self, namespace: str, name: str, error: Exception) -> None:
        """Note that a step has failed: where the API server refuses or is away, the path is not at fault."""
        if self.owns(namespace, name) and isinstance(
            error, ApiException | HTTPError | NotLeadingError | ChangeForbiddenError
        ):
            self._answers[namespace].reset()

    @property
    def dead(self) -> list[str]:
        """Namespaces whose canary is no longer shown by the watch."""
        return [namespace for namespace in self._served if self._staleness[namespace].stale]

    @property
    def stuck(self) -> list[str]:
        """Namespaces whose canary is no longer answered: workers hang, or their statuses are not shown."""
        return [namespace for namespace in self._served if self._answers[namespace].stale]

    @property
    def path(self) -> float | None:
        """Seconds that the last touch took until its answer was shown, or waits for it; the maximum of all canaries.

        None before the first answer, and where this operator does not touch them.
        """
        times = (self._answers[namespace].took for namespace in self._served)
        return max((took for took in times if took is not None), default=None)

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed a touch, the maximum of all canaries; None until each was shown once.

        None also where no namespace can be served.
        """
        ages = [self._staleness[namespace].age for namespace in self._served]
        return None if None in ages else max((age for age in ages if age is not None), default=None)

    @property
    def _served(self) -> list[str]:
        return [namespace for namespace in self._apis if not self._is_refused(namespace)]

    def _run(self) -> None:
        while not self._leads.wait(CHECK_SECONDS):
            for namespace in self._served:
                self.check(namespace)
        while not self._ending.is_set():
            for namespace in self._served:
                self._touch(namespace)
            self._ending.wait(TOUCH_SECONDS)

    def _touch(self, namespace: str) -> None:
        stamp, trackers = datetime.now(UTC).isoformat(), (self._staleness[namespace], self._answers[namespace])
        for each in trackers:
            each.touching(stamp)
        try:
            self._apis[namespace].touch(stamp)
        except Exception as error:  # a failed request or a lost lease is no fault of the watch
            for each in trackers:
                each.reset()
            log.warning("the canary in %s was not touched: %s", namespace, in_short(error))
        else:
            for each in trackers:
                each.touched(stamp)
