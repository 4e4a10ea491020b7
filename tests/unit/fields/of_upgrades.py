"""Probes of how a changed query takes the place of the one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millrace_api.model.status import UpgradeStatus
from millrace_api.model.streamquery import StreamQuery
from millrace_api.model.upgrade import UpgradeVerdict
from millrace_jobs.comparison.compare import ComparedVersion
from millrace_jobs.comparison.upgrade import request_of
from millrace_operator.lifecycle.shadow import is_asked_for, is_passed
from millrace_operator.resources.shadow import longest_seconds

from .documents import ON_CLUSTER
from .probe import ABSENT, Probe, probes, written

DIFFERS = UpgradeStatus(
    revision="r", generation=2, pod="p", start_time="2026-01-31T12:00:00Z", verdict=UpgradeVerdict.DIFFERENT
)


def compares(asked: StreamQuery) -> bool:
    """Return whether a change of the query is compared before it is followed."""
    return is_asked_for(asked.spec)


def passes(asked: StreamQuery) -> bool:
    """Return whether a change is followed whose results differ."""
    return is_passed(DIFFERS, asked.spec)


def compared(asked: StreamQuery) -> tuple[object, ...]:
    """Return what a comparison is asked for."""
    assert asked.spec.upgrade is not None
    version = ComparedVersion(Path("query.yaml"), asked)
    request = request_of(version, version, asked.spec.upgrade, ())
    return request.records, request.tolerance, request.ignored


def seconds(asked: StreamQuery) -> int:
    """Return after how many seconds a comparison is given up."""
    assert asked.spec.upgrade is not None
    return longest_seconds(asked.spec.upgrade)


def of_upgrades() -> Iterator[Probe]:
    """Yield the probes of all fields."""
    base = written(ON_CLUSTER, "spec.upgrade", {"mode": "Shadow"})
    yield Probe("spec.upgrade", ON_CLUSTER, (ABSENT, {"mode": "Shadow"}), compares)
    yield Probe("spec.upgrade.mode", base, ("Replace", "Shadow"), compares)
    yield Probe("spec.upgrade.expectChanges", base, (False, True), passes)
    parts = {"duration": ("10m", "1h"), "slowerThan": (1.5, 3)}
    yield from probes(base, seconds, "spec.upgrade", **parts)
    again = {"records": (1_000_000, 500), "tolerance": (ABSENT, 0.001), "ignore": ([], ["n"])}
    yield from probes(base, compared, "spec.upgrade", **again)
