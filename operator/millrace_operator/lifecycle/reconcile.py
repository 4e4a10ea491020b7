"""One query at a time: observe it, validate it, and take the next step that brings it to where it should be."""

from __future__ import annotations

import logging
import threading
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
from .event_budget import EventBudget
from .news import news
from .observe import Observations, ObservedQuery, QueryKey
from .rounds import Rounds
from .scaled import Scaled
from .step import FINALIZER, Action, Apply, Drain, Finalize, Step, next_step
from .workqueue import WorkQueue

WORKERS = 8
"""Queries that are worked on at the same time."""

LOOK_AGAIN_SECONDS = 0.25
"""After actions; what comes of them is looked at together."""

log = logging.getLogger(__name__)


class GoneError(Exception):
    """The object that was to be changed is not there any more."""


class ObjectRefusedError(Exception):
    """The API server finds fault with an object, and always will; the message says with what."""


class Queries(Protocol):
    """Writes what the operator has to say of queries."""

    def write_status(self, key: QueryKey, uid: str, status: Status) -> Manifest:
        """Replace the status of the query with this uid; the query after it. Raises GoneError where there is none."""
        ...

    def finalize(self, key: QueryKey, uid: str, finalizer: str) -> Manifest:
        """Set its finalizer; the query after it. Raises GoneError where there is none."""
        ...

    def let_go(self, key: QueryKey, body: Mapping[str, Any], finalizer: str) -> None:
        """Take its finalizer away, as it was seen. Raises GoneError where there is none."""
        ...

    def tell(self, key: QueryKey, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Make an event of it."""
        ...


class Objects(Protocol):
    """Makes the objects of queries."""

    def apply(self, manifest: Manifest, *, trial: bool = False) -> Manifest:
        """Make the object, or make it what the manifest says; what it is then. A trial changes nothing.

        Raises RefusedError where it is not accepted.
        """
        ...

    def drain(self, namespace: str, stateful_set: str) -> Manifest:
        """Let a StatefulSet have no pod; what it is then."""
        ...


class Reconciler:
    """Works on queries in threads of its own, from ``start`` to ``stop``.

    Args:
        queries: where their status is written.
        objects: where their objects are made.
        image: of the drivers and executors of queries that name none.
        clock: the time of day.
        metrics: what is told of the work.
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
        """What scaling said last of each query; scaling puts it here, and the query into the queue."""
        self._queries = queries
        self._objects = objects
        self._image = image
        self._clock = clock
        self._rounds = Rounds()
        self._events = EventBudget()
        self._valid: dict[QueryKey, tuple[str, int, StreamQuery | MillraceError]] = {}
        self._threads = [threading.Thread(target=self._work, name=f"reconcile-{i}") for i in range(WORKERS)]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End when the steps that were begun are done; what is left is found anew by the next start."""
        self.queue.close()
        for thread in self._threads:
            thread.join()

    def reconcile(self, key: QueryKey) -> None:
        """Take the next step for one query; nothing where all is as it should be.

        What is about to be done is in the status before it is done, so whoever looks, also after a crash between any
        two requests, finds it there; and the next round finds from what there is what is left to do.
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
            self.observations.query_gone(seen.body)  # its end may have been told before what was seen of it last
            self._forget(key)
            return
        if step.wake is not None:
            self.queue.add_later(key, max((step.wake - now).total_seconds(), 0.0) + 0.5)

    def query_of(self, key: QueryKey, seen: ObservedQuery) -> StreamQuery | MillraceError:
        """The query, or what is wrong with it; worked out once for each generation of its spec."""
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
        """Write the status where it has changed, and events of what people should know of that."""
        before = seen.status
        if now == before:
            return
        self.observations.query_seen(self._queries.write_status(key, seen.owner.uid, now))
        for each in news(before, now):
            log.log(logging.WARNING if each.warning else logging.INFO, "%s: %s", each.reason, each.message)
            if self._events.take(key):
                self._queries.tell(key, seen.owner.uid, warning=each.warning, reason=each.reason, message=each.message)

    def _try(self, step: Step) -> None:
        """Find out whether the API server takes what shall come after a drain, before there is one."""
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
            self._rounds.forget(key)  # nobody has changed it back: when to try again is the queue's affair alone
            raise
        self.queue.add_later(key, LOOK_AGAIN_SECONDS)

    def _carry_out(self, action: Action, key: QueryKey, seen: ObservedQuery) -> None:
        """Do it, and take down what is there then: the watches tell the same later."""
        match action:
            case Apply(manifest):
                self.observations.object_seen(self._objects.apply(_at_the_version_seen(manifest, seen)))
            case Drain():
                self.observations.object_seen(self._objects.drain(key.namespace, seen.owner.driver))
            case Finalize(present=True):
                self.observations.query_seen(self._queries.finalize(key, seen.owner.uid, FINALIZER))
            case Finalize():
                self._queries.let_go(key, seen.body, FINALIZER)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            with about(key, self.observations.generation(key)):
                self._work_on(key)

    def _work_on(self, key: QueryKey) -> None:
        try:
            with self._metrics.reconcile():
                self.reconcile(key)
            self.queue.forget(key)
        except Exception as error:  # whatever it is, the other queries need their operator
            log.warning("trying again in %.1f s: %s", self.queue.retry(key), in_short(error))
        finally:
            self.queue.done(key)


def _at_the_version_seen(manifest: Manifest, seen: ObservedQuery) -> Manifest:
    """A plan must not go back: one that another operator has written meanwhile is not overwritten.

    Everything else is the same whoever applies it.
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
