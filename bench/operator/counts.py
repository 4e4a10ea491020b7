"""Requests to the API server: all of them from its metrics, and the operator's changes from its audit log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from tests.lab.control_plane import ControlPlane

USER = "operator-a"
"""User name of the operator, by which the audit log identifies its changes."""

CANARY = "millrace-canary"

Counts = Counter[str]
"""Requests by verb and resource, such as ``PATCH streamqueries/status``."""


@dataclass(frozen=True)
class Requests:
    """Numbers of requests so far.

    Attributes:
        all: requests of all clients. A watch counts as one request, when it ends.
        operator: the operator's changes, except those of the canary.
        canary: the operator's changes of the canary, which do not depend on the number of queries.
    """

    all: Counts
    operator: Counts
    canary: int

    def since(self, before: Requests) -> Requests:
        """Return the requests since ``before``."""
        return Requests(self.all - before.all, self.operator - before.operator, self.canary - before.canary)


def requests(plane: ControlPlane) -> Requests:
    """Return all requests so far."""
    changes = [event for event in plane.changes() if event["user"]["username"] == USER]
    touches = [event for event in changes if event["objectRef"].get("name") == CANARY]
    ours = Counter(
        f"{event['verb'].upper()} {_resource(event['objectRef']['resource'], event['objectRef'].get('subresource'))}"
        for event in changes
        if event["objectRef"].get("name") != CANARY
    )
    return Requests(_served(plane), ours, len(touches))


def _served(plane: ControlPlane) -> Counts:
    page = plane.kubectl("get", "--raw", "/metrics").stdout
    found: Counts = Counter()
    for family in text_string_to_metric_families(page):
        if family.name == "apiserver_request":
            for sample in family.samples:
                resource = _resource(sample.labels["resource"], sample.labels["subresource"])
                found[f"{sample.labels['verb']} {resource}"] += int(sample.value)
    return found


def _resource(resource: str, subresource: str | None) -> str:
    return f"{resource}/{subresource}" if subresource else resource
