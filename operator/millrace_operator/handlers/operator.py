"""Assembly, start and stop of the operator; and the events of queries, which are stored and queued.

An event goes to ``lifecycle.observation_cache``, and its query to the queue of ``lifecycle.reconcile``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from millrace_api.crd import PLURAL
from millrace_api.model.values import OBJECT_NAME_LENGTH
from millrace_support.bounded_server import ALL_ADDRESSES
from millrace_support.http_server import HttpServer, ProbeResult

from ..kube.client import QUERIES, Client, load_configuration, own_account, own_namespace
from ..kube.informer import Informer, wait_until_listed
from ..kube.lease_api import LeaseApi
from ..kube.object_api import ObjectApi
from ..kube.query_api import QueryApi
from ..leadership.election import Timing
from ..leadership.leader import Leader
from ..leadership.shard import Shard
from ..lifecycle.autoscaling.autoscaler import AskMetrics, Autoscaler
from ..lifecycle.canary import is_canary
from ..lifecycle.chains.chain_updates import ChainUpdates
from ..lifecycle.objects.object_sizes import NAMESPACE_BYTES
from ..lifecycle.observed_query import QueryKey
from ..lifecycle.query_row import query_rows
from ..lifecycle.reconcile import Reconciler
from ..metrics_source.client import Prometheus
from ..metrics_source.job_metrics import newest_answer
from ..metrics_source.settings import PrometheusSettings
from ..resources.names import Owner
from ..resources.permissions import Permissions
from ..resources.pod_defaults import PodDefaults
from ..resources.tenancy_policy import TenancyPolicy
from ..scaling.observation import Answer
from ..telemetry.metrics import OperatorMetrics
from ..telemetry.watches import Watches
from .canary import Canary, CanaryApi
from .fleet_page import ServedFleet
from .owned_objects import DEBOUNCE_SECONDS, OwnedObjects

LEASE = "millrace-operator"
"""Default name of the Lease; each shard has its own Lease."""

_CHAINS_SECONDS = 60.0
"""Time for which the first step waits until the chains of all listed queries are known."""

_ENDED_STATUS = 1
"""Exit status of an operator that ends itself, to be started again by Kubernetes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OperatorOptions:
    """Options of ``millrace operator``, with their defaults."""

    pods: PodDefaults = field(default_factory=lambda: PodDefaults(os.environ.get("MILLRACE_IMAGE") or "millrace-jobs"))
    namespaces: tuple[str, ...] = ()
    shard: Shard = field(default_factory=Shard)
    leader_elect: bool = True
    lease_namespace: str | None = None
    lease_name: str = LEASE
    timing: Timing = field(default_factory=Timing)
    bind: str = ALL_ADDRESSES  # Prometheus and the kubelet ask from elsewhere
    port: int = 8080
    prometheus: PrometheusSettings | None = None
    policy: TenancyPolicy = field(default_factory=TenancyPolicy)
    namespace_bytes: int = NAMESPACE_BYTES
    page_port: int | None = None


class Operator:
    """Operator process: watches the cluster from ``start`` to ``stop``, and reconciles and scales while it leads.

    Raises:
        MillraceError: no cluster is configured, the cluster does not know StreamQueries, or the port is taken.
    """

    def __init__(self, options: OperatorOptions) -> None:
        load_configuration()
        self._shard = options.shard
        # outside a pod, the first watched namespace
        home = options.lease_namespace or own_namespace() or next(iter(options.namespaces), "default")
        self._metrics = OperatorMetrics()
        self._leader: Leader | None = None
        if options.leader_elect:
            leases = LeaseApi(Client(self._metrics), home, self._shard.name(options.lease_name))
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            self._leader = Leader(leases, identity, options.timing, self._on_lead, _give_way)
        client = Client(self._metrics, self._leader.require) if self._leader else Client(self._metrics)
        objects, queries = ObjectApi(client), QueryApi(client)
        queries.require_kinds(options.namespaces)
        name = canary_of(options.lease_name, self._shard)
        self._canary = Canary(
            name,
            {namespace: CanaryApi(client, namespace, name) for namespace in options.namespaces or (home,)},
            lambda namespace: self.watches.is_refused(PLURAL, namespace),
        )
        self._reconciler = Reconciler(
            queries,
            objects,
            options.pods,
            metrics=self._metrics,
            on_error=lambda key, error: self._canary.failed(*key, error),
            permissions=Permissions(options.policy, own_account()),
            namespace_bytes=options.namespace_bytes,
        )
        connections = self._reconciler.observations.connections
        self._chain_updates = ChainUpdates(self._reconciler.chains, self._queue_all, connections.brokers_of)
        connections.on_brokers = self._chain_updates.connection_changed
        self._autoscaler = Autoscaler(self._reconciler, objects, self._metrics, _metrics_reader(options.prometheus))
        watcher = Client(self._metrics)
        self._page: ServedFleet | None = None
        if options.page_port is not None:
            self._page = ServedFleet(
                watcher,
                self._reconciler.observations,
                self.watches,
                lambda: self._canary.age,
                options.namespace_bytes,
                options.bind,
                options.page_port,
            )
        self._query_informers = [
            Informer(
                watcher,
                QUERIES,
                namespace,
                self._on_event,
                self.watches.of(PLURAL, namespace),
                begin_afresh,
                selector="",
            )
            for namespace in options.namespaces or (None,)
        ]
        self._owned = OwnedObjects(
            watcher,
            options.namespaces,
            self._reconciler.observations,
            self._reconciler.queue,
            self._shard.owns,
            self.watches,
            begin_afresh,
        )
        self._loops = (self._reconciler, self._autoscaler)
        self._lock, self._event_lock = threading.Lock(), threading.Lock()
        self._stopped = threading.Event()
        self._started = self._ended = False
        self._server = HttpServer(self._metrics.registry, self._liveness, self._readiness, options.bind, options.port)
        self._metrics.show(
            queue_depth=lambda: len(self._reconciler.queue),
            phases=self._reconciler.observations.phases,
            queries=lambda: query_rows(self._reconciler.observations),
            leads=self._leads,
            canary_age=lambda: self._canary.age,
            canary_path=lambda: self._canary.path,
            kept_bytes=self._reconciler.observations.kept_bytes,
        )

    @property
    def watches(self) -> Watches:
        """Health of all watches of this operator."""
        return self._metrics.watches

    def start(self) -> None:
        """Start the HTTP endpoint, the watches and the leader election."""
        self._server.start()
        log.info("metrics and probes are on port %d", self._server.port)
        self._owned.start()
        for informer in self._query_informers:
            informer.start()
        self._chain_updates.start()
        if self._page is not None:
            self._page.start()
        self._canary.stand_by()
        if self._leader is None:
            self._on_lead()
        else:
            self._leader.start()

    def stop(self) -> None:
        """Finish the steps in progress and release the lease."""
        self._stopped.set()
        self._owned.stop()
        for informer in self._query_informers:
            informer.stop()
        self._chain_updates.stop()
        with self._lock:
            self._ended = True
            if self._started:
                for loop in self._loops:
                    loop.stop()
        self._canary.stop()
        if self._leader is not None:
            self._leader.release()
        if self._page is not None:
            self._page.close()
        self._server.close()

    def _on_event(self, kind: str, body: Mapping[str, Any]) -> None:
        """Handle a query that was LISTED, ADDED, MODIFIED or DELETED; each namespace may have a watch of its own.

        Queries of all shards are noted for the chains, which queue the queries after it if their status changes, and
        for the rollouts of Connections, in which others may have waited for it. One event is handled at a time, and
        none waits for a request.
        """
        gone = kind == "DELETED" or is_canary(body)
        with self._event_lock:
            self._chain_updates.note(body, gone=gone)
            self._queue_all(self._reconciler.rollouts.note(body, gone=gone))
            self._on_query(kind, body)

    def _on_query(self, kind: str, body: Mapping[str, Any]) -> None:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        if self._canary.owns(namespace, name) and (kind == "DELETED" or not is_canary(body)):
            self._canary.disturbed(namespace)
        if is_canary(body):
            if self._canary.owns(namespace, name):
                self._on_canary(kind, body)
                return
            kind = "DELETED"  # a query that is labeled as one later is no longer this operator's
        if self._shard.owns(namespace, name):
            observations, queue = self._reconciler.observations, self._reconciler.queue
            if kind != "DELETED" and observations.is_stored(body):  # as a status is that the operator has just written
                queue.add_later(QueryKey(namespace, name), DEBOUNCE_SECONDS)
                return
            key = observations.query_gone(body) if kind == "DELETED" else observations.query_seen(body)
            queue.add(key, new=kind == "ADDED")
        elif self._page is not None:
            self._page.note_other(kind, body)

    def _on_canary(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "DELETED":
            self._reconciler.observations.query_gone(body)  # the next touch makes another
            return
        key = self._reconciler.observations.query_seen(body)
        if self._canary.seen(body):
            self._reconciler.queue.add_first(key)

    def _queue_all(self, queries: Iterable[tuple[str, str]]) -> None:
        for key in queries:
            if self._shard.owns(*key):
                self._reconciler.queue.add_later(QueryKey(*key), DEBOUNCE_SECONDS)

    def _on_lead(self) -> None:
        """Start to reconcile once all objects are listed, in a thread so that the lease is renewed meanwhile."""
        threading.Thread(target=self._start_loops, name="begin", daemon=True).start()

    def _start_loops(self) -> None:
        if not wait_until_listed([*self._owned.required, *self._query_informers], self._stopped):
            return
        self._chain_updates.wait(_CHAINS_SECONDS)
        with self._lock:
            if not self._ended:
                log.info("this operator leads")
                for loop in self._loops:
                    loop.start()
                self._canary.lead()
                self._started = True

    def _leads(self) -> bool:
        return self._started if self._leader is None else self._leader.leads()

    def _liveness(self) -> ProbeResult:
        if dead := ", ".join(self._canary.dead):
            return ProbeResult(False, f"the watch of StreamQueries is dead: it does not show the canary in {dead}")
        if stuck := ", ".join(self._canary.stuck):
            return ProbeResult(False, f"the workers hang: nothing answers the canary in {stuck}")
        return ProbeResult(True, "ok")

    def _readiness(self) -> ProbeResult:
        if stale := "; ".join(f"{each} has heard nothing for {each.age:.0f} s" for each in self.watches.stale):
            return ProbeResult(False, stale)
        if self._canary.age is None:
            return ProbeResult(False, "the watched objects are not all listed yet, or no operator leads yet")
        return ProbeResult(True, "ok")


def canary_of(lease: str, shard: Shard) -> str:
    """Return the name of the canaries for a Lease, by default ``millrace-canary``; each shard has its own.

    Queries must have shorter names than Leases, so a hash replaces the end of a name that is too long.
    """
    name = shard.name(f"{lease.removesuffix('-operator')}-canary")
    if len(name) <= OBJECT_NAME_LENGTH:
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    return f"{name[: OBJECT_NAME_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def begin_afresh() -> None:
    """End the process, to be started again: what it remembers is of a later time than what the API server stores."""
    _exit_at_once("the API server's store was restored from a backup: ending with status %d, to begin afresh")


def _give_way() -> None:
    """End the process, since another operator may be working already."""
    _exit_at_once("the lease is lost: ending with status %d, to be started again as a standby")


def _exit_at_once(why: str) -> None:
    """End the process at once, whatever its threads wait for."""
    log.critical(why, _ENDED_STATUS)
    sys.stderr.flush()
    os._exit(_ENDED_STATUS)


def _metrics_reader(settings: PrometheusSettings | None) -> AskMetrics | None:
    """Return a function that reads a query's metrics from Prometheus; None without settings."""
    if settings is None:
        return None
    prometheus = Prometheus(settings)

    def ask(key: QueryKey, now: float, executors: int | None) -> Answer | None:
        owner = Owner(*key, uid="")
        pods = f"{re.escape(owner.driver_pod)}|{re.escape(owner.partitioner)}-[0-9]+"
        return newest_answer(prometheus, *key, pods, now, executors)

    return ask
