"""What users of a calibration run see while a server does not answer."""

import time
from dataclasses import replace

import pytest

from builders import a_query
from millrace_jobs.calibration.calibrate import _CalibrationPlatform
from millrace_jobs.pending import CallKind, PendingCall

TOPIC = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips"}, "format": "json", "schema": "at TIMESTAMP"}
WHY = "Kafka at kafka:9092 cannot be reached while asking for offsets of topic trips"
CALL = PendingCall(
    CallKind.SERVER, "Kafka at kafka:9092", "asking for offsets", 1, 12.0, 12.0, why=WHY, hint="start it"
)


def test_what_a_run_waits_for_is_said_once():
    said = []
    platform = _CalibrationPlatform(say=said.append)
    platform.waits([])
    platform.waits([CALL])
    platform.waits([replace(CALL, seconds=17.0), replace(CALL, why="the schema registry does not answer")])
    assert said == [f"waiting: {WHY}", "waiting: the schema registry does not answer"]


def platform_of(**sources):
    return _CalibrationPlatform(spec=a_query("spec", "sources", value=sources).spec)


def test_a_server_that_is_away_for_long_ends_the_run_with_the_source_and_its_field():
    error = platform_of(early=TOPIC | {"kafka": TOPIC["kafka"] | {"bootstrapServers": "other:9092"}}, late=TOPIC).waits(
        [replace(CALL, seconds=20.0)]
    )
    assert error is not None
    (problem,) = error.problems
    assert (problem.field, problem.message) == ("spec.sources.late.kafka", f"gave up: {WHY}")
    assert problem.hint == "start it, then run this again"


LAKE = {"delta": {"path": "s3a://lake/trips"}, "schema": "at TIMESTAMP"}


@pytest.mark.parametrize(
    ("why", "field"),
    [
        ("s3a://lake/trips/part-0.parquet cannot be read", "spec.sources.trip.delta"),
        ("s3a://lake/trips_daily/part-0.parquet cannot be read", "spec.sources.daily.delta"),
        ("the table of source trip does not answer", "spec.sources.trip.delta"),
        ("the table of source trips does not answer", ""),
        ("s3a://lake/trips/old/part-0.parquet cannot be read", "spec.sources.old.delta"),
        ("Kafka at my-kafka:9092 cannot be reached", ""),
        ("Kafka at kafka:9092 cannot be reached", ""),
        ("Kafka at kafka:9092 cannot be reached while reading topic rides, partition 3", "spec.sources.second.kafka"),
    ],
)
def test_a_source_is_named_by_its_whole_name_or_place(why, field):
    daily, old = (LAKE | {"delta": {"path": f"s3a://lake/{place}"}} for place in ("trips_daily", "trips/old"))
    second = TOPIC | {"kafka": TOPIC["kafka"] | {"topic": "rides"}}
    error = platform_of(trip=LAKE, daily=daily, old=old, first=TOPIC, second=second).waits(
        [replace(CALL, seconds=20.0, why=why)]
    )
    assert error is not None
    assert [problem.field for problem in error.problems] == [field]


def test_a_server_counts_from_when_it_was_first_missed_and_code_of_the_user_does_not(monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    platform = platform_of(trips=TOPIC)
    missed = replace(CALL, seconds=0.0)
    assert platform.waits([missed]) is None
    now += 19
    assert platform.waits([missed, replace(CALL, kind=CallKind.CODE, seconds=500.0)]) is None
    now += 1
    assert platform.waits([missed]) is not None
    assert platform.waits([]) is None
    assert platform.waits([missed]) is None
