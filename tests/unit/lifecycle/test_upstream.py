"""A query whose topic does not exist, as long as the query that may make it does not run, and after that."""

from datetime import timedelta

import pytest

from unit.resources.cases import SMALLEST

from .cluster import stamp

NO_TOPIC = '{"failure": "SourceMissing", "message": "Kafka at kafka:9092 has no topic trips"}'
SOURCE_FAILED = '{"failure": "SourceFailed", "message": "Kafka at kafka:9092 cannot be reached"}'


def wait_for_long(cluster):
    """Fail until the pauses are as long as they get."""
    for _ in range(5):
        cluster.pass_time(minutes=5)
        cluster.pod_fails(NO_TOPIC)


@pytest.fixture
def deployed(cluster):
    """A query that reads topic ``trips``, and the query before it, which failed."""
    cluster.put(SMALLEST)
    cluster.put_other("cleaned", "Failed", "trips")
    return cluster


def conditions(cluster, *types):
    return [(found.status.value, found.reason) for found in map(cluster.condition, types)]


def stamp_in(cluster, seconds):
    return stamp(cluster.time + timedelta(seconds=seconds))


def fail_twice(cluster, message=NO_TOPIC):
    cluster.pod_fails(message)
    return cluster.pod_fails(message, restarts=2)


def test_a_query_without_its_topic_is_pending_and_names_the_query_before_it(deployed):
    status = fail_twice(deployed)
    assert (status.phase, status.failures, status.retry_time) == ("Pending", 2, stamp_in(deployed, 15))
    assert deployed.pod is None
    assert deployed.condition("Ready").message == (
        "cleaned (topic trips) is Failed; the driver reports: Kafka at kafka:9092 has no topic trips"
    )
    assert conditions(deployed, "Ready", "UpstreamReady", "Progressing", "Degraded") == [
        ("False", "WaitingForUpstream"),
        ("False", "WaitingForUpstream"),
        ("True", "BackingOff"),
        ("False", "AsExpected"),
    ]
    assert deployed.events == [(False, "WaitingForUpstream")]
    assert deployed.pass_time(seconds=15).phase == "Pending"
    assert deployed.pod is not None, "it tries again: the topic may have been made by hand"
    assert deployed.pod_is_ready().phase == "Running"


def test_a_query_starts_as_soon_as_the_query_before_it_is_ready(deployed):
    fail_twice(deployed)
    wait_for_long(deployed)
    assert deployed.status.retry_time == stamp_in(deployed, 300)
    deployed.pass_time(minutes=1)
    status = deployed.put_other("cleaned", "Running", "trips")
    assert status.retry_time is None
    assert deployed.pod is not None
    assert conditions(deployed, "UpstreamReady") == [("True", "UpstreamRunning")]
    assert conditions(deployed, "Ready", "Degraded") == [("False", "Deploying"), ("False", "AsExpected")]
    deployed.pod_is_ready()
    assert deployed.pass_time(minutes=2).failures == 0


def test_failures_after_the_query_before_it_is_ready_count_as_its_own(deployed):
    fail_twice(deployed)
    wait_for_long(deployed)
    deployed.pass_time(minutes=1)
    deployed.put_other("cleaned", "Running", "trips")
    deployed.pass_time(seconds=10)
    assert deployed.pod_fails(NO_TOPIC).retry_time is None, "the first is left to Kubernetes"
    status = deployed.pod_fails(NO_TOPIC, restarts=2)
    assert (status.phase, status.retry_time) == ("Failed", stamp_in(deployed, 15))
    assert conditions(deployed, "Ready", "Degraded") == [("False", "BackingOff"), ("True", "SourceMissing")]


def test_failures_before_a_driver_was_healthy_make_no_pause_longer(deployed):
    deployed.put_other("cleaned", "Running", "trips")
    deployed.pass_time(seconds=10)
    fail_twice(deployed)
    deployed.pass_time(minutes=1)
    deployed.pod_is_ready()
    deployed.pass_time(minutes=2)
    status = deployed.pod_fails(NO_TOPIC)
    assert (status.failures, len(status.attempts), status.retry_time) == (1, 3, None)


def test_a_query_that_was_waiting_for_long_is_not_rolled_back_when_it_starts(deployed):
    deployed.pod_is_ready()
    deployed.pass_time(minutes=2)
    deployed.put(SMALLEST + "  image: example.org/other\n")
    deployed.settle()
    fail_twice(deployed)
    wait_for_long(deployed)
    deployed.pass_time(minutes=1)
    status = deployed.put_other("cleaned", "Running", "trips")
    assert status.rejected is None
    assert deployed.pod is not None


def test_other_failures_of_a_source_count_as_the_querys_own(deployed):
    status = fail_twice(deployed, SOURCE_FAILED)
    assert status.phase == "Failed"
    assert conditions(deployed, "Ready", "UpstreamReady", "Degraded") == [
        ("False", "BackingOff"),
        ("False", "UpstreamNotRunning"),
        ("True", "SourceFailed"),
    ]
    deployed.put_other("cleaned", "Running", "trips")
    assert deployed.status.retry_time is not None


def test_without_a_query_before_it_a_missing_topic_is_a_failure(cluster):
    cluster.put(SMALLEST)
    cluster.settle()
    assert fail_twice(cluster).phase == "Failed"
    assert conditions(cluster, "UpstreamReady", "Degraded") == [("True", "NoUpstream"), ("True", "SourceMissing")]


def test_a_running_query_goes_on_while_the_query_before_it_does_not(deployed):
    status = deployed.pod_is_ready()
    assert status.phase == "Running"
    assert conditions(deployed, "Ready", "UpstreamReady") == [("True", "Running"), ("False", "UpstreamNotRunning")]
    assert [(each.name, each.phase) for each in status.chain.upstream] == [("cleaned", "Failed")]
    writes = deployed.writes
    deployed.settle()
    assert deployed.writes == writes


def test_a_cycle_of_queries_is_reported_as_an_event(cluster):
    cluster.put(SMALLEST)
    cluster.put_other("cleaned", "Running", "trips")
    cluster.others["cleaned"]["spec"]["sources"] = {
        "s": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips-by-cell"}, "schema": "n INT"}
    }
    cluster.others["cleaned"]["metadata"]["generation"] = 2
    assert cluster.settle().chain.order == "trips-by-cell -> cleaned -> trips-by-cell"
    assert cluster.events[-1] == (True, "Cycle")
