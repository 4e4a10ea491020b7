"""A query whose source gets wider types on a checkpoint with open windows, with DuckDB as judge."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace_jobs.checkpoint.checkpoint import Checkpoint

from .answers import Row, assert_same, duckdb_rows
from .cli import Project
from .questions import Expression, Hop, Question
from .sequences import written_in
from .tables import parquet, table_of

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

START = datetime(2024, 5, 1, 12)
FIXED = [("moment", pa.timestamp("us")), ("key", pa.string())]
NARROW = pa.schema(
    [*FIXED, ("small", pa.int16()), ("whole", pa.int32()), ("ratio", pa.float32()), ("price", pa.decimal128(9, 2))]
)
WIDE = pa.schema(
    [*FIXED, ("small", pa.int32()), ("whole", pa.int64()), ("ratio", pa.float64()), ("price", pa.decimal128(15, 2))]
)
TYPES = {
    "narrow": "small SMALLINT, whole INT, ratio FLOAT, price DECIMAL(9, 2)",
    "wide": "small INT, whole BIGINT, ratio DOUBLE, price DECIMAL(15, 2)",
    "narrower": "small INT, whole INT, ratio DOUBLE, price DECIMAL(15, 2)",
}
VALUES: dict[str, Expression] = {
    "records": "count(*)",
    "name": "max(key || '-')",
    "least": "min(small)",
    "most": "max(whole)",
    "highest": "max(ratio)",
    "dearest": "max(price)",
    "total": "sum(whole)",
    "paid": "sum(price)",
    "known": "count(ratio)",
    "spread": "stddev_samp(whole)",
    "low": "min(whole) FILTER (WHERE small > 0)",
}
ADDED: dict[str, Expression] = {"lowest": "min(ratio)"}
WINDOW = Hop("moment", size=60, slide=25, start=5)


def question(values: dict[str, Expression]) -> Question:
    return Question(keys={"key": "key"}, values=values, window=WINDOW)


def records(batch: int, *, wide: bool) -> list[Row]:
    """Records up to 25 s older than those of a batch that is 40 s older, so that windows stay open over a change."""
    chance = random.Random(batch)
    scale = 10**6 if wide else 1

    def maybe(value: Any) -> Any:
        return chance.choice([None, value, value])

    return [
        (
            START + timedelta(seconds=40 * batch - round(chance.uniform(0, 25), 3)),
            chance.choice(["a", "b", "c" * 20, "without numbers", None]),
            maybe(chance.randrange(-(2**15), 2**15) * (2**14 if wide else 1)),
            maybe(chance.choice([-(2**31), -1, 0, 2**31 - 1, chance.randrange(2**30)]) * scale),
            maybe(float(np.float32(chance.uniform(-9, 9)))),
            maybe(Decimal(chance.randrange(-(10**9) + 1, 10**9) * scale) / 100),
        )
        for _ in range(60)
    ]


def without_numbers(rows: list[Row]) -> list[Row]:
    return [(*row[:2], None, None, None, None) if row[1] == "without numbers" else row for row in rows]


class Stream:
    """A project whose files of records are known, the first ones with narrow types."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.project, self.spec, self.given = Project(folder), spec, 0
        self.records: list[Row] = []

    def give(self, number: int, *, wide: bool) -> None:
        for _ in range(number):
            rows = without_numbers(records(self.given, wide=wide))
            (self.project.inbox / f"{self.given:03d}.parquet").write_bytes(parquet(WIDE if wide else NARROW, rows))
            self.records += rows
            self.given += 1

    def query(
        self, types: str, values: dict[str, Expression] = VALUES, sink: str = "out", asked: Question | None = None
    ) -> str:
        source = {
            "files": {"path": "in", "format": "parquet", "maxFilesPerBatch": 1},
            "schema": f"moment TIMESTAMP, key STRING, {TYPES[types]}",
            "watermark": {"column": "moment", "delay": "60s"},
        }
        sql = (asked or question(values)).spark
        return self.project.query(sql, source=source, sink={"files": {"path": sink}}, **self.spec)

    def run(self, query: str, how: str = "--available-now") -> str:
        result = self.project.millrace("run", query, how)
        assert result.status == 0, result
        return result.out

    def expected(self, values: dict[str, Expression]) -> list[Row]:
        return duckdb_rows(table_of(WIDE, self.records), question(values).duckdb)

    def results(self, values: dict[str, Expression]) -> list[Row]:
        """The last row of each group."""
        groups: dict[Row, Row] = {}
        for each in written_in(self.project.folder / "out", 10**9):
            if set(values) <= set(each.names):
                groups.update((row[:3], row) for row in each.rows)
        return list(groups.values())


@pytest.mark.parametrize(("emit", "algorithm"), [("OnUpdate", "pkg"), ("OnWindowClose", "native")])
def test_values_of_before_have_the_wider_type_and_later_ones_may_exceed_the_old_one(tmp_path, emit, algorithm):
    stream = Stream(tmp_path, emit=emit, partitioner={"algorithm": algorithm})
    stream.give(3, wide=False)
    stream.run(stream.query("narrow"))
    stream.give(3, wide=True)
    said = stream.run(stream.query("wide"))
    assert "whole was INT and is BIGINT" in said
    assert "the state has the types of the query's aggregates now" in said
    stream.give(1, wide=True)
    assert "the state has" not in stream.run(stream.query("wide"), "--once")
    found = stream.results(VALUES)
    assert max(row[6] for row in found if row[6] is not None) > 2**31
    assert_same(found, stream.expected(VALUES), 3)
    assert [each.name for each in (tmp_path / "checkpoint").glob("spark*")] == ["spark-1"]


def test_types_become_wider_and_aggregates_are_added_in_one_change(tmp_path):
    stream = Stream(tmp_path, emit="OnUpdate")
    stream.give(2, wide=False)
    stream.run(stream.query("narrow"))
    stream.give(3, wide=True)
    changed = VALUES | ADDED
    assert "the state has taken up MIN(ratio)" in stream.run(stream.query("wide", changed))
    stream.give(1, wide=True)
    stream.run(stream.query("wide", changed), "--once")
    names = len(changed) + 2
    newest = stream.results(changed)
    expected = {row[:3]: row for row in stream.expected(changed)}
    assert_same([row[:names] for row in newest], [expected[row[:3]][:names] for row in newest], 3)
    assert any(row[names] == expected[row[:3]][names] is not None for row in newest)


def test_sums_and_counts_go_on_in_the_same_state(tmp_path):
    values: dict[str, Expression] = {"records": "count(*)", "total": "sum(whole)", "mean": "avg(ratio)"}
    stream = Stream(tmp_path, emit="OnUpdate")
    stream.give(2, wide=False)
    stream.run(stream.query("narrow", values))
    stream.give(2, wide=True)
    said = stream.run(stream.query("wide", values), "--once")
    assert "whole was INT and is BIGINT" in said
    assert "the state has" not in said
    assert_same(stream.results(values), stream.expected(values), 3)
    assert Checkpoint(tmp_path / "checkpoint").spark == tmp_path / "checkpoint" / "spark"


def test_a_query_without_a_window_has_wider_types(tmp_path):
    values: dict[str, Expression] = {"most": "max(whole)", "paid": "sum(price)"}
    without = Question(keys={"key": "key"}, values=values)
    stream = Stream(tmp_path, emit="OnUpdate")
    stream.give(2, wide=False)
    stream.run(stream.query("narrow", asked=without))
    stream.give(2, wide=True)
    assert "the state has the types" in stream.run(stream.query("wide", asked=without))
    stream.give(1, wide=True)
    stream.run(stream.query("wide", asked=without), "--once")
    groups = {row[0]: row for each in written_in(tmp_path / "out", 10**9) for row in each.rows}
    assert_same(list(groups.values()), duckdb_rows(table_of(WIDE, stream.records), without.duckdb), 1)


def test_the_version_of_before_goes_on_if_the_changed_one_fails_before_its_first_batch(tmp_path):
    stream = Stream(tmp_path, emit="OnUpdate")
    stream.give(2, wide=False)
    stream.run(stream.query("narrow"))
    (tmp_path / "a file").touch()
    stream.give(1, wide=False)
    failed = stream.project.millrace("run", stream.query("wide", sink="a file"), "--available-now")
    failed.assert_failed("a file")
    layout = Checkpoint(tmp_path / "checkpoint").layout
    assert layout is not None
    assert "int64" in layout["types"][2:]
    stream.run(stream.query("narrow"))
    stream.give(1, wide=False)
    stream.run(stream.query("narrow"), "--once")
    assert_same(stream.results(VALUES), stream.expected(VALUES), 3)


def test_a_narrower_type_is_refused_and_nothing_is_touched(tmp_path):
    stream = Stream(tmp_path, emit="OnUpdate")
    stream.give(1, wide=True)
    stream.run(stream.query("wide"))
    layout = Checkpoint(tmp_path / "checkpoint").layout
    stream.project.millrace("run", stream.query("narrower"), "--available-now").assert_failed(
        "with whole BIGINT, not with whole INT", "no other type may change"
    )
    assert Checkpoint(tmp_path / "checkpoint").layout == layout
