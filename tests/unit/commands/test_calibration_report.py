"""The report of ``millrace calibrate``: for each rate a plan, how sure that is, and what no executor helps against."""

import json
from dataclasses import replace

import pytest

from builders import a_query
from millrace_api.model.streamquery import StreamQuery
from millrace_operator.commands.calibration_report import calibration_report
from millrace_operator.commands.recording import read_recording
from millrace_support.plan_measurements import PlanBatch, PlanMeasurements, ReportRequest, TimedTasks
from unit.scaling.true_job import INTERVAL, PARTITIONS, TrueJob, plan

PLANS = [plan(4, 8, 4), plan(1, 2, 1), plan(4, 16, 4), plan(1, 16, 4)]
SPEC = {
    "batchInterval": f"{INTERVAL:g}s",
    "parallelism": {"initial": 4, "max": 64},
    "executors": {"initial": 1, "max": 8, "cores": 2},
    "partitioner": {"replicas": {"initial": 2, "max": 32}},
}


def batches(job):
    seen = [job.observe(shape, rows, batches=1) for shape in PLANS for rows in (4e5, 1.2e6, 4e5)]
    found = []
    for number, one in enumerate(seen):
        found.append(
            PlanBatch(
                number=number,
                epoch=one.epoch,
                cores=one.plan.executors,
                parallelism=one.plan.parallelism,
                replicas=one.plan.replicas,
                rows=int(one.rows),
                seconds=one.seconds,
                keys=one.keys,
                imbalance=one.imbalance,
                partials=int(one.partials or 0),
                route=TimedTasks(int(one.route.tasks), one.route.seconds),
                combine=TimedTasks(int(one.combine.tasks), one.combine.seconds),
                merge_seconds=one.merge_seconds or 0.0,
            )
        )
    return found


def measured(job=None, **changes):
    document = a_query().model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["spec"] |= SPEC | changes.pop("spec", {})
    return PlanMeasurements(
        query=StreamQuery.model_validate(document),
        cores=4,
        state_partitions=PARTITIONS,
        algorithm="pkg",
        batches=batches(job or TrueJob(noise=0.02)),
        warm_up=5,
        seconds=90.0,
        **changes,
    )


def report(found, *rates):
    document, lines = calibration_report(found, ReportRequest(rates))
    return document, "\n".join(lines)


def test_each_rate_has_its_smallest_plan_and_its_interval():
    document, text = report(measured(), 4e5, 1e5)
    assert [each["records_per_second"] for each in document["rates"]] == [1e5, 4e5]
    few, many = (each["plan"] for each in document["rates"])
    assert few["executors"] < many["executors"] <= 8
    assert many["utilization_low"] < many["utilization"] < many["utilization_high"]
    assert many["utilization"] <= document["target"] == 0.9
    assert f"{many['utilization_low']:.2f} to {many['utilization_high']:.2f}" in text
    assert "12 batches of 400,000 to 1,200,000 records under 4 plans, on 4 cores" in text


def test_rates_of_its_own_end_with_the_most_that_the_bounds_carry():
    document, _ = report(measured())
    assert document["rates"][-1]["plan"]["executors"] == 8


def test_a_rate_beyond_the_bounds_says_what_would_do():
    document, text = report(measured(), 2e6)
    assert document["rates"][0]["plan"] is None
    wanted = document["rates"][0]["beyond_bounds"]["executors"]
    assert "2,000,000 records/s: not with 8 executors at most (W " in text
    assert f"{wanted} would do" in text


def test_a_serial_batch_says_that_no_executor_helps_and_what_does():
    _, text = report(measured(TrueJob(fixed=12.0)), 1000.0)
    assert "no number of executors is enough: " in text
    assert "mostly what the driver does for every batch, do not become shorter" in text
    assert "write a longer spec.batchInterval, such as 1" in text


def test_it_says_that_other_machines_differ_and_that_sinks_were_left_out():
    _, text = report(measured(notes=["the records were few"]), 1000.0)
    assert "note: these are costs of this machine" in text
    assert "note: sinks were not written" in text
    assert "note: the records were few" in text


def test_it_says_when_batches_covered_much_more_event_time_than_they_will():
    assert "covered 33 hours of event time here" in report(measured(event_seconds=0.1), 1000.0)[1]
    assert "of event time" not in report(measured(event_seconds=1e-6), 1000.0)[1]


def test_a_wide_interval_is_called_a_guess():
    found = measured(TrueJob(noise=1.0))
    document, text = report(replace(found, batches=found.batches[:3]), 4e5)
    assert document["rates"][0]["nearest"]["utilization_high"] > 1.4 * document["rates"][0]["nearest"]["utilization"]
    assert "a guess, since the interval is wide" in text


def test_no_number_of_executors_is_a_guess_where_the_interval_is_wide():
    found = measured(TrueJob(noise=1.0, fixed=12.0))
    _, text = report(replace(found, batches=found.batches[:3]), 1000.0)
    assert "no number of executors is enough (a guess, since the interval is wide): " in text


def test_a_document_is_json_without_infinities():
    document, _ = report(measured(), 1e9)
    json.dumps(document, allow_nan=False)


def test_the_recording_is_one_that_millrace_model_reads(tmp_path):
    calibration_report(measured(), ReportRequest((1000.0,), str(tmp_path / "costs.json")))
    recording = read_recording(tmp_path / "costs.json")
    assert recording.executor_cores == 1
    assert recording.newest.rows == 4e5


def test_half_a_core_is_said_to_be_less_than_one():
    executors = {"initial": 1, "max": 8, "cores": "500m"}
    _, text = report(measured(spec={"executors": executors}), 1000.0)
    assert "executors have 0.5 cores, and the predictions are for 1 whole ones" in text


@pytest.mark.parametrize("algorithm", ["native", "hash"])
def test_a_job_without_the_clocks_of_stages_has_a_report(algorithm):
    found = measured()
    untimed = [replace(batch, route=None, combine=None, imbalance=None, keys=None) for batch in found.batches]
    document, text = report(replace(found, batches=untimed, algorithm=algorithm), 1e5)
    assert document["rates"][0]["plan"] is not None
    assert f"with algorithm {algorithm}" in text
