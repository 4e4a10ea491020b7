"""A query whose load stops before scaling has seen a batch of it: it goes to its minimum all the same."""

from datetime import timedelta

import yaml

from lab.deployed import document
from millrace_operator.lifecycle.autoscaling.autoscaler import Autoscaler
from millrace_operator.scaling.observation import Answer
from millrace_operator.telemetry.metrics import OperatorMetrics

from .cluster import KEY

SPEC = {
    "sources": {"records": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "records"}, "schema": "name STRING"}},
    "query": {"sql": "SELECT name, count(*) AS records FROM records GROUP BY name"},
    "sink": {"table": {"bootstrapServers": "kafka:9092", "topic": "counts"}},
    "executors": {"initial": 2, "min": 1, "max": 2},
}


def idle(time):
    """What a driver reports that has run six batches and finds no more records."""
    return Answer(
        time=time,
        batches_total=6,
        rows_total=1200,
        processing_seconds_total=12,
        busy_core_seconds_total=6,
        interval_seconds=2,
        lag_rows=0,
        epoch=1,
        parallelism=8,
        replicas=2,
        state_partitions=8,
        executors=2,
        progress_time=time,
    )


def test_no_batch_was_seen_and_executors_go_to_the_minimum(cluster):
    cluster.put(yaml.safe_dump(document(KEY.name, **SPEC)))
    cluster.settle()
    cluster.pod_is_ready()
    cluster.executor(1)
    cluster.executor(2)
    cluster.driver_follows(2, 8)
    cluster.settle()
    asked = Autoscaler(
        cluster.reconciler, cluster, OperatorMetrics(), lambda *_: idle(cluster.time.timestamp()), lambda: cluster.time
    )
    for _ in range(30):
        asked.check(KEY)
        cluster.time += timedelta(seconds=10)
        cluster.settle()
    assert cluster.status.plan.executors == 1
    assert cluster.status.last_scaling.reason == "ScaleIn"
