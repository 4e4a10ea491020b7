"""Real streams through every algorithm and every n and m, changed from batch to batch: the answer is DuckDB's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace_jobs.partitioners.registry import ALGORITHMS as ALL_ALGORITHMS

from .answers import assert_same, duckdb_rows, expected_rows, latest, rows_of
from .datasets import TASKS, TAXI, WEB_LOG, DataSet, Find
from .questions import Both, Estimate, Hop, Question, decimal_average
from .streams import COMBINATIONS, FOREVER, Placing, Stream, assert_placed

pytestmark = [pytest.mark.spark, pytest.mark.in_turn, pytest.mark.data]

ALGORITHMS = ("native", "shuffle", "hash", "pkg")

EVERY = ("native", *[name for name in ALL_ALGORITHMS if name != "native"], "native", "prompt", "dalton", "cam")

MIXED: tuple[Placing, ...] = tuple(
    (algorithm, n, m)
    for algorithm, (n, m) in zip(EVERY, itertools.cycle([(2, 1), (16, 3), (7, 1), (1, 3), (7, 3), (16, 1), (2, 3)]))
)
"""Every algorithm after another, with changes between routed and native, which restart the query."""


@dataclass(frozen=True)
class Case:
    """A question to a real stream."""

    events: DataSet
    question: Question
    emit: str


TRIPS = Case(
    TAXI,
    Question(
        keys={"x": "start_x", "y": "start_y"},
        values={
            "trips": "count(*)",
            "fares": "sum(fare)",
            "fare": decimal_average("fare", 2),
            "distance": "avg(distance)",
            "tip": "max(tip)",
            "first": "min(pickup)",
            "from_here": "count(CASE WHEN end_x = 168 THEN end_x END)",
        },
        window=Hop("pickup", size=600, slide=60),
        where="distance > 0.5 AND start_x IS NOT NULL",
    ),
    "OnWindowClose",
)
"""A hopping window whose slide divides its size; everything is computed by Arrow."""

RIDES = Case(
    TAXI,
    Question(
        keys={"far": "CASE WHEN distance >= 2 THEN start_x END"},
        values={
            "rides": "count(*)",
            "to": "sum(end_x)",
            "tipped": "count(tip) FILTER (WHERE tip > 0)",
            "best": "max(tip) FILTER (WHERE end_y < 165)",
            "dearest": "max(fare)",
            "spread": "stddev(end_x)",
            "variance": "var_pop(end_y)",
            "cab": "max(medallion)",
            "cabs": Estimate("medallion"),
        },
        window=Hop("pickup", size=420, slide=180, start=30),
    ),
    "OnUpdate",
)
"""A slide that does not divide the size, an offset, and a key computed by Arrow."""

REQUESTS = Case(
    WEB_LOG,
    Question(
        keys={
            "verb": "upper(method)",
            "outcome": "CASE WHEN response >= 400 THEN 'error' WHEN response = 304 THEN 'cached' ELSE 'sent' END",
        },
        values={
            "requests": "count(*)",
            "sized": "count(bytes)",
            "sent": "sum(bytes)",
            "size": "avg(bytes)",
            "deviation": "stddev_pop(response)",
            "first": "min(url)",
            "last": "max(url)",
            "until": "max(time)",
            "hosts": Estimate("host"),
        },
        window=Hop("time", size=3600, slide=3600, start=900),
        where="url LIKE '/images/%' OR length(host) > 12",
        having="count(*) >= 5",
    ),
    "OnUpdate",
)
"""A tumbling window with an offset; filter and keys are for Spark only. HAVING, once true, stays true."""

PAGES = Case(
    WEB_LOG,
    Question(
        keys={"url": "url", "response": "response"},
        values={
            "requests": "count(*)",
            "bytes": "sum(bytes)",
            "first": "min(host)",
            "since": "min(time)",
        },
        where="response IN (200, 304) AND bytes BETWEEN 1 AND 2000000",
        having="count(*) > 20",
    ),
    "OnUpdate",
)
"""No window."""

JOBS = Case(
    TASKS,
    Question(
        keys={"job": "job", "event": "event"},
        values={
            "tasks": "count(*)",
            "placed": "count(machine)",
            "machines": "sum(machine)",
            "cpu": "sum(cpu)",
            "memory": "avg(memory)",
            "disk": "max(disk)",
            "least": "min(cpu)",
            "priority": "stddev_samp(priority)",
            "user": Both("min(`user`)", 'min("user")'),
        },
        window=Hop("time", size=100, slide=40, start=7),
    ),
    "OnWindowClose",
)
"""From the start of the trace, before which there is no time: the watermark never moves."""

TOTALS = Case(
    TASKS,
    Question(
        values={
            "events": "count(*)",
            "placed": "count(machine)",
            "cpu": "sum(cpu)",
            "high": "count(*) FILTER (WHERE priority BETWEEN 9 AND 11)",
            "memory": "avg(memory)",
            "class": "avg(class)",
            "last": "max(time)",
            "users": Both("max(`user`)", 'max("user")'),
            "jobs": Estimate("job"),
        },
        where="class IN (0, 1, 2)",
    ),
    "OnUpdate",
)
"""No window, no key."""


def answer(stream: Stream, case: Case) -> list[tuple[object, ...]]:
    """The stream's results, as its way to emit wants them to be read."""
    if case.emit == "OnUpdate":
        return latest(stream.results(), case.question.key_columns)
    stream.close_windows(("pkg", 2, 2))
    return rows_of(stream.results())


def run(spark: SparkSession, folder: Path, data: Find, case: Case, placings: Sequence[Placing]) -> None:
    """Feed the whole data set, one piece under each placing, and compare."""
    time = case.events.time
    stream = Stream(
        spark, folder, sql=case.question.spark, watermark=(time, FOREVER), emit=case.emit, **case.events.source()
    )
    pieces = case.events.pieces(data, len(placings))
    assert_placed(stream.feed(list(zip(placings, pieces, strict=True))), placings)
    expected = expected_rows(spark, case.events.table(data), case.question)
    assert len(expected) > (20 if case.question.keys else 0)
    assert_same(answer(stream, case), expected, case.question.key_columns)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", [TRIPS, REQUESTS, JOBS], ids=["taxi", "web_log", "tasks"])
def test_one_stream_under_all_workers_and_replicas_has_the_rows_of_duckdb(spark, tmp_path, data, case, algorithm):
    combinations = random.Random(f"{algorithm} {case.question.spark}").sample(COMBINATIONS, len(COMBINATIONS))
    run(spark, tmp_path, data, case, [(algorithm, n, m) for n, m in combinations])


@pytest.mark.parametrize("case", [RIDES, PAGES, TOTALS], ids=["taxi", "web_log", "tasks"])
def test_one_stream_under_all_algorithms_has_the_rows_of_duckdb(spark, tmp_path, data, case):
    run(spark, tmp_path, data, case, MIXED)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_python_aggregator_finds_the_most_frequent_values(spark, tmp_path, data, algorithm):
    python = {
        "aggregator": "top_values:TopValues",
        "options": {"column": "url", "k": 3},
        "groupBy": ["response", "method"],
        "window": {"column": "time", "size": "3h", "slide": "1h"},
    }
    placings = [(algorithm, n, m) for n, m in random.Random(algorithm).sample(COMBINATIONS, len(COMBINATIONS))]
    stream = Stream(
        spark, tmp_path, python=python, watermark=("time", FOREVER), emit="OnWindowClose", **WEB_LOG.source()
    )
    assert_placed(stream.feed(list(zip(placings, WEB_LOG.pieces(data, len(placings)), strict=True))), placings)
    stream.close_windows((algorithm, 2, 2))
    counted = Question(
        keys={"response": "response", "method": "method", "url": "url"},
        values={"times": "count(*)"},
        window=Hop("time", size=10800, slide=3600),
    ).duckdb
    expected = duckdb_rows(
        WEB_LOG.table(data),
        f"""SELECT window_start, window_end, response, method, list(url ORDER BY place), list(times ORDER BY place)
            FROM (SELECT *, row_number() OVER (PARTITION BY window_start, response, method
                                               ORDER BY times DESC, url) AS place FROM ({counted}))
            WHERE place <= 3 GROUP BY ALL""",
    )
    assert_same(rows_of(stream.results()), expected, 4)


def test_a_python_aggregator_without_a_window_goes_through_all_algorithms(spark, tmp_path, data):
    python = {
        "aggregator": "spark.aggregators:Spread",
        "options": {"column": "bytes"},
        "groupBy": ["host"],
    }
    stream = Stream(spark, tmp_path, python=python, **WEB_LOG.source())
    assert_placed(stream.feed(list(zip(MIXED, WEB_LOG.pieces(data, len(MIXED)), strict=True))), MIXED)
    expected = duckdb_rows(
        WEB_LOG.table(data), "SELECT host, max(bytes) - min(bytes), count(bytes) FROM events GROUP BY host"
    )
    assert_same(latest(stream.results(), 1), expected, 1)


def test_a_projection_stays_with_spark_under_any_plan(spark, tmp_path, data):
    sql = "SELECT host, upper(method) AS verb, bytes FROM events WHERE bytes > 50000"
    stream = Stream(spark, tmp_path, sql=sql, **WEB_LOG.source())
    placings: list[Placing] = [("native", 2, 1), ("hash", 7, 3), ("pkg", 16, 1)]
    reports = stream.feed(list(zip(placings, WEB_LOG.pieces(data, 3), strict=True)))
    assert [report.rows for report in reports if report.rows] == [10323] * 3
    actual = rows_of(stream.results().select(["host", "verb", "bytes"]))
    assert sorted(actual) == sorted(duckdb_rows(WEB_LOG.table(data), sql))
