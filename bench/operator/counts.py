"""Requests to the API server: all of them by its own metrics, the operator's changes by its audit log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from tests.lab.control_plane import ControlPlane

USER = "operator-a"
"""As whom the operator asks; the audit log has what it changes."""

CANARY = "millrace-canary"

Counts = Counter[str]
"""Requests by verb and resource: ``PATCH streamqueries/status``."""


@dataclass(frozen=True)
class Requests:
    """So many until now.

    Attributes:
        all: of everybody, watches as one request each, when they end.
        operator: changes by the operator.
        canary: changes of the canary by the operator, however many queries there are.
    """

    all: Counts
    operator: Counts
    canary: int

    def since(self, before: Requests) -> Requests:
        """What has come since then."""
        return Requests(self.all - before.all, self.operator - before.operator, self.canary - before.canary)


def requests(plane: ControlPlane) -> Requests:
    """All requests until now."""
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
