"""Cores that a calibration run keeps from its batches, on a real session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_jobs.calibration import core_slots
from millrace_jobs.calibration.core_slots import CoreSlots

pytestmark = pytest.mark.spark


@pytest.fixture
def slots(spark: SparkSession) -> Iterator[CoreSlots]:
    found = CoreSlots(spark)
    yield found
    found.release()


def running_tasks(spark: SparkSession) -> int:
    context: Any = spark.sparkContext
    counts = context._jsc.sc().taskScheduler().runningTasksByExecutors().values().toSeq().mkString(",")
    return sum(int(count) for count in counts.split(",") if count)


def test_cores_are_kept_by_tasks_until_they_are_given_back(spark: SparkSession, slots: CoreSlots) -> None:
    processors = os.sched_getaffinity(0)
    slots.leave(slots.total - 1)
    assert slots.free == slots.total - 1
    assert running_tasks(spark) == 1
    assert len(os.sched_getaffinity(0)) <= max(slots.total - 1, 1)
    slots.release()
    assert slots.free == slots.total
    assert os.sched_getaffinity(0) == processors
    wait_until(lambda: running_tasks(spark) == 0, "the task that kept a core has ended")


def test_cores_that_cannot_be_kept_are_an_error_that_says_how_many(
    spark: SparkSession, slots: CoreSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_slots, "_PATIENCE", 1.0)
    slots.total += 1000  # more than the session has
    with pytest.raises(MillraceError) as raised:
        slots.leave(1)
    (problem,) = raised.value.problems
    total = slots.total
    assert problem.message == f"{total - 1} of {total} cores could not be kept from batches within 1 s"
    assert problem.hint == "run this again when the machine has less other work"
    slots.release()
    wait_until(lambda: running_tasks(spark) == 0, "the tasks that kept cores have ended")
