"""The figures of the benchmark, and the tables that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Ages:
    """Percentiles of the seconds from a change to the status that reflects it."""

    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Ages:
        """Return the percentiles of the seconds of several changes."""
        p50, p99, longest = np.percentile(seconds, [50, 99, 100])
        return cls(float(p50), float(p99), float(longest))


@dataclass(frozen=True)
class Creation:
    """The creation of the fleet, from the first applied query until all were Running.

    Attributes:
        applied_seconds: seconds until the last query was applied.
        running_seconds: seconds until the last query was Running.
        processor_seconds, plane_seconds: processor time of the operator and of the whole control plane.
        status_age: seconds from a driver's readiness to the phase Running.
        all_requests: requests of all clients to the API server, by verb and resource.
        operator_requests: the operator's changes among them.
        reconciles, reconcile_seconds: number of the operator's steps, and their seconds in total.
        request_seconds: seconds of all the operator's requests.
        retries: steps that failed and were tried again.
    """

    applied_seconds: float
    running_seconds: float
    processor_seconds: float
    plane_seconds: float
    status_age: Ages
    all_requests: Mapping[str, int]
    operator_requests: Mapping[str, int]
    reconciles: float
    reconcile_seconds: float
    request_seconds: float
    retries: float


@dataclass(frozen=True)
class Rest:
    """The operator at rest: its ``share`` of a processor, and its changes, those of the canary counted separately."""

    seconds: float
    share: float
    operator_requests: Mapping[str, int]
    canary_requests: int


@dataclass(frozen=True)
class Restart:
    """A restart, from the start of the new process until it had reconciled each query, and the changes it made."""

    seconds: float
    processor_seconds: float
    reconciles: float
    operator_requests: Mapping[str, int]


@dataclass(frozen=True)
class Deletion:
    """The deletion of the fleet, until the queries and then their objects were gone. Kubernetes deletes the objects."""

    queries_seconds: float
    objects_seconds: float
    operator_requests: Mapping[str, int]


@dataclass(frozen=True)
class OperatorFigures:
    """All figures of one run. ``peak_memory`` is the operator's, in bytes."""

    queries: int
    creation: Creation
    changes: Ages
    rest: Rest
    restart: Restart
    deletion: Deletion
    peak_memory: int


def show(figures: OperatorFigures, console: Console) -> None:
    """Print the measured figures beside their targets, and the requests."""
    made, rest, restart = figures.creation, figures.rest, figures.restart
    changes, requests = sum(made.operator_requests.values()), sum(made.all_requests.values())
    per_minute = 60 / rest.seconds / figures.queries
    rows = (
        ("all queries Running", f"{made.running_seconds:.1f} s", ""),
        ("applied within", f"{made.applied_seconds:.1f} s", ""),
        ("brought to Running", f"{60 * figures.queries / made.running_seconds:,.0f} a minute", "600"),
        ("operator: peak memory", f"{figures.peak_memory / 1e6:,.0f} MB", "under 400 MB"),
        ("operator: processor, per query", f"{1e3 * made.processor_seconds / figures.queries:.0f} ms", ""),
        ("control plane: processor, per query", f"{1e3 * made.plane_seconds / figures.queries:.0f} ms", ""),
        ("operator: changes, per query", f"{changes / figures.queries:.2f}", ""),
        ("all clients: requests, per query", f"{requests / figures.queries:.2f}", ""),
        ("operator: steps, per query", f"{made.reconciles / figures.queries:.2f}", ""),
        ("status age, driver ready, p50/p99", _ages(made.status_age), "under 30 s"),
        ("status age, spec changed, p50/p99", _ages(figures.changes), "under 30 s"),
        ("at rest: changes, per query and minute", f"{_total(rest.operator_requests) * per_minute:.3f}", "under 1"),
        ("at rest: share of a processor", f"{rest.share:.2%}", ""),
        ("restart: all queries reconciled", f"{restart.seconds:.1f} s", ""),
        ("restart: changes", str(_total(restart.operator_requests)), "0"),
        ("deletion: queries gone", f"{figures.deletion.queries_seconds:.1f} s", ""),
        ("deletion: their objects gone", f"{figures.deletion.objects_seconds:.1f} s", ""),
    )
    table = Table("", "measured", "target", title=f"the operator with {figures.queries} queries")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    _show_requests(figures, console)


def _show_requests(figures: OperatorFigures, console: Console) -> None:
    """Print the operator's changes and the most frequent requests of others, until all queries were Running."""
    made = figures.creation
    table = Table("request", "operator", "others", title="requests per query until Running")
    for request, count in sorted(made.all_requests.items(), key=lambda item: -item[1]):
        # the server's metrics and the audit log have different names for server-side apply and for creation
        ours = made.operator_requests.get(request.replace("APPLY ", "PATCH ").replace("POST ", "CREATE "), 0)
        if count >= figures.queries / 20:
            table.add_row(request, f"{ours / figures.queries:.2f}", f"{(count - ours) / figures.queries:.2f}")
    console.print(table)


def _ages(ages: Ages) -> str:
    return f"{ages.p50:.2f} / {ages.p99:.2f} s"


def _total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
