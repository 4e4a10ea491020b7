"""The operator as a process, with its metrics, processor time and memory, and the requests to the API server.

The server's metrics count the requests of all clients, and its audit log has the operator's changes.
"""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.processor_time import seconds_of
from lab.control_plane import ControlPlane
from lab.processes import Process

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
    canary = [event for event in changes if event["objectRef"].get("name") == CANARY]
    ours = Counter(
        f"{event['verb'].upper()} {_resource(event['objectRef']['resource'], event['objectRef'].get('subresource'))}"
        for event in changes
        if event["objectRef"].get("name") != CANARY
    )
    return Requests(_served(plane), ours, len(canary))


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


_PATIENCE = 120.0


class RunningOperator:
    """``millrace operator`` on all namespaces, running until ``end``. It is the only one and elects no leader."""

    def __init__(self, plane: ControlPlane, log: Path) -> None:
        kubeconfig = plane.kubeconfig_of(USER, log.with_suffix(".kubeconfig"))
        program = Path(sys.executable).with_name("millrace")
        command: list[str | Path] = [program, "operator", "--no-leader-elect", "--bind", "127.0.0.1", "--port", "0"]
        self._process = Process(command, log, environment={"KUBECONFIG": str(kubeconfig)})

    def end(self) -> None:
        """Send SIGTERM, as Kubernetes does, and wait until the process has ended."""
        self._process.end()

    @property
    def processor_seconds(self) -> float:
        """Processor time of all its threads so far, in seconds."""
        return seconds_of(self._process.pid)

    @property
    def peak_memory(self) -> int:
        """Peak resident memory so far, in bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def metrics(self) -> dict[str, float]:
        """Return the operator's current metrics, summed over their labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port()}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def _port(self) -> int:
        deadline = time.monotonic() + _PATIENCE
        while (found := re.search(r"metrics and probes are on port (\d+)", self._process.said)) is None:
            if self._process.status is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the operator has not announced its port; its output ends: {self._process.said[-3000:]}"
                )
            time.sleep(0.05)
        return int(found[1])
