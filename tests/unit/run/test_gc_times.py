"""Garbage collection of the driver and of executors that come and go, as if Spark counted it."""

from __future__ import annotations

from types import SimpleNamespace as Object

import pytest
from py4j.protocol import Py4JNetworkError

from millrace_jobs.run.gc_times import GarbageCollection
from millrace_jobs.run.job_metrics import JobMetrics


class Cluster:
    """A session whose driver and executors have collected garbage for so many milliseconds."""

    def __init__(self) -> None:
        self.now, self.driver, self.executors, self.ended = 0.0, 0, {}, False
        self.garbage = GarbageCollection(Object(sparkContext=self), lambda: self.now)

    @property
    def _jvm(self):
        if self.ended:
            raise Py4JNetworkError("the JVM has ended")
        beans = [Object(getCollectionTime=lambda: self.driver - 1), Object(getCollectionTime=lambda: 1)]
        factory = Object(getGarbageCollectorMXBeans=lambda: beans)
        return Object(java=Object(lang=Object(management=Object(ManagementFactory=factory))))

    @property
    def _jsc(self):
        of = {"driver": 10**6} | self.executors
        found = [Object(id=lambda name=name: name, totalGCTime=lambda ms=ms: ms) for name, ms in of.items()]
        listed = Object(size=lambda: len(found), apply=lambda i: found[i])
        store = Object(executorList=lambda active: listed)
        return Object(sc=lambda: Object(statusStore=lambda: store))

    def later(self, driver: int, **executors: int) -> dict[str, float]:
        self.now += 10
        self.driver, self.executors = driver, executors
        return dict(self.garbage.since())


def test_what_is_new_counts_also_of_executors_that_come_and_go():
    cluster = Cluster()
    assert cluster.later(500) == {"driver": 0.5, "executors": 0}
    assert cluster.later(700, a=100, b=50) == pytest.approx({"driver": 0.2, "executors": 0.15})
    assert cluster.later(700, b=80, c=40) == pytest.approx({"driver": 0, "executors": 0.07})
    assert cluster.later(700) == {"driver": 0, "executors": 0}


def test_garbage_collection_is_read_every_ten_seconds_while_the_jvm_runs():
    cluster = Cluster()
    assert cluster.later(500) == {"driver": 0.5, "executors": 0}
    cluster.driver, cluster.now = 600, cluster.now + 9
    assert cluster.garbage.since() == {}
    cluster.ended = True
    assert cluster.later(700) == {}


def test_garbage_collection_is_exported_by_role():
    metrics = JobMetrics("trips")
    metrics.record_gc({"driver": 0.5, "executors": 0})
    metrics.record_gc({})
    metrics.record_gc({"driver": 0.25, "executors": 2})
    read = metrics.registry.get_sample_value
    labels = {"query": "trips", "role": "driver"}
    assert read("millrace_gc_seconds_total", labels) == 0.75
    assert read("millrace_gc_seconds_total", labels | {"role": "executors"}) == 2
