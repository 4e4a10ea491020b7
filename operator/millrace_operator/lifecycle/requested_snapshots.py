"""The snapshot that a query's annotation asks for: how its driver gets the request, and what the status says of it.

The status keeps when the annotation was first seen, so that each value is one request. The driver finds the request in
the plan's ConfigMap until it has an answer, and reports it there, beside the snapshots that there are. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from millrace_api.model.snapshots import (
    SNAPSHOT_ANNOTATION,
    SNAPSHOT_REQUEST_KEY,
    SnapshotRequest,
    SnapshotRequestState,
    SnapshotsReport,
    is_request,
)
from millrace_api.model.streamquery import Annotation
from millrace_api.model.values import SNAPSHOT_NAME_HINT

from ..resources.manifests import with_plan_entry
from ..resources.names import Manifest
from .conditions import format_time, parse_time, shortened
from .observed_query import ObservedQuery
from .pods.driver_health import started_at

_ANSWERED_WITHIN = timedelta(minutes=2)
"""Time in which a driver that runs answers a request, at least that it has begun."""

_TOO_OLD = (
    f"the driver has not answered within {_ANSWERED_WITHIN.seconds // 60} minutes: "
    "its image may be of an earlier version of Millrace, which takes no requests for snapshots"
)

_NOT_FOLLOWED = "the driver gets the request once the spec can be followed: the condition Ready says why it is not"


def snapshots_status(observed: ObservedQuery, now: datetime) -> SnapshotsReport | None:
    """Return the snapshots of the checkpoint as the driver has last reported them, with the request as of now."""
    if observed.unreadable is not None:  # its annotations are not kept
        return observed.status.snapshots
    request, found = request_of(observed, now), observed.snapshots or observed.status.snapshots
    if found is None:
        return None if request is None else SnapshotsReport(request=request)
    return found.model_copy(update={"request": request})


def request_of(observed: ObservedQuery, now: datetime) -> SnapshotRequest | None:
    """Return what the annotation asks for, with the driver's answer if there is one; None without the annotation."""
    value = (observed.body["metadata"].get("annotations") or {}).get(SNAPSHOT_ANNOTATION)
    if not value:
        return None
    reported = observed.status.snapshots
    request = None if reported is None else reported.request
    if request is None or request.name != shortened(value, 64):
        request = SnapshotRequest(name=shortened(value, 64), time=format_time(now))
        if not is_request(value):
            message = f"{request.name!r} cannot be the name of a snapshot: {SNAPSHOT_NAME_HINT}"
            return request.model_copy(update={"state": SnapshotRequestState.FAILED, "message": message})
    if request.state.is_final:
        return request
    answer = None if observed.snapshots is None else observed.snapshots.request
    if answer is not None and answer.identity == request.identity and answer.state is not SnapshotRequestState.PENDING:
        return answer
    return request.model_copy(
        update={"state": SnapshotRequestState.PENDING, "message": _waits_for(observed, request, now)}
    )


def with_request(desired: list[Manifest], observed: ObservedQuery, now: datetime) -> list[Manifest]:
    """Return the desired objects, of which the plan's ConfigMap has the request as long as it has no final answer.

    Without one, an entry is emptied and not removed, which the comparison with what was observed would not notice.
    """
    request, text = request_of(observed, now), ""
    if request is not None and not request.state.is_final:
        text = SnapshotRequest(name=request.name, time=request.time).to_json()
    if not text and not observed.snapshot_request:
        return desired
    return with_plan_entry(desired, observed.owner, SNAPSHOT_REQUEST_KEY, text)


def unanswered_at(observed: ObservedQuery, now: datetime) -> Iterator[datetime]:
    """Yield when the driver has taken too long to answer a request, if one waits for it."""
    request, since = request_of(observed, now), _runs_since(observed)
    if request is not None and request.state is SnapshotRequestState.PENDING and since is not None:
        yield _due(request, since)


def _waits_for(observed: ObservedQuery, request: SnapshotRequest, now: datetime) -> str:
    if observed.is_set(Annotation.PAUSED) and not observed.snapshot_request:
        return f"the annotation {Annotation.PAUSED} is set"
    since = _runs_since(observed)
    if since is None:
        return "no driver runs"
    if now < _due(request, since):
        return ""
    return _TOO_OLD if observed.snapshot_request else _NOT_FOLLOWED


def _due(request: SnapshotRequest, since: datetime) -> datetime:
    return max(parse_time(request.time), since) + _ANSWERED_WITHIN


def _runs_since(observed: ObservedQuery) -> datetime | None:
    return None if observed.driver is None else started_at(observed.driver)
