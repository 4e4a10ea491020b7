"""One query at a time: observe it, validate it, and take the next step that brings it to where it should be."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from millrace_api.errors import MillraceError
from millrace_api.objects import read_query
from millrace_api.status import Status
from millrace_api.streamquery import StreamQuery

from ..resources.names import Manifest
from ..resources.restrictions import problems
from .conditions import ReadyReason, ready_of
from .deploy import outstanding
from .observe import Observations, QueryKey, Seen
from .report import next_status
from .rounds import Rounds
from .workqueue import WorkQueue

WORKERS = 4
"""Queries that are worked on at the same time."""

log = logging.getLogger(__name__)


class GoneError(Exception):
    """The object that was to be changed is not there any more."""


class Queries(Protocol):
    """Writes what the operator has to say of queries."""

    def write_status(self, key: QueryKey, uid: str, status: Status) -> None:
        """Replace the status of the query with this uid. Raises GoneError where there is none."""
        ...

    def tell(self, key: QueryKey, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Make an event of it."""
        ...


class Objects(Protocol):
    """Makes the objects of queries."""

    def apply(self, manifest: Manifest) -> Manifest:
        """Make the object, or make it what the manifest says; what it is then."""
        ...


class Reconciler:
    """Works on queries in threads of its own, from ``start`` to ``stop``.

    Args:
        queries: where their status is written.
        objects: where their objects are made.
        image: of the drivers and executors of queries that name none.
        clock: the time of day.
    """

    def __init__(
        self,
        queries: Queries,
        objects: Objects,
        image: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.observations = Observations()
        self.queue: WorkQueue[QueryKey] = WorkQueue()
        self._queries = queries
        self._objects = objects
        self._image = image
        self._clock = clock
        self._rounds = Rounds()
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
        if seen is None or "deletionTimestamp" in seen.body["metadata"]:
            self._rounds.forget(key)  # what it owns goes with it
            return
        query = _query_of(seen)
        missing = outstanding(seen, query, self._image) if isinstance(query, StreamQuery) else []
        try:
            self._report(key, seen, next_status(seen, query, missing, self._clock()))
        except GoneError:
            log.info("%s is gone", key)
            return
        if missing:
            self._apply(key, missing)

    def _report(self, key: QueryKey, seen: Seen, now: Status) -> None:
        """Write the status where it has changed; an event where it is ready, or is not, for another reason."""
        before = seen.status
        if now == before:
            return
        self._queries.write_status(key, seen.owner.uid, now)
        old, new = ready_of(before), ready_of(now)
        if new is not None and (old is None or old.reason != new.reason):
            warning = new.reason == ReadyReason.INVALID_QUERY
            self._queries.tell(key, seen.owner.uid, warning=warning, reason=new.reason, message=new.message)

    def _apply(self, key: QueryKey, missing: Sequence[Manifest]) -> None:
        wait = self._rounds.wait(key)
        if wait > 0:
            self.queue.add_later(key, wait)
            return
        for manifest in missing:
            self.observations.object_seen(self._objects.apply(manifest))
        self.queue.add(key)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            try:
                self.reconcile(key)
                self.queue.forget(key)
            except Exception as error:  # whatever it is, the other queries need their operator
                log.warning("%s: trying again in %.1f s: %s", key, self.queue.retry(key), error)
            finally:
                self.queue.done(key)


def _query_of(seen: Seen) -> StreamQuery | MillraceError:
    try:
        query = read_query(seen.body)
        if forbidden := problems(query):
            raise MillraceError(*forbidden)
        return query
    except MillraceError as error:
        return error
