"""Spark searches its state for closed windows where one can have closed, and evicts the same rows in the same batches."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_jobs.run import window_eviction
from millrace_jobs.run.window_eviction import WindowEviction
from millrace_jobs.windows import Window

BATCHES = 11
SECOND = 1_000_000


@given(st.integers(1, 20), st.integers(1, 5), st.integers(-30, 30), st.integers(-100, 100), st.integers(-100, 100))
def test_the_number_of_ends_changes_with_every_end(slide: int, slides: int, offset: int, one: int, other: int) -> None:
    eviction = WindowEviction(SimpleNamespace(), Window("at", slide * slides, slide, offset))
    low, high = sorted((one, other))
    ends = {number * slide + offset + slide * slides for number in range(-400, 400)}
    passed = any(low < end <= high for end in ends)
    assert (eviction.ends_until(low) != eviction.ends_until(high)) is passed


def run(spark: SparkSession, folder: Path, eviction: WindowEviction | None) -> list[tuple[int, int, int, int]]:
    """Rows, rows in the state, rows removed and rows late by batch: two seconds of event time each, windows of 5 s."""
    source = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=200, advanceMillisPerBatch=2000, startTimestamp=1_700_000_000_000, numPartitions=2
    )
    # each sixth record is seven seconds old: mostly late
    at = F.when(F.col("value") % 6 == 0, F.col("timestamp") - F.expr("INTERVAL 7 SECONDS")).otherwise(
        F.col("timestamp")
    )
    records = source.load().select(at.alias("at"), "value").withWatermark("at", "1 second")
    counts = records.groupBy(F.window("at", "5 seconds"), (F.col("value") % 50).alias("key")).agg(F.count("*"))
    written: list[int] = []

    def write(results: DataFrame, number: int) -> None:
        while not started:
            sleep(0.01)
        with eviction.during(started[0]) if eviction is not None else nullcontext():
            written.append(len(results.collect()))

    started = []
    query = counts.writeStream.foreachBatch(write).outputMode("update").option("checkpointLocation", str(folder))
    started.append(query.trigger(processingTime="0 seconds").start())
    reports: dict[int, tuple[int, int, int, int]] = {}
    while len(reports) < BATCHES:
        assert started[0].isActive, started[0].exception()
        for progress in started[0].recentProgress:
            (state,) = progress.stateOperators
            number = progress.batchId
            if number < len(written) and number not in reports:
                late = state.numRowsDroppedByWatermark
                reports[number] = (written[number], state.numRowsTotal, state.numRowsRemoved, late)
        sleep(0.05)
    started[0].stop()
    return [reports[number] for number in range(BATCHES)]


@pytest.mark.spark
def test_rows_are_evicted_when_their_window_has_closed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_eviction, "MANY_ROWS", 0)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100")
    eviction = WindowEviction(spark, Window("at", 5 * SECOND, 5 * SECOND))
    eviction.begin()
    found = run(spark, tmp_path / "with", eviction)
    assert found == run(spark, tmp_path / "without", None)
    assert sum(removed for _, _, removed, _ in found) > 100
    assert eviction.prevented >= BATCHES // 2
