"""Results that are first emitted when event time reaches the end of their window, and then at every change.

A batch knows the event time that the batches before it have reached: the watermark and its delay. It emits the groups
of which that has reached the window's end, if they have changed since they were emitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import pytest

from millrace_jobs.pipeline.progress import BatchReport

from .answers import assert_same, latest, micros
from .cli import Project
from .disorder import COLUMNS, DELAY, HOPS, SCHEMA, VALUES, Record, disordered, window_starts
from .joined import NEAR, run
from .joined import duckdb_rows as rows_of_inputs
from .questions import Hop, Question
from .streams import Stream
from .tables import parquet

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

MIXED = [("native", 2, 1), ("pkg", 7, 3), ("shuffle", 1, 1), ("native", 2, 2), ("hash", 16, 3), ("pkg", 2, 1)]
"""Plans that change in mid-stream, between routed batches and others."""


class Model:
    """What each batch emits, from the contents of the batches and their watermarks alone."""

    def __init__(self, hop: Hop, reports: Sequence[BatchReport], batches: Sequence[list[Record]]) -> None:
        self.kept: list[Record] = []
        self.late: dict[int, int] = {}
        self._hop = hop
        self._groups: dict[tuple[int, str], tuple[int, int, datetime]] = {}
        self._emitted: dict[tuple[int, str], tuple[int, int, datetime]] = {}
        waiting = iter(batches)
        self.rows: Counter[tuple] = Counter()
        for report in reports:
            watermark = 0 if report.watermark is None else micros(report.watermark.replace(tzinfo=None))
            if report.rows:
                self.late[report.batch] = sum(not self._take(each, watermark) for each in next(waiting))
            self.rows.update((report.batch, *row) for row in self._due(watermark))

    def _take(self, record: Record, watermark: int) -> bool:
        at, key, value = record
        starts = [start for start in window_starts(self._hop, micros(at)) if start + self._size > watermark]
        for start in starts:
            count, total, last = self._groups.get((start, key), (0, 0, at))
            self._groups[start, key] = (count + 1, total + value, max(last, at))
        return bool(starts)

    def _due(self, watermark: int) -> Iterator[tuple]:
        event_time = watermark and watermark + DELAY // timedelta(microseconds=1)
        for (start, key), values in self._groups.items():
            if start + self._size <= event_time and self._emitted.get((start, key)) != values:
                self._emitted[start, key] = values
                yield (start, key, *values)

    @property
    def _size(self) -> int:
        return self._hop.size * 1_000_000

    @property
    def groups(self) -> list[tuple]:
        """The final rows."""
        return [(start, key, *values) for (start, key), values in self._groups.items()]


@pytest.mark.parametrize("shape", HOPS)
def test_each_batch_emits_what_event_time_has_reached_and_what_changed(spark, tmp_path, shape):
    hop = HOPS[shape]
    question = Question(keys={"key": "key"}, values=VALUES, window=hop)
    stream = Stream(
        spark, tmp_path, schema=COLUMNS, sql=question.spark, watermark=("moment", "30s"), emit="OnWindowEnd"
    )
    batches = disordered(seed=len(shape))
    reports = stream.feed([(placing, parquet(SCHEMA, batch)) for placing, batch in zip(MIXED, batches, strict=True)])
    model = Model(hop, reports, batches)
    found = stream.results().to_pylist()
    emitted = Counter((row["_batch_id"], micros(row["window_start"]), *list(row.values())[2:-1]) for row in found)
    assert emitted == model.rows
    groups = Counter(row[1:3] for row in emitted)
    assert max(groups.values()) > 1, "nothing changed after the window's end"
    assert len(groups) < len(model.groups), "nothing was held back"
    routed = [report for report in reports if report.rows and report.pin.algorithm != "native"]
    assert [report.late for report in routed] == [model.late[report.batch] for report in routed]

    stream.close_windows(("pkg", 2, 2))
    final = [(micros(row[0]), *row[2:]) for row in latest(stream.results(), 3)]
    assert_same(final, model.groups, 2)


SECONDS = "2024-01-01T00:0{}Z,{},{}\n"


def test_all_kinds_of_aggregates_merge_at_the_end_of_a_window(tmp_path):
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n" + "".join(SECONDS.format(f"0:{s}", "ab"[s % 2], s) for s in range(10, 60)))
    project.give("2.csv", "at,who,n\n" + SECONDS.format("1:10", "a", 1))
    columns = """count(*) AS rows, count(n) FILTER (WHERE n > 30) AS large, sum(n) AS total, avg(n) AS mean,
        min(who) AS least, max(double(n) / 4) AS most, sum(double(n)) / 2 AS half, max(CAST(n AS DECIMAL(9, 2))) AS exact"""
    sql = f"SELECT who, {columns} FROM events GROUP BY window(at, '1 minute'), who HAVING count(*) > 1"
    file = project.query(
        sql, emit="OnWindowEnd", source={"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}}
    )
    assert "first at the window's end, then every change" in project.millrace("explain", file).out
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert Counter(row[:-1] for row in project.results()) == Counter(
        [
            ("a", "25", "14", "850", "34.0", "a", "14.5", "425.0", "58.00"),
            ("b", "25", "15", "875", "35.0", "b", "14.75", "437.5", "59.00"),
        ]
    )


def test_aggregates_that_workers_cannot_merge_are_held_back_too(tmp_path):
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n" + "".join(SECONDS.format(f"0:{s}", "ab"[s % 2], s) for s in range(10, 60)))
    project.give("2.csv", "at,who,n\n" + SECONDS.format("1:10", "a", 1))
    columns = """count(DISTINCT n % 7) AS kinds, approx_count_distinct(n) AS values, median(n) AS middle,
        percentile_approx(n, 0.1) AS low, round(stddev_pop(n), 6) AS spread, max_by(n, -n) AS first"""
    sql = f"SELECT who, {columns} FROM events GROUP BY window(at, '1 minute'), who HAVING count(DISTINCT n) > 1"
    file = project.query(
        sql, emit="OnWindowEnd", source={"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}}
    )
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert Counter(row[:-1] for row in project.results()) == Counter(
        [("a", "7", "25", "34.0", "14", "14.422205", "10"), ("b", "7", "25", "35.0", "15", "14.422205", "11")]
    )


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("who FROM (SELECT who, window(at, '1 minute') FROM events)", "its rows are neither groups nor"),
        ("first(n) FROM events GROUP BY window(at, '1 minute')", "is not one of the aggregates with a mergeable"),
    ],
)
def test_what_cannot_be_held_back_is_refused_with_the_reason(tmp_path, select, why):
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n")
    result = project.millrace("explain", project.query(f"SELECT {select}", emit="OnWindowEnd"))
    result.assert_failed("spec.emit: the query cannot be run with emit OnWindowEnd: ", why, "write emit: OnUpdate or")


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("who, n FROM events", "its rows are records of a stream, which have no versions"),
        ("who, skewness(n) FROM events GROUP BY who", "is not one of the aggregates with a mergeable"),
    ],
)
def test_what_has_no_versions_can_have_no_history(tmp_path, select, why):
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n")
    table = {"bootstrapServers": "kafka:9092", "topic": "new", "key": ["who"]}
    sink = {"table": table | {"history": {"topic": "old", "retention": "1h"}}}
    result = project.millrace("explain", project.query(f"SELECT {select}", sink=sink))
    result.assert_failed("spec.sink.table.history: the result can have no history: ", why, "leave history out")


def test_groups_of_a_join_are_first_emitted_at_the_end_of_their_window(tmp_path):
    columns = "e.who, count(*) AS pairs, sum(c.n) AS total"
    joined = f"FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"
    project, rows = run(
        tmp_path,
        f"SELECT unix_seconds(window.start) AS since, {columns} {joined} GROUP BY window(e.at, '1 minute'), e.who",
        emit="OnWindowEnd",
    )
    newest: dict[tuple, tuple] = {}
    for row in sorted(rows, key=lambda row: int(row[-1])):
        newest[row[:2]] = row[:-1]
    minute = "epoch(time_bucket(INTERVAL 1 MINUTE, e.at))::BIGINT"
    assert Counter(newest.values()) == rows_of_inputs(project, f"SELECT {minute}, {columns} {joined} GROUP BY 1, e.who")
