"""The page of the fleet in the operator: its server, and the queries of other shards, which only the page needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from millrace_support.pages.verdict import PageFinding, Severity

from ..kube.client import Client
from ..kube.review_api import ReviewApi
from ..lifecycle.observation_cache import ObservationCache
from ..page.access import Access
from ..page.driver_page import DriverPages
from ..page.fleet import FleetQueries
from ..page.server import FleetPages, FleetServer
from ..telemetry.watches import STALE_SECONDS, Watches

_UNTOUCHED_SECONDS = 120.0
"""Age of the canary from which it is doubtful whether an operator leads: a leader touches it every 30 seconds."""

_SEE_OPERATORS = "look at the operator's pods and logs"

log = logging.getLogger(__name__)


class ServedFleet:
    """The page, served from ``start`` to ``close`` by leaders and standbys alike, since both watch all queries.

    Args:
        client: an unfenced client, for reviews.
        observations: the queries of this operator's shard.
        watches: health of the watches, without which figures are old.
        canary_age: returns the seconds since a leader last touched the canary; None before that was seen.
        namespace_bytes: bytes of JSON that are kept of the queries of other shards in one namespace.
        host, port: address and port to listen on.

    Raises:
        MillraceError: the server cannot listen on the address.
    """

    def __init__(
        self,
        client: Client,
        observations: ObservationCache,
        watches: Watches,
        canary_age: Callable[[], float | None],
        namespace_bytes: int,
        host: str,
        port: int,
    ) -> None:
        self._others = ObservationCache(namespace_bytes=namespace_bytes)
        self._watches, self._canary_age = watches, canary_age
        fleet, access = FleetQueries([observations, self._others]), Access(ReviewApi(client))
        self._server = FleetServer(
            FleetPages(fleet, access, DriverPages(client.configuration), self._health), host, port
        )

    def note_other(self, kind: str, body: Mapping[str, Any]) -> None:
        """Store a query of another shard as it was LISTED, ADDED, MODIFIED or DELETED."""
        if kind == "DELETED":
            self._others.query_gone(body)
        else:
            self._others.query_seen(body)

    def start(self) -> None:
        """Start answering."""
        self._server.start()
        log.info("the page of the fleet is on port %d", self._server.port)

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    def _health(self) -> list[PageFinding]:
        """Return why figures may be old or missing, without the names of namespaces."""
        found = []
        if refused := len(self._watches.refused):
            reason = f"the API server does not let this operator watch {refused} of the namespaces that it is to watch"
            remedy = "grant the operator its rights there, or remove the namespaces from those that it watches"
            found.append(PageFinding(Severity.WARNING, "Not all is shown", reason, remedy))
        stale, age = self._watches.stale, self._canary_age()
        if stale:
            reason = f"this operator has heard nothing from the API server for {stale[0].age:.0f} s"
            found.append(PageFinding(Severity.WARNING, "Figures are old", reason, "check that the API server is up"))
        elif age is None:
            reason = "this operator has not listed all queries yet, or none leads yet"
            found.append(PageFinding(Severity.WARNING, "Starting", reason, "reload the page in a minute"))
        elif age > STALE_SECONDS:
            reason = f"no operator has led for {age:.0f} s, so that no query is deployed, scaled or started again"
            found.append(PageFinding(Severity.WARNING, "No operator leads", reason, _SEE_OPERATORS))
        elif age > _UNTOUCHED_SECONDS:  # a watch that has broken meanwhile is not known to be stale yet
            reason = f"for {age:.0f} s, no operator has led, or this one has heard nothing from the API server"
            found.append(PageFinding(Severity.WARNING, "No sign of a leader", reason, _SEE_OPERATORS))
        return found
