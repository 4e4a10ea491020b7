"""Reconciliation loop: observes a query, validates it, and takes the next step towards its spec.

What it observes is in ``observation_cache``; ``step`` says what comes next, and ``objects.applying`` changes objects.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakValueDictionary

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import Status
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query

from ..resources.gangs import POD_GROUP
from ..resources.names import Manifest
from ..resources.permissions import MOST_PROBLEMS, Permissions
from ..resources.pod_defaults import PodDefaults
from ..resources.restrictions import problems
from ..telemetry.logs import about, in_short
from ..telemetry.metrics import OperatorMetrics
from .actions import Action, Apply, Compare, Drain, Drop, DropPodGroup, DropSecret, Finalize, MakeSecret
from .autoscaling.waking import woken
from .canary import is_canary
from .chains.chains import Chains
from .checked_queries import CheckedQueries
from .connections.connection_rollouts import ConnectionRollouts
from .events import EVENTS_OF_NAMESPACE, SECONDS_EACH_OF_NAMESPACE, StatusEvent, events_of
from .objects.applying import Objects, apply
from .objects.object_sizes import NAMESPACE_BYTES
from .observation_cache import ObservationCache
from .observed_query import ObservedQuery, QueryKey
from .pods.executor_failures import recent_failures
from .pods.missing_pods import missing_pods
from .query_memory import QueryMemory
from .refusals import RefusedError
from .step import DRAIN_MARGIN, FINALIZER, READ_AGAIN_AFTER, Step, next_step
from .target import running_spec
from .token_buckets import TokenBuckets
from .workqueue import WorkQueue

WORKERS, MOST_WORKERS = 8, 4
"""Number of queries reconciled concurrently: in all, and of one namespace, so that others find a free worker."""

REQUEUE_SECONDS = 0.25
"""Seconds between actions and the next reconciliation of a query, so that their effects are observed together."""

REQUEUE_MARGIN = 0.5
"""Seconds added to the time at which a query is due again, since times in a status are in whole seconds."""

REQUESTS, REQUEST_SECONDS = 2000, 0.01
"""Requests that the operator makes for the queries of one namespace: in a burst, and seconds for each one after it.

Changes and dry runs count; watches do not.
"""

REQUESTS_OF_READING = 100
"""Requests that count for reading a query again with all its objects, which may be many and large."""

UNSEEN_SECONDS = 5.0
"""Seconds after which a query is looked at again whose objects may not be listed."""

log = logging.getLogger(__name__)


class GoneError(Exception):
    """The object to change no longer exists."""


class ChangeForbiddenError(Exception):
    """The operator may not make a change."""


class Queries(Protocol):
    """API for the status, the finalizer and the events of queries."""

    def read(self, key: QueryKey) -> Manifest:
        """Return a query. Raises GoneError if it is gone."""

    def read_connection(self, namespace: str, name: str) -> Manifest:
        """Return a Connection. Raises GoneError if it is gone."""

    def write_status(self, key: QueryKey, uid: str, status: Status) -> Manifest:
        """Replace the status of the query with this uid and return the query. Raises GoneError if it is gone."""

    def add_finalizer(self, key: QueryKey, uid: str, finalizer: str) -> Manifest:
        """Set a query's finalizer and return the query. Raises GoneError if it is gone."""

    def remove_finalizer(self, key: QueryKey, body: Mapping[str, Any], finalizer: str) -> None:
        """Remove the finalizer from the observed version of a query. Raises GoneError if it is gone."""

    def post_event(self, key: QueryKey, uid: str, event: StatusEvent) -> None:
        """Post an event about a query."""


class Reconciler:
    """Reconciler of queries, in its own threads from ``start`` to ``stop``.

    Args:
        queries: API for the status of queries.
        objects: API for the objects of queries.
        defaults: settings of the pods of all queries.
        clock: the time of day.
        metrics: the operator's own metrics.
        on_error: called with each step that failed and its error.
        permissions: what queries may ask for; by default, all that no query is refused.
        namespace_bytes: bytes of JSON that are kept of one namespace.
    """

    def __init__(
        self,
        queries: Queries,
        objects: Objects,
        defaults: PodDefaults,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        metrics: OperatorMetrics | None = None,
        on_error: Callable[[QueryKey, Exception], None] = lambda key, error: None,
        permissions: Permissions | None = None,
        namespace_bytes: int = NAMESPACE_BYTES,
    ) -> None:
        self._permissions = permissions or Permissions()
        self.observations = ObservationCache(self._permissions, namespace_bytes, clock)
        self.chains, self.rollouts = Chains(), ConnectionRollouts()
        self._metrics = metrics or OperatorMetrics()
        self.queue: WorkQueue[QueryKey] = WorkQueue(
            metrics=self._metrics, owner=lambda key: key.namespace, most=MOST_WORKERS
        )
        self._queries = queries
        self._objects = objects
        self._defaults = defaults
        self._clock = clock
        self._on_error = on_error
        self._seconds = time.monotonic
        self._events = TokenBuckets(EVENTS_OF_NAMESPACE, SECONDS_EACH_OF_NAMESPACE)
        self._requests = TokenBuckets(REQUESTS, REQUEST_SECONDS)
        self._checked = CheckedQueries()
        self._checks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        """Lock of each namespace in which a query is being checked."""

    def start(self) -> None:
        """Start reconciling."""
        self.queue.start(self._work_on, WORKERS, "reconcile")

    def stop(self) -> None:
        """Stop after the steps in progress; the next start finds the remaining work again."""
        self.queue.stop()

    def _work_on(self, key: QueryKey) -> None:
        with about(key, self.observations.generation(key)):
            try:
                with self._metrics.reconcile(), self.observations.step(key):
                    self.reconcile(key)
                self.queue.forget(key)
            except Exception as error:  # one failing query must not stop the others
                self._on_error(key, error)
                log.warning("trying again in %.1f s: %s", self.queue.retry(key), in_short(error))

    def reconcile(self, key: QueryKey) -> None:
        """Take the next step for one query; do nothing if it matches its spec.

        1. Observe (``_observed``): the query and its objects, as the watches have left them in ``observations``.
        2. Validate (``query_of``): the spec, with its Connections in place, or why it is not valid.
        3. Complete (``_completed``) what was observed by what no watch of the query reports.
        4. Decide (``step.next_step``): the status to write, and the actions to carry out; before, whether a query at
           rest is woken (``woken``).
        5. Take the step (``_take``). The next round derives the remaining work from the observed state.
        """
        now = self._clock()
        observed = self._observed(key, now)
        if observed is None:
            self._checked.forget(key)
            return
        memory = self.observations.memory_of(key, observed.owner.uid)
        if self._is_unseen(key, observed, now):
            self.queue.add_later(key, UNSEEN_SECONDS)
            return
        query = self.query_of(key, observed)
        observed = self._completed(key, memory, observed, query, now)
        refusal = memory.refusal.of(observed)
        waits = refusal is not None and refusal.until > now
        memory.scaling = woken(observed, running_spec(observed, query), memory.scaling, now)
        step = next_step(observed, query, self._defaults, now, memory.scaling, refusal if waits else None)
        try:
            self._take(key, memory, observed, step, tries_everything=refusal is not None and not waits)
        except RefusedError as error:
            if waits:
                raise  # even the last healthy spec is refused: only the queue's back-off applies
            memory.refusal.add(observed, error, now)
            self.queue.add(key)
            return
        except ChangeForbiddenError:
            if observed.deleted_at is None or Finalize(present=False) in step.actions:
                raise
            # its namespace is being deleted, and took the operator's rights with it before the query
            log.warning("nothing may be changed here any more: the query is deleted without waiting for its driver")
            self._queries.remove_finalizer(key, observed.body, FINALIZER)
        except GoneError:
            log.info("the query is gone")
            self.observations.query_gone(observed.body)  # its deletion may have been observed before this version
            self._checked.forget(key)
            return
        for due in (step.requeue_at, memory.pods.due):
            if due is not None:
                self.queue.add_later(key, max((due - now).total_seconds(), 0.0) + REQUEUE_MARGIN)
        if not waits:
            memory.refusal.forget()

    def _observed(self, key: QueryKey, now: datetime) -> ObservedQuery | None:
        """Return what is known of a query; read it again if it was not kept, and there may be room for it now."""
        observed = self.observations.of(key)
        if observed is not None and observed.connections.not_kept:
            self._read_connections(key, observed, now)
            observed = self.observations.of(key)
        if observed is None or observed.no_room is None or not self.observations.has_room(key):
            return observed
        memory = self.observations.memory_of(key, observed.owner.uid)
        if (memory.read_again_at or now) <= now and self._requests.wait(key.namespace) == 0:
            memory.read_again_at = now + READ_AGAIN_AFTER
            self._requests.spend(key.namespace, REQUESTS_OF_READING)
            try:
                self.observations.read_again(key, self._queries.read(key), self._objects.objects_of(observed.owner))
            except GoneError:
                return observed
            return self.observations.of(key)
        return observed

    def _read_connections(self, key: QueryKey, observed: ObservedQuery, now: datetime) -> None:
        """Read Connections of a query that were not kept, if there is room now; else look again later."""
        self.queue.add_later(key, READ_AGAIN_AFTER.total_seconds() + REQUEUE_MARGIN)
        memory = self.observations.memory_of(key, observed.owner.uid)
        if (memory.read_again_at or now) > now or self._requests.wait(key.namespace) > 0:
            return
        for name in observed.connections.not_kept:
            if not self.observations.connections.has_room(key.namespace):
                return
            memory.read_again_at = now + READ_AGAIN_AFTER
            self._requests.spend(key.namespace, 1)
            try:
                queries = self.observations.connection_seen(self._queries.read_connection(key.namespace, name))
            except GoneError:
                continue  # its deletion is reported by the watch
            for each in queries:
                self.queue.add(each)

    def _is_unseen(self, key: QueryKey, observed: ObservedQuery, now: datetime) -> bool:
        """Return whether the query's objects may exist although none is known, as their watches are refused.

        A query that is deleted does not wait for rights that may never come back.
        """
        if is_canary(observed.body) or not self._metrics.watches.refuses(key.namespace):
            return False
        return observed.deleted_at is None or now < observed.deleted_at + DRAIN_MARGIN

    def query_of(self, key: QueryKey, observed: ObservedQuery) -> StreamQuery | MillraceError:
        """Return the validated query, or why it is not valid.

        Queries of one namespace are checked one after the other: a check can take seconds, which its author chooses,
        and all of them share one interpreter.
        """
        if (unreadable := observed.unreadable) is not None:
            return unreadable
        checked = self._checked.get(key, observed)
        if checked is None:
            with self._checks.setdefault(key.namespace, threading.Lock()):
                checked = self._validated(observed)
            self._checked.put(key, observed, checked)
        return checked

    def _validated(self, observed: ObservedQuery) -> StreamQuery | MillraceError:
        try:
            if (too_large := observed.too_large_with_connections) is not None:
                raise too_large
            query = read_query(observed.body, observed.connections.read())
            if forbidden := problems(query):
                raise MillraceError(*forbidden)
            self._permissions.require(query, observed.owner.namespace)
            return query
        except MillraceError as error:
            return type(error)(*error.problems[:MOST_PROBLEMS])  # without the traceback, which holds the whole query
        except Exception as error:  # a library gives up on it: it may wait for another spec, and says so
            return MillraceError(Problem(f"the query cannot be checked: {in_short(error)}", "write it in another way"))

    def _completed(
        self,
        key: QueryKey,
        memory: QueryMemory,
        observed: ObservedQuery,
        query: StreamQuery | MillraceError,
        now: datetime,
    ) -> ObservedQuery:
        """Add the query's chain, its turn to follow Connections, and the pods that the API server refuses."""
        is_readable = observed.unreadable is None
        missing = missing_pods(observed, running_spec(observed, query), self._defaults) if is_readable else []
        refused = memory.pods.refused(missing, self._refuses, now)
        failed = recent_failures(observed.failed_executors, observed.driver, now)
        memory.counts.executors_failed({each.uid: each.attempt.reason for each in failed})
        return replace(
            observed,
            upstream=self.chains.upstream_of(*key),
            rollout=lambda *change: self.rollouts.of(*key, *change),
            refused=refused,
            comparison_refused=memory.comparison.shown(observed),
            new_secret=_unused_secret(memory, observed),
        )

    def _refuses(self, pod: Manifest) -> RefusedError | None:
        self._requests.spend(pod["metadata"]["namespace"], 1)
        return self._objects.refuses(pod)

    def _take(
        self, key: QueryKey, memory: QueryMemory, observed: ObservedQuery, step: Step, *, tries_everything: bool
    ) -> None:
        """Take a step, or queue the query for when its pace allows one: dry runs, then the status, then the actions.

        Planned actions are written to the status before they are carried out, so that they are visible there even after
        a crash between two requests.
        """
        pause = self._pause(key, memory, observed, step)
        if pause > 0:
            self.queue.add_later(key, pause)
            return
        self._dry_run(observed, step, everything=tries_everything)
        self._requests.spend(key.namespace, len(step.actions) + (step.status != observed.status))
        self._write_status(key, memory, observed, step.status)
        self._act(key, memory, observed, step)

    def _pause(self, key: QueryKey, memory: QueryMemory, observed: ObservedQuery, step: Step) -> float:
        """Return the seconds until the step may be taken; one with actions waits only for its namespace's budget."""
        if is_canary(observed.body) or not (step.actions or step.status != observed.status):
            return 0.0
        pace = 0.0 if step.actions else memory.pace.wait(observed.status, step.status, self._seconds())
        return max(pace, self._requests.wait(key.namespace))

    def _dry_run(self, observed: ObservedQuery, step: Step, *, everything: bool) -> None:
        """Dry-run the objects that follow a drain, so that a rejected one leaves the driver running.

        With ``everything``, dry-run all objects: after a refusal, the status should not change for another one.
        """
        for action in step.actions:
            match action:
                case Drain(_, replacements):
                    manifests = replacements
                    if replacements:
                        self._requests.spend(observed.owner.namespace, 1)
                        self._objects.make_secret(observed.owner, dry_run=True)
                case Apply(manifest) if everything:
                    manifests = (manifest,)
                case _:
                    manifests = ()
            for each in manifests:
                self._requests.spend(observed.owner.namespace, 1)
                apply(self._objects, observed, each, dry_run=True)

    def _write_status(self, key: QueryKey, memory: QueryMemory, observed: ObservedQuery, now: Status) -> None:
        """Write the status if it has changed, and post events for notable changes."""
        before = observed.status
        if now == before:
            return
        self.observations.query_seen(self._queries.write_status(key, observed.owner.uid, now))
        memory.pace.written(self._seconds())
        if is_canary(observed.body):  # its status changes with every touch
            return
        memory.counts.status_written(before, now)
        for each in events_of(before, now):
            log.log(logging.WARNING if each.warning else logging.INFO, "%s: %s", each.reason, each.message)
            if not each.logged and memory.events.take(self._seconds()) and self._events.take(key.namespace):
                self._queries.post_event(key, observed.owner.uid, each)

    def _act(self, key: QueryKey, memory: QueryMemory, observed: ObservedQuery, step: Step) -> None:
        if not step.actions:
            return
        wait = memory.rounds.wait(step.actions, self._seconds())
        if wait > 0:
            self.queue.add_later(key, wait)
            return
        try:
            for action in step.actions:
                self._carry_out(action, key, memory, observed)
        except Exception:
            memory.rounds.reset()  # an error is no conflict: only the queue's back-off applies
            raise
        if MakeSecret() in step.actions:
            self.queue.add(key)  # no watch reports it
        else:
            self.queue.add_later(key, REQUEUE_SECONDS)

    def _carry_out(self, action: Action, key: QueryKey, memory: QueryMemory, observed: ObservedQuery) -> None:
        """Carry out an action and store the result without waiting for the watch to report it."""
        match action:
            case Apply(manifest):
                self.observations.object_seen(apply(self._objects, observed, manifest))
            case Compare(manifest):
                try:
                    self.observations.object_seen(apply(self._objects, observed, manifest))
                except RefusedError as error:  # what runs is kept up as ever
                    memory.comparison.add(observed, error, self._clock())
            case Drain(stateful_set):
                uid = observed.objects["StatefulSet", stateful_set]["metadata"]["uid"]
                self.observations.object_seen(self._objects.drain(key.namespace, stateful_set, uid))
            case MakeSecret():
                memory.new_secret = self._objects.make_secret(observed.owner)
            case DropSecret(name):
                self._objects.drop_secret(observed.owner, name)
            case Drop(found):
                self._objects.drop(found)
                if found["kind"] != "Pod":  # which ends first
                    self.observations.object_gone(found)
            case DropPodGroup():
                self._objects.drop_pod_group(observed.owner)
                memory.unwatched.pop((POD_GROUP, observed.owner.name), None)
            case Finalize(present=True):
                self.observations.query_seen(self._queries.add_finalizer(key, observed.owner.uid, FINALIZER))
            case Finalize():
                self._queries.remove_finalizer(key, observed.body, FINALIZER)


def _unused_secret(memory: QueryMemory, observed: ObservedQuery) -> str | None:
    """Return the Secret that was made for the next driver of a query; None if there is none, or if it is used."""
    if memory.new_secret is not None and memory.new_secret == observed.auth_secret:
        memory.new_secret = None
    return memory.new_secret
