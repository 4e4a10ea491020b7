"""Run a query like ``millrace run``, whose snapshots are asked for by files.

    python asked_for_snapshots.py QUERY REQUEST REPORT

REQUEST has what an operator would ask for; REPORT gets what the driver's agent would report.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millrace_api.model.snapshots import SnapshotRequest, SnapshotsReport
from millrace_jobs.places import write_durably
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of

QUERY, REQUEST, REPORT = map(Path, sys.argv[1:])


class Files:
    def snapshot_request(self) -> SnapshotRequest | None:
        return SnapshotRequest.from_json(REQUEST.read_text()) if REQUEST.exists() else None

    def report_snapshots(self, report: SnapshotsReport) -> None:
        write_durably(REPORT, report.to_json().encode())


class Asked(OneProcess):
    def snapshot_requests(self) -> Files:  # type: ignore[override]
        return Files()


with Job(query_of(QUERY), Asked()) as job:
    job.run()
