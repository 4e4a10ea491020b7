"""A query that gets more aggregates on a checkpoint with open windows, with DuckDB as judge, crashes included."""

from __future__ import annotations

import random
import shutil
import signal
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millrace_jobs.checkpoint.checkpoint import Checkpoint

from .answers import Row, assert_same, duckdb_rows
from .cli import Project
from .die_while_adding import STEPS
from .questions import Expression, Hop, Question, decimal_average
from .result_files import files_of
from .sequences import written_in
from .tables import parquet, table_of

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

START = datetime(2024, 5, 1, 12)
SCHEMA = pa.schema(
    [
        ("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64()),
        ("price", pa.decimal128(12, 2)), ("rate", pa.float64()),
    ]
)  # fmt: skip
SOURCE = {
    "files": {"path": "in", "format": "parquet", "maxFilesPerBatch": 1},
    "schema": "moment TIMESTAMP, key STRING, value BIGINT, price DECIMAL(12, 2), rate DOUBLE",
    "watermark": {"column": "moment", "delay": "60s"},
}
HELD: dict[str, Expression] = {
    "records": "count(*)",
    "name": "max(key || '-')",
    "dearest": "max(price)",
    "spread": "stddev_samp(rate)",
}
ADDED: dict[str, Expression] = {
    "known": "count(value)",
    "total": "sum(value)",
    "most": "max(rate)",
    "least": "min(price)",
    "paid": "sum(price)",
    "mean": decimal_average("price", 2),
    "above": "sum(value) FILTER (WHERE value > 20)",
    "last": "max(key)",
}
WINDOW = Hop("moment", size=60, slide=25, start=5)
AT_ONCE = {"records": "count(*)", "total": "sum(value)", "known": "count(value)"}


def question(values: dict[str, Expression]) -> Question:
    return Question(keys={"key": "key"}, values=values, window=WINDOW)


def records(seed: int, batch: int) -> list[Row]:
    """Records up to 25 s older than those of a batch that is 40 s older: windows close, and others stay open."""
    chance = random.Random(1000 * seed + batch)
    return [
        (
            START + timedelta(seconds=40 * batch - round(chance.uniform(0, 25), 3)),
            chance.choice(["a", "b", "c" * 20, f"of batch {batch}", None]),
            chance.choice([None, chance.randrange(-100, 100)]),
            chance.choice([None, Decimal(chance.randrange(10_000)) / 100]),
            chance.choice([None, chance.uniform(0, 9)]),
        )
        for _ in range(60)
    ]


class Story:
    """A project whose files of records are known."""

    def __init__(self, folder: Path, seed: int, **spec: Any) -> None:
        self.project, self.seed, self.spec, self.given = Project(folder), seed, spec, 0
        self.records: list[Row] = []

    def give(self) -> None:
        made = records(self.seed, self.given)
        (self.project.inbox / f"{self.given:03d}.parquet").write_bytes(parquet(SCHEMA, made))
        self.records += made
        self.given += 1

    def query(self, values: dict[str, Expression], **spec: Any) -> str:
        given = {"source": SOURCE, "sink": {"files": {"path": "out"}}} | self.spec | spec
        return self.project.query(question(values).spark, **given)

    def run(self, query: str, how: str = "--available-now") -> str:
        result = self.project.millrace("run", query, how)
        assert result.status == 0, result
        return result.out

    @property
    def newest_window(self) -> datetime:
        """The start of the last window that has a record of before the change."""
        whole = table_of(SCHEMA, self.records)
        ((found,),) = duckdb_rows(whole, f"SELECT max(window_start) FROM ({question(HELD).duckdb})")
        return found

    def expected(self, values: dict[str, Expression], added: dict[str, Expression], newest: datetime) -> list[Row]:
        """The rows of all records, in which added values are NULL in windows that do not start later."""
        asked = question(values)
        names = ["window_start", "window_end", "key", *values]
        shown = [f"CASE WHEN window_start > TIMESTAMP '{newest}' THEN {n} END" if n in added else n for n in names]
        return duckdb_rows(table_of(SCHEMA, self.records), f"SELECT {', '.join(shown)} FROM ({asked.duckdb})")

    def results(self, values: dict[str, Expression], folder: str = "out", since: int = 0) -> list[Row]:
        """The last row of each group, of batches with all of these values."""
        groups: dict[Row, Row] = {}
        for each in written_in(self.project.folder / folder, 10**9):
            if set(values) <= set(each.names) and each.batch >= since:
                groups.update((row[:3], row) for row in each.rows)
        return list(groups.values())


CHANGED = {"known": ADDED["known"], "records": HELD["records"], **ADDED, "name": HELD["name"], "spread": HELD["spread"]}
"""New aggregates before, between and behind those that were there, of which one has left."""


@pytest.mark.parametrize(("emit", "algorithm"), [("OnUpdate", "pkg"), ("OnWindowClose", "native")])
def test_added_aggregates_count_in_later_windows_and_the_others_in_all(tmp_path, emit, algorithm):
    story = Story(tmp_path, seed=len(emit), emit=emit, partitioner={"algorithm": algorithm})
    for _ in range(3):
        story.give()
    story.run(story.query(HELD))
    newest = story.newest_window
    before = [] if emit == "OnUpdate" else story.results(HELD)
    for _ in range(4):
        story.give()
    changed = story.query(CHANGED)
    said = story.run(changed)
    assert f"in windows that start after {newest:%Y-%m-%dT%H:%M:%S}.000000Z\n" in said
    assert "AVG(price), SUM(value) FILTER" in said
    assert "is no longer in the results" in said
    assert "SUM(value)" not in story.run(story.query(CHANGED))  # it was said once
    story.give()
    said = story.run(changed, "--once")
    expected = story.expected(CHANGED, ADDED, newest)
    if emit == "OnUpdate":  # groups whose records are all older were emitted by the first query alone
        found = story.results(CHANGED)
        keys = {row[:3] for row in found}
        assert {row[:3] for row in expected if row[0] > newest} <= keys
        expected = [row for row in expected if row[:3] in keys]
    else:
        closed = {row[:3] for row in before}
        found = story.results(CHANGED)
        assert closed.isdisjoint(row[:3] for row in found)
        expected = [row for row in expected if row[:3] not in closed]
    assert any(row[3] is None for row in found)
    assert_same(found, expected, 3)


LOOKED_AT = ("before the rows are written", "before the renaming", "before the original is removed")
"""Steps after which both queries go on, each from a copy of what is left."""


@pytest.mark.slow(minutes=2)
def test_a_process_that_dies_at_any_step_leaves_the_old_state_or_the_new_one(tmp_path):
    story, checkpoint = Story(tmp_path, seed=1), tmp_path / "checkpoint"
    for _ in range(2):
        story.give()
    story.run(story.query(HELD))
    newest = story.newest_window
    story.give()
    whole = shutil.copytree(checkpoint, tmp_path / "whole")
    for step in STEPS:
        assert story.project.program("spark.die_while_adding", story.query(AT_ONCE), step) == -signal.SIGKILL
        layout = Checkpoint(checkpoint).layout
        assert layout is not None
        is_new = step in list(STEPS)[-2:]
        assert ("SUM(value)" in layout["aggregates"]) == is_new
        for number, values in enumerate([HELD, AT_ONCE] if step in LOOKED_AT else []):
            left, out = shutil.copytree(checkpoint, tmp_path / f"{step} {number}"), f"out of {step} {number}"
            story.run(story.query(values, sink={"files": {"path": out}}, checkpoint={"uri": left.as_uri()}))
            found = story.results(values, out)
            expected = story.expected(values, {"total": "", "known": ""} if number else {}, newest)
            keys = {row[:3] for row in found}
            assert {row[:3] for row in expected if row[0] > newest} <= keys
            assert_same(found, [row for row in expected if row[:3] in keys], 3)
            assert [each.name for each in left.glob("spark*")] == ["spark-1" if number or is_new else "spark"]
        if is_new:
            shutil.rmtree(checkpoint)
            shutil.copytree(whole, checkpoint)


def test_an_unfinished_batch_is_finished_by_the_query_that_began_it(tmp_path):
    story = Story(tmp_path, seed=2)
    story.give()
    query = story.query(HELD)
    story.run(query)
    story.give()
    plan = story.project.write("plan.yaml", "{algorithm: hash, replicas: 1, parallelism: 2}\n")
    assert story.project.program("spark.die_in_batch", query, plan) == -signal.SIGKILL
    before = {name: each for name, each in files_of(tmp_path / "checkpoint").items() if name != "lease.json"}
    refused = story.project.millrace("run", story.query(AT_ONCE), "--available-now")
    refused.assert_failed("of the checkpoint", "was begun and is not finished", "until that batch is finished")
    after = {name: each for name, each in files_of(tmp_path / "checkpoint").items() if name != "lease.json"}
    assert after == before
    story.run(story.query(HELD))
    story.run(story.query(AT_ONCE))
