"""Arrival times of placed records reach the driver by way of the manifest."""

import numpy as np

from builders import PIN
from millrace_jobs.dedicated.manifest import Manifest
from millrace_jobs.dedicated.routed_source import _note
from millrace_jobs.pipeline.arrivals import Arrivals, RecordLatencies


def test_a_manifest_carries_when_its_records_arrived():
    arrivals = Arrivals(1000.0)
    arrivals.add(np.array([998_000_000]), np.array([40]))
    written = Manifest("g", 0, 1, PIN, {}, read=40, arrivals=arrivals.note())
    latencies = RecordLatencies.of([_note(Manifest.of(written.to_bytes()))], 1001.0)
    assert latencies.records.tolist() == [40]
    assert abs(latencies.seconds[0] - 3.0) < 0.2


def test_a_manifest_of_another_version_has_no_arrivals():
    written = Manifest("g", 0, 1, PIN, {}).to_bytes().replace(b',"arrivals":{}', b"")
    assert b"arrivals" not in written
    assert _note(Manifest.of(written)).keys().isdisjoint({"arrived"})
