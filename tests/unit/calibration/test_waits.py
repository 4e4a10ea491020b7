"""What users of a calibration run see while a server does not answer."""

from dataclasses import replace

from millrace_jobs.calibration.calibrate import _CalibrationPlatform
from millrace_jobs.pending import CallKind, PendingCall


def test_what_a_run_waits_for_is_said_once():
    said = []
    platform = _CalibrationPlatform(say=said.append)
    why = "Kafka at kafka:9092 cannot be reached while asking for offsets of topic trips"
    call = PendingCall(CallKind.SERVER, "Kafka at kafka:9092", "asking for offsets", 1, 12.0, 12.0, why=why)
    platform.waits([])
    platform.waits([call])
    platform.waits([replace(call, seconds=17.0), replace(call, why="the schema registry does not answer")])
    assert said == [f"waiting: {why}", "waiting: the schema registry does not answer"]
