"""Reconciliation loop: observes a query, validates it, and takes the next step towards its spec."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from millrace_api.errors import MillraceError
from millrace_api.model.status import Status
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.objects import read_query

from ..resources.names import Manifest
from ..resources.restrictions import problems
from ..telemetry.logs import about, in_short
from ..telemetry.metrics import OperatorMetrics
from .events import EventBudget, news
from .observe import Observations, ObservedQuery, QueryKey
from .scaling_status import Scaled
from .step import FINALIZER, Action, Apply, Drain, Finalize, Step, next_step
from .workqueue import WorkQueue

WORKERS = 8
"""Number of queries reconciled concurrently."""

LOOK_AGAIN_SECONDS = 0.25
"""Seconds between actions and the next check of a query, so that their effects are observed together."""

log = logging.getLogger(__name__)


class GoneError(Exception):
    """The object to change no longer exists."""


class ObjectRefusedError(Exception):
    """The API server permanently rejects an object; the message says why."""


class Queries(Protocol):
    """API for the status, the finalizer and the events of queries."""

    def write_status(self, key: QueryKey, uid: str, status: Status) -> Manifest:
        """Replace the status of the query with this uid and return the query. Raises GoneError if it is gone."""
        ...

    def add_finalizer(self, key: QueryKey, uid: str, finalizer: str) -> Manifest:
        """Set a query's finalizer and return the query. Raises GoneError if it is gone."""
        ...

    def remove_finalizer(self, key: QueryKey, body: Mapping[str, Any], finalizer: str) -> None:
        """Remove the finalizer from the observed version of a query. Raises GoneError if it is gone."""
        ...

    def post_event(self, key: QueryKey, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Post an event about a query."""
        ...


class Objects(Protocol):
    """API for the objects of queries."""

    def apply(self, manifest: Manifest, *, trial: bool = False) -> Manifest:
        """Create or update an object and return the result. A trial is a dry run and changes nothing.

        Raises ObjectRefusedError if the object is rejected.
        """
        ...

    def drain(self, namespace: str, stateful_set: str) -> Manifest:
        """Scale a StatefulSet to zero pods and return the result."""
        ...


class Reconciler:
    """Reconciler of queries, in its own threads from ``start`` to ``stop``.

    Args:
        queries: API for the status of queries.
        objects: API for the objects of queries.
        image: default image of drivers and executors, for queries without one.
        clock: the time of day.
        metrics: the operator's own metrics.
    """

    def __init__(
        self,
        queries: Queries,
        objects: Objects,
        image: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        metrics: OperatorMetrics | None = None,
    ) -> None:
        self.observations = Observations()
        self._metrics = metrics or OperatorMetrics()
        self.queue: WorkQueue[QueryKey] = WorkQueue(metrics=self._metrics)
        self.scaled: dict[QueryKey, Scaled] = {}
        """Last scaling result of each query; the autoscaler stores it here and queues the query."""
        self._queries = queries
        self._objects = objects
        self._image = image
        self._clock = clock
        self._rounds = Rounds()
        self._events = EventBudget()
        self._valid: dict[QueryKey, tuple[str, int, StreamQuery | MillraceError]] = {}
        self._threads = [threading.Thread(target=self._work, name=f"reconcile-{i}") for i in range(WORKERS)]

    def start(self) -> None:
        """Start reconciling."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the steps in progress; the next start finds the remaining work again."""
        self.queue.close()
        for thread in self._threads:
            thread.join()

    def reconcile(self, key: QueryKey) -> None:
        """Take the next step for one query; do nothing if it matches its spec.

        Planned actions are written to the status before they are carried out, so that they are visible there even after
        a crash between two requests. The next round derives the remaining work from the observed state.
        """
        seen = self.observations.of(key)
        if seen is None:
            self._forget(key)
            return
        now = self._clock()
        scaled = self.scaled.get(key)
        if scaled is not None and scaled.uid != seen.owner.uid:
            scaled = None
        step = next_step(seen, self.query_of(key, seen), self._image, now, scaled)
        try:
            self._try(step)
            self._report(key, seen, step.status)
            self._do(key, seen, step)
        except ObjectRefusedError as error:
            self._valid[key] = (seen.owner.uid, seen.generation, MillraceError(str(error)))
            self.queue.add(key)
            return
        except GoneError:
            log.info("the query is gone")
            self.observations.query_gone(seen.body)  # its deletion may have been observed before this version
            self._forget(key)
            return
        if step.wake is not None:
            self.queue.add_later(key, max((step.wake - now).total_seconds(), 0.0) + 0.5)

    def query_of(self, key: QueryKey, seen: ObservedQuery) -> StreamQuery | MillraceError:
        """Return the validated query, or its validation error; cached per generation of the spec."""
        held = self._valid.get(key)
        if held is None or held[:2] != (seen.owner.uid, seen.generation):
            held = self._valid[key] = (seen.owner.uid, seen.generation, _checked(seen))
        return held[2]

    def _forget(self, key: QueryKey) -> None:
        self._rounds.forget(key)
        self._events.forget(key)
        self._valid.pop(key, None)
        self.scaled.pop(key, None)

    def _report(self, key: QueryKey, seen: ObservedQuery, now: Status) -> None:
        """Write the status if it has changed, and post events for notable changes."""
        before = seen.status
        if now == before:
            return
        self.observations.query_seen(self._queries.write_status(key, seen.owner.uid, now))
        for each in news(before, now):
            log.log(logging.WARNING if each.warning else logging.INFO, "%s: %s", each.reason, each.message)
            if self._events.take(key):
                self._queries.post_event(
                    key, seen.owner.uid, warning=each.warning, reason=each.reason, message=each.message
                )

    def _try(self, step: Step) -> None:
        """Dry-run the object that follows a drain, so that a rejected one leaves the driver running."""
        for action in step.actions:
            if isinstance(action, Drain) and action.trial is not None:
                self._objects.apply(action.trial, trial=True)

    def _do(self, key: QueryKey, seen: ObservedQuery, step: Step) -> None:
        if not step.actions:
            return
        wait = self._rounds.wait(key, step.actions)
        if wait > 0:
            self.queue.add_later(key, wait)
            return
        try:
            for action in step.actions:
                self._carry_out(action, key, seen)
        except Exception:
            self._rounds.forget(key)  # an error is no conflict: only the queue's back-off applies
            raise
        self.queue.add_later(key, LOOK_AGAIN_SECONDS)

    def _carry_out(self, action: Action, key: QueryKey, seen: ObservedQuery) -> None:
        """Carry out an action and store the result without waiting for the watch to report it."""
        match action:
            case Apply(manifest):
                self.observations.object_seen(self._objects.apply(_at_the_version_seen(manifest, seen)))
            case Drain():
                self.observations.object_seen(self._objects.drain(key.namespace, seen.owner.driver))
            case Finalize(present=True):
                self.observations.query_seen(self._queries.add_finalizer(key, seen.owner.uid, FINALIZER))
            case Finalize():
                self._queries.remove_finalizer(key, seen.body, FINALIZER)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            with about(key, self.observations.generation(key)):
                self._work_on(key)

    def _work_on(self, key: QueryKey) -> None:
        try:
            with self._metrics.reconcile():
                self.reconcile(key)
            self.queue.forget(key)
        except Exception as error:  # one failing query must not stop the others
            log.warning("trying again in %.1f s: %s", self.queue.retry(key), in_short(error))
        finally:
            self.queue.done(key)


def _at_the_version_seen(manifest: Manifest, seen: ObservedQuery) -> Manifest:
    """Pin a plan to the observed version, so that a newer plan of another operator is not overwritten.

    All other objects are the same whichever operator applies them.
    """
    held = seen.objects.get((manifest["kind"], manifest["metadata"]["name"]))
    if held is None or manifest["metadata"]["name"] != seen.owner.plan:
        return manifest
    version = {"resourceVersion": held["metadata"].get("resourceVersion")}
    return manifest | {"metadata": manifest["metadata"] | version}


def _checked(seen: ObservedQuery) -> StreamQuery | MillraceError:
    try:
        query = read_query(seen.body)
        if forbidden := problems(query):
            raise MillraceError(*forbidden)
        return query
    except MillraceError as error:
        return error


class Rounds:
    """Back-off between rounds that apply the same objects, so that two clients do not fight over one.

    The pause doubles with each round. It is reset after ``QUIET`` seconds without a round, and when there is something
    else to apply.
    """

    FIRST, LONGEST, QUIET = 1.0, 300.0, 300.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next: dict[QueryKey, tuple[float, float, object]] = {}

    def wait(self, key: QueryKey, wanted: object = None) -> float:
        """Return the seconds until a round that applies ``wanted`` may start; 0 starts the round now."""
        with self._lock:
            now = self._clock()
            due, pause, before = self._next.get(key, (now, self.FIRST, wanted))
            if wanted != before:
                due, pause = now, self.FIRST
            if due > now:
                return due - now
            if now > due + self.QUIET:
                pause = self.FIRST
            self._next[key] = (now + pause, min(2 * pause, self.LONGEST), wanted)
            return 0.0

    def forget(self, key: QueryKey) -> None:
        """Reset the back-off of a query."""
        with self._lock:
            self._next.pop(key, None)
