"""The queries of the fleet as the operator's caches have them, each computed again only when it has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from millrace_api.model.status import Phase
from millrace_support.pages.verdict import PageFinding, Severity

from ..lifecycle.objects.kept_object import KeptObject
from ..lifecycle.observation_cache import ObservationCache
from ..lifecycle.observed_query import QueryKey
from ..lifecycle.query_view import QueryView
from .access import Visible
from .query_findings import query_findings

FRESH_SECONDS = 30.0
"""Seconds after which a query that has not changed is judged again, since its findings depend on the time."""


@dataclass(frozen=True)
class FleetRow:
    """What the table of the fleet has of a query; None is a figure that is not known.

    Attributes:
        finding: the most urgent finding.
        busy: processing time of a batch over the batch interval, W.
        rate: records per second that arrive.
        executors: executors that are ready and wanted, such as ``3 of 4``.
        plan: algorithm, workers n and replicas m.
        created: when the query was created, as a Kubernetes timestamp.
    """

    namespace: str
    name: str
    finding: PageFinding
    phase: str
    busy: float | None
    rate: float | None
    lag: int | None
    executors: str
    plan: str
    restarts: int
    created: str | None
    is_suspended: bool

    @property
    def rank(self) -> tuple[object, ...]:
        """What queries are sorted by, the worst first; suspended ones come last, as nothing of them runs."""
        busy, lag = self.busy or 0.0, self.lag or 0
        return -self.finding.severity, self.is_suspended, -busy, -lag, self.namespace, self.name


def row_of(view: QueryView, now: datetime) -> FleetRow:
    """Return the row of a query."""
    status = view.status
    load = status.load if status.phase is Phase.RUNNING else None
    plan = None if status.phase is Phase.SUSPENDED else status.plan
    ready = None if load is None else load.executors_ready
    executors = "-" if plan is None else str(plan.executors) if ready is None else f"{ready} of {plan.executors}"
    executors = "at rest" if plan is not None and not plan.executors else executors
    finding = query_findings(view, now)[0]
    return FleetRow(
        namespace=view.namespace,
        name=view.name,
        finding=finding,
        phase=view.phase,
        busy=None if load is None else load.utilization,
        rate=None if load is None else load.input_rate,
        lag=None if load is None else load.lag,
        executors=executors,
        plan="-" if plan is None else f"{plan.algorithm.value} {plan.parallelism}/{plan.replicas}",
        restarts=0 if status.driver is None else status.driver.restarts,
        created=view.created,
        is_suspended=finding.severity == Severity.WELL and status.phase is Phase.SUSPENDED,
    )


class FleetQueries:
    """All queries of some caches. All methods may be called from any thread.

    Args:
        caches: caches of queries, none of which has a query of another one.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, caches: Sequence[ObservationCache], clock: Callable[[], float] = time.monotonic) -> None:
        self._caches, self._clock = caches, clock
        self._lock = Lock()
        self._rows: dict[QueryKey, tuple[KeptObject, float, FleetRow]] = {}

    def namespaces(self) -> Collection[str]:
        """Return the namespaces that have queries."""
        return {key.namespace for cache in self._caches for key, _ in cache.kept_queries()}

    def rows(self, visible: Visible, now: datetime) -> list[FleetRow]:
        """Return the rows of the queries that a user sees, as they are at a time, the worst first."""
        kept = {key: each for cache in self._caches for key, each in cache.kept_queries()}
        at = self._clock()
        found: list[FleetRow] = []
        with self._lock:
            for key, each in kept.items():
                if key.namespace in visible:
                    found.append(self._row(key, each, at, now))
            for key in self._rows.keys() - kept.keys():
                del self._rows[key]
        return sorted(found, key=lambda row: row.rank)

    def query(self, namespace: str, name: str) -> QueryView | None:
        """Return a query; None if there is no such query."""
        for cache in self._caches:
            kept: Mapping[QueryKey, KeptObject] = dict(cache.kept_queries())
            if (found := kept.get(QueryKey(namespace, name))) is not None:
                return QueryView(found.body())
        return None

    def _row(self, key: QueryKey, kept: KeptObject, at: float, now: datetime) -> FleetRow:
        before = self._rows.get(key)
        if before is not None and before[0] is kept and at - before[1] < FRESH_SECONDS:
            return before[2]
        row = row_of(QueryView(kept.body()), now)
        self._rows[key] = kept, at, row
        return row
