from datetime import timedelta

import pytest

from millrace_operator.lifecycle.query_view import QueryView
from millrace_operator.page.query_findings import query_findings
from millrace_support.pages.verdict import Severity

from .fleets import DEPLOYING, FAILING, INVALID, LATE, NOW, SUSPENDED, ago, condition, query, status


def found(reported=None, now=NOW, **more):
    return query_findings(QueryView(query(reported=reported, **more)), now)


def verdict(*arguments, **options):
    return found(*arguments, **options)[0]


def test_a_query_whose_batches_are_in_time_keeps_up():
    first = verdict(status(busy=0.61, lag=1200))
    assert (first.severity, first.title) == (Severity.WELL, "Keeping up")
    assert first.reason == "batches take 61% of their interval, and 1,200 records wait"


def test_a_query_without_metrics_runs_and_its_load_is_not_known():
    no_prometheus = condition("MetricsAvailable", "False", "NoPrometheus", "the operator has no Prometheus")
    first, note = found(status(conditions=[no_prometheus], load=None))
    assert (first.severity, first.title) == (Severity.WELL, "Running")
    assert (note.severity, note.title) == (Severity.NOTE, "No metrics")


def test_metrics_that_are_missing_although_there_is_a_prometheus_are_trouble():
    first = verdict(status(conditions=[condition("MetricsAvailable", "False", "NoAnswer", "nothing was scraped")]))
    assert (first.severity, first.title, first.reason) == (Severity.WARNING, "No metrics", "nothing was scraped")
    assert first.remedy == "check that Prometheus scrapes the driver's pod"


@pytest.mark.parametrize(
    ("rate", "lag", "minutes", "severity"),
    [(9.0, 0, 4, None), (9.0, 0, 6, Severity.WARNING), (0.0, 7, 6, Severity.WARNING), (0.0, 0, 6, Severity.NOTE)],
    ids=["fresh", "busy", "waiting", "idle"],
)
def test_figures_that_no_operator_has_observed_lately_are_old(rate, lag, minutes, severity):
    later = found(status(rate=rate, lag=lag), NOW + timedelta(minutes=minutes))
    assert [each.severity for each in later if each.title == "Figures are old"] == ([severity] if severity else [])


def test_figures_of_long_batches_are_not_old_before_a_few_have_ended():
    reported = status(busy=0.5, lag=7)
    reported["load"]["processingSeconds"] = 300.0  # every ten minutes
    assert verdict(reported, NOW + timedelta(minutes=25)).title == "Keeping up"
    assert verdict(reported, NOW + timedelta(minutes=35)).title == "Figures are old"


KAFKA = "Kafka at kafka:9092 has not answered while finding new records (since 2026-01-31T12:00:00Z)"


@pytest.mark.parametrize(
    ("phase", "ready", "title"),
    [
        (
            "Deploying",
            ("False", "FirstBatch", f"the driver's first batch has not finished; {KAFKA}"),
            "First batch waits",
        ),
        ("Running", ("True", "Running", f"the driver is ready; {KAFKA}"), "Driver waits"),
    ],
)
def test_a_driver_that_waits_for_a_broker_says_so_and_what_to_do(phase, ready, title):
    first = verdict(status(phase, conditions=[condition("Ready", *ready)]))
    assert (first.severity, first.title, first.reason) == (Severity.WARNING, title, KAFKA)
    assert "`millrace logs fares -n cabs`" in first.remedy


@pytest.mark.parametrize(
    "waits",
    [
        "the function fares:mean has not returned while computing, at fares.py, line 17, in mean",
        "the query was started again because a file of the input is gone",
    ],
    ids=["own code", "a failure"],
)
def test_what_is_no_server_is_not_to_be_reached(waits):
    said = condition("Ready", "True", "Running", f"the driver is ready; {waits} (since 2026-01-31T12:00:00Z)")
    first = verdict(status(conditions=[said]))
    assert (first.title, first.reason) == ("Driver waits", f"{waits} (since 2026-01-31T12:00:00Z)")
    assert first.remedy.startswith("`millrace logs fares -n cabs` has more")
    assert "reached" not in first.remedy


def test_a_driver_that_was_lost_is_replaced_and_that_is_no_trouble_for_some_minutes():
    said = "the driver's pod was deleted, or lost with its node, and another one goes on from the checkpoint"
    lost = status("Deploying", conditions=[condition("Ready", "False", "DriverLost", said, ago(minutes=1))])
    assert (verdict(lost).severity, verdict(lost).title) == (Severity.NOTE, "Driver is replaced")
    assert verdict(lost, NOW + timedelta(minutes=20)).title == "Does not become ready"


def test_a_failing_query_says_why_and_which_log_to_read():
    first = verdict(FAILING)
    assert (first.severity, first.title) == (Severity.FAILURE, "Failing and starting again")
    assert first.reason == "SourceFailed: broker kafka:9092 does not answer"
    assert "`millrace logs fares -n cabs --previous`" in first.remedy


def test_a_query_that_was_given_up_is_started_again_by_a_command():
    given_up = condition("Ready", "False", "Failed", "the driver failed 5 times")
    first = verdict(status("Failed", conditions=[given_up]))
    assert (first.severity, first.title) == (Severity.FAILURE, "Failed")
    assert "`millrace restart fares -n cabs`" in first.remedy


@pytest.mark.parametrize(("phase", "severity"), [("Running", Severity.WARNING), ("Pending", Severity.FAILURE)])
def test_an_invalid_spec_is_worse_where_nothing_runs_beside_it(phase, severity):
    first = verdict(INVALID | {"phase": phase})
    assert (first.severity, first.title) == (severity, "Spec is invalid")
    assert "did you mean" in first.reason


def test_a_query_that_falls_behind_says_what_limits_its_scaling():
    first = verdict(LATE)
    assert (first.severity, first.title) == (Severity.WARNING, "Falling behind")
    assert first.reason == "batches take 1.3 times their interval (W 1.34), and 184k records wait"
    assert first.remedy == "lift what limits scaling: spec.executors.max is 3"


@pytest.mark.parametrize(
    ("active", "remedy"),
    [
        (("True", "Active", ""), "`millrace explain fares -n cabs`"),
        (("False", "Off", "spec.scaling.mode is Off"), "spec.scaling.mode: Active"),
        (("False", "Paused", "the annotation millrace.io/paused is set"), "the annotation millrace.io/paused is set"),
    ],
)
def test_a_query_that_falls_behind_says_how_it_gets_executors(active, remedy):
    state, reason, message = active
    late = status(busy=1.2, conditions=[condition("ScalingActive", state, reason, message)])
    assert remedy in verdict(late).remedy


@pytest.mark.parametrize(
    ("reason", "title"),
    [("ExecutorsPending", "Executors are pending"), ("RolledBack", "Rolled back"), ("OutOfMemory", "Out of memory")],
)
def test_a_degraded_query_is_named_by_the_reason(reason, title):
    first = verdict(status(conditions=[condition("Degraded", "True", reason, "2 of 3 run")]))
    assert (first.severity, first.title, first.reason) == (Severity.WARNING, title, "2 of 3 run")
    assert first.remedy


@pytest.mark.parametrize("reason", ["ImageUnavailable", "Unschedulable", "NodeLost", "UpgradeRejected"])
def test_a_failure_without_a_log_of_the_driver_does_not_send_the_reader_to_one(reason):
    first = verdict(status(conditions=[condition("Degraded", "True", reason, "what is wrong")]))
    assert first.remedy
    assert "logs" not in first.remedy


def test_a_deployment_is_no_trouble_before_its_deadline():
    assert verdict(DEPLOYING).severity == Severity.NOTE
    late = verdict(DEPLOYING, NOW + timedelta(minutes=11))
    assert (late.severity, late.title) == (Severity.WARNING, "Does not become ready")
    assert late.reason == "not ready for 12 min: container driver: ContainerCreating"


def test_a_suspended_query_is_well():
    first = verdict(SUSPENDED)
    assert (first.severity, first.title) == (Severity.WELL, "Suspended")


def test_a_query_that_no_operator_observes_is_trouble_after_a_while():
    assert verdict({}, created=ago(seconds=20)).title == "New"
    first = verdict({}, created=ago(minutes=20))
    assert (first.severity, first.title) == (Severity.WARNING, "Not observed")


def test_a_status_of_another_version_is_said_to_be_so():
    assert verdict({"phase": "Dreaming"}).title == "Status cannot be read"


def test_pauses_pending_changes_and_a_recent_failure_are_notes():
    attempts = [{"time": ago(minutes=9), "reason": "OutOfMemory", "message": "killed."}]
    reported = status(attempts=attempts) | {"observedGeneration": 0}
    first, *notes = found(reported, annotations={"millrace.io/paused": "true"})
    assert first.severity == Severity.WELL
    assert [each.title for each in notes] == ["Paused", "Change is pending", "Failed a while ago"]
    assert {each.severity for each in notes} == {Severity.NOTE}
    assert (notes[-1].reason, notes[-1].remedy) == ("9 min ago, OutOfMemory: killed", "raise spec.driver.memory")


def test_all_that_is_wrong_is_found_the_most_urgent_first():
    both = status("Failed", conditions=[condition("Degraded", "True", "QuotaExceeded", "no room"),
                                        condition("Ready", "False", "BackingOff", "it failed")])  # fmt: skip
    assert [each.severity for each in found(both)] == [Severity.FAILURE, Severity.WARNING]
