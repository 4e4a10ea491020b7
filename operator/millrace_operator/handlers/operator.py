"""Assembly, start and stop of the operator."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import uuid
from dataclasses import dataclass, field

from millrace_support.http_server import HttpServer, ProbeResult

from ..kube.canary import CanaryApi
from ..kube.client import Client, load_configuration, unfenced
from ..kube.cluster import own_namespace
from ..kube.leases import LeaseApi
from ..kube.objects import ObjectApi
from ..kube.queries import QueryApi
from ..kube.raw import Raw
from ..leadership.election import Timing
from ..leadership.leader import Leader
from ..leadership.shard import Shard
from ..lifecycle.autoscaler import Autoscaler
from ..lifecycle.reconcile import Reconciler
from ..metrics_source.settings import PrometheusSettings
from ..telemetry.metrics import OperatorMetrics
from .canary import Canary
from .objects import OwnedObjects
from .scaling import asks

LEASE = "millrace-operator"
"""Default name of the Lease; each shard has its own Lease."""

LOST = 1
"""Exit status of an operator that has lost the lease; Kubernetes restarts it as a standby."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OperatorOptions:
    """Options of ``millrace operator``, with their defaults."""

    image: str = field(default_factory=lambda: os.environ.get("MILLRACE_IMAGE") or "millrace-jobs")
    namespaces: tuple[str, ...] = ()
    shard: Shard = field(default_factory=Shard)
    leader_elect: bool = True
    lease_namespace: str | None = None
    lease_name: str = LEASE
    timing: Timing = field(default_factory=Timing)
    bind: str = "0.0.0.0"  # noqa: S104 - Prometheus and the kubelet ask from elsewhere
    port: int = 8080
    prometheus: PrometheusSettings | None = None


class Operator:
    """Operator process: watches the cluster from ``start`` to ``stop``, and reconciles and scales while it leads.

    Raises:
        MillraceError: no cluster is configured, the cluster does not know StreamQueries, or the port is taken.
    """

    def __init__(self, options: OperatorOptions) -> None:
        load_configuration()
        self.shard = options.shard
        home = options.lease_namespace or _home(options)
        self._metrics = OperatorMetrics()
        self._leader: Leader | None = None
        if options.leader_elect:
            leases = LeaseApi(Client(self._metrics), home, self.shard.name(options.lease_name))
            self._leader = Leader(leases, _identity(), options.timing, self._begin, _end_at_once)
        client = Client(self._metrics, self._leader.require if self._leader else unfenced)
        objects, queries = ObjectApi(Raw(client)), QueryApi(client)
        queries.require_kind(options.namespaces)
        self.reconciler = Reconciler(queries, objects, options.image, metrics=self._metrics)
        self.autoscaler = Autoscaler(self.reconciler, objects, self._metrics, asks(options.prometheus))
        self._owned = OwnedObjects(
            Raw(Client(self._metrics)),
            options.namespaces,
            self.reconciler.observations,
            self.reconciler.queue,
            self.owns,
        )
        name = self.shard.name(canary_of(options.lease_name))
        self.canary = Canary(
            name, {namespace: CanaryApi(client, namespace, name) for namespace in options.namespaces or (home,)}
        )
        self._works = (self.reconciler, self.autoscaler)
        self._turning = threading.Lock()
        self._working = self._ended = False
        self._server = HttpServer(self._metrics.registry, self._liveness, self._readiness, options.bind, options.port)
        self._metrics.show(
            queue_depth=lambda: len(self.reconciler.queue),
            phases=self.reconciler.observations.phases,
            leads=self._leads,
            canary_age=lambda: self.canary.age,
        )

    def start(self) -> None:
        """Start the HTTP endpoint, the watches and the leader election."""
        self._server.start()
        log.info("metrics and probes are on port %d", self._server.port)
        self._owned.start()
        self.canary.stand_by()
        if self._leader is None:
            self._begin()
        else:
            self._leader.start()

    def stop(self) -> None:
        """Finish the steps in progress and release the lease."""
        self._owned.stop()
        with self._turning:
            self._ended = True
            if self._working:
                for work in self._works:
                    work.stop()
        self.canary.stop()
        if self._leader is not None:
            self._leader.release()
        self._server.close()

    def owns(self, namespace: str, name: str) -> bool:
        """Return whether a query belongs to this operator's shard."""
        return self.shard.owns(namespace, name)

    def _begin(self) -> None:
        """Start to reconcile once all objects are listed, in a thread so that the lease is renewed meanwhile."""
        threading.Thread(target=self._begin_when_listed, name="begin", daemon=True).start()

    def _begin_when_listed(self) -> None:
        if not self._owned.wait():
            return
        with self._turning:
            if not self._ended:
                log.info("this operator leads")
                for work in self._works:
                    work.start()
                self.canary.lead()
                self._working = True

    def _leads(self) -> bool:
        return self._working if self._leader is None else self._leader.leads()

    def _liveness(self) -> ProbeResult:
        if dead := ", ".join(self.canary.dead):
            return ProbeResult(False, f"the watch of StreamQueries is dead: it does not show the canary in {dead}")
        return ProbeResult(True, "ok")

    def _readiness(self) -> ProbeResult:
        if self.canary.age is None:
            return ProbeResult(False, "not everything that is watched was listed, or no operator leads yet")
        return ProbeResult(True, "ok")


def canary_of(lease: str) -> str:
    """Return the canaries' base name for a Lease, by default ``millrace-canary``; each shard has its own."""
    return f"{lease.removesuffix('-operator')}-canary"


def _home(options: OperatorOptions) -> str:
    """Return the pod's namespace; outside a pod, the first watched namespace or ``default``."""
    return own_namespace() or (options.namespaces[0] if options.namespaces else "default")


def _identity() -> str:
    """Return a unique identity of this process that includes its host name."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def _end_at_once() -> None:
    """End the process at once, whatever its threads wait for: another operator may be working already."""
    log.critical("the lease is lost: ending with status %d, to be started again as a standby", LOST)
    sys.stderr.flush()
    os._exit(LOST)
