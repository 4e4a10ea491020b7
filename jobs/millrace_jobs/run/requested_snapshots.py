"""What a run answers to requests for snapshots, which a query's annotation makes on a cluster."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

from millrace_api.model.snapshots import SnapshotRequest, SnapshotRequestState, SnapshotsReport
from millrace_jobs.checkpoint.requested_snapshots import report_on
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotOutcome
from millrace_jobs.places import Place

POLL_SECONDS = 1.0
"""Seconds between two looks for a request."""

_WAIT_SECONDS = 10.0
"""Seconds until the next attempt while no batch is finished."""

_MOST_OF_MESSAGE = 1024


class SnapshotRequests(Protocol):
    """Who asks for snapshots, and receives the report on all that the checkpoint has."""

    def snapshot_request(self) -> SnapshotRequest | None:
        """Return what is asked for now; None if nothing is."""

    def report_snapshots(self, report: SnapshotsReport) -> None:
        """Receive the report; called whenever it has changed."""


class RequestedSnapshots:
    """The requests of one run, of which each is answered once, and the report on all snapshots."""

    def __init__(self, requests: SnapshotRequests) -> None:
        self._requests = requests
        self._report = SnapshotsReport()
        self._again_at = 0.0

    def begin(self, root: Place) -> None:
        """Report the snapshots that there are, as far as they can be read now."""
        with suppress(OSError):
            self._report = report_on(root)
        self._requests.report_snapshots(self._report)

    def next_order(self) -> SnapshotOrder | None:
        """Return what to do about a request that has no answer yet, and report that it is being done."""
        asked, answer = self._requests.snapshot_request(), self._report.request
        if asked is None:
            return None
        if answer is None or answer.identity != asked.identity:
            self._answer(asked, SnapshotRequestState.RUNNING, "")
        elif answer.state.is_final or time.monotonic() < self._again_at:
            return None
        return SnapshotOrder(name=asked.snapshot, asked=asked.time, removes=asked.removes)

    def ended(self, outcome: SnapshotOutcome) -> str:
        """Report what an order has come to, and return it as a message; empty while no batch is finished."""
        request = self._report.request
        assert request is not None, "it was ordered"
        self._adopt(outcome)
        if outcome.error is not None:
            self._answer(request, SnapshotRequestState.FAILED, outcome.error)
            what = f"snapshot {request.snapshot} was not {'removed' if request.removes else 'taken'}"
            return f"{what}, and the query goes on: {outcome.error}"
        if request.removes:
            self._answer(request, SnapshotRequestState.DONE, f"removed {request.snapshot}")
            return f"removed snapshot {request.snapshot}, as its annotation asks"
        if outcome.name is None:
            self._again_at = time.monotonic() + _WAIT_SECONDS
            self._answer(request, SnapshotRequestState.RUNNING, "no batch is finished yet")
            return ""
        text = f"{outcome.name}: batch {outcome.batch}, {outcome.size / (1 << 20):,.1f} MiB"
        self._answer(request, SnapshotRequestState.DONE, text)
        return f"snapshot {text} in {outcome.seconds:.1f} s, as its annotation asks"

    def found(self, outcome: SnapshotOutcome) -> None:
        """Report the snapshots that there are after an automatic one."""
        before = self._report
        self._adopt(outcome)
        if self._report != before:
            self._requests.report_snapshots(self._report)

    def _adopt(self, outcome: SnapshotOutcome) -> None:
        if outcome.report is not None:
            found = SnapshotsReport.from_json(outcome.report)
            self._report = found.model_copy(update={"request": self._report.request})

    def _answer(self, request: SnapshotRequest, state: SnapshotRequestState, message: str) -> None:
        text = message if len(message) <= _MOST_OF_MESSAGE else f"{message[: _MOST_OF_MESSAGE - 3]}..."
        answer = SnapshotRequest(name=request.name, time=request.time, state=state, message=text)
        self._report = self._report.model_copy(update={"request": answer})
        self._requests.report_snapshots(self._report)
