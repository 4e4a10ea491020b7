"""A query that is deleted: its driver drains first, for a while."""

from unit.api.documents import MINIMAL, changed

from .cluster import KEY

BROKEN = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")


def running(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.actions.clear()


def test_the_driver_drains_before_its_query_is_gone(cluster):
    running(cluster)
    cluster.delete()
    cluster.settle()
    assert cluster.actions == [
        ("status", "Draining"),
        ("event", "Deleting"),
        ("drain", "trips-by-cell-driver"),
        ("finalizer", False),
    ]
    assert cluster.query is None
    assert cluster.objects == {}


def test_a_driver_that_does_not_end_is_waited_for_as_long_as_its_pod_may_take_and_a_minute(cluster):
    running(cluster)
    cluster.control = lambda: None
    grace = cluster.pod["spec"]["terminationGracePeriodSeconds"]
    cluster.delete()
    cluster.settle()
    message = cluster.condition("Ready").message
    assert message.startswith("the query is deleted once its driver has ended, at 2026-01-31T12:0")
    cluster.pass_time(seconds=grace + 59)
    assert cluster.query is not None
    cluster.pass_time(seconds=1)
    assert cluster.query is None


def test_the_annotation_skip_drain_deletes_a_query_without_draining(cluster):
    running(cluster)
    cluster.control = lambda: None
    cluster.query["metadata"]["annotations"] = {"millrace.io/skip-drain": "true"}
    cluster.delete()
    cluster.settle()
    assert cluster.actions == [("finalizer", False)]


def test_a_query_that_never_ran_goes_at_once(cluster):
    cluster.put(BROKEN)
    cluster.settle()
    cluster.delete()
    assert cluster.query is None


def test_a_query_that_is_invalid_and_paused_can_be_deleted(cluster):
    running(cluster)
    cluster.put(BROKEN, annotations={"millrace.io/paused": "true"})
    cluster.settle()
    cluster.delete()
    cluster.settle()
    assert cluster.query is None


def test_a_query_goes_where_the_operator_has_lost_its_rights_to_the_deletion_of_the_namespace(cluster):
    running(cluster)
    cluster.forbids = True
    cluster.delete()
    cluster.settle()
    assert cluster.query is None
    assert cluster.actions[-1] == ("finalizer", False)


def test_a_query_that_is_deleted_goes_although_its_objects_cannot_be_listed_any_more(cluster):
    running(cluster)
    cluster.metrics.watches.of("pods", KEY.namespace).refuse()
    cluster.delete()
    cluster.reconciler.reconcile(KEY)
    assert cluster.actions == []
    cluster.pass_time(minutes=5)
    assert cluster.query is None
