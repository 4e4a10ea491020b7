"""Whole queries over Delta tables that change, and changes of a table that a sink has written by key."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lab.processes import Mark
from millrace_jobs.changes import WEIGHT
from millrace_jobs.sinks.base import ResultKeys
from spark.killed_queries import Process

from .changed import CHANGING, FEED, Kept, append, changing, create, merge, rows_of
from .killed_runs import CITIES, document, killed_and_killed
from .tables import FRESH, asked, delta_sink, delta_table, write

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

BY_CITY = "SELECT city, count(*) AS n, sum(id) AS total FROM trips GROUP BY city"


@pytest.mark.timeout(600)
def test_groups_follow_a_table_that_changes(tmp_path: Path) -> None:
    place, results = str(tmp_path / "a table"), str(tmp_path / "out")
    create(place, {number: CITIES[number % 4] for number in range(100)})

    def write_turn(turn: int) -> None:
        first = 1000 * (turn + 1)
        append(place, {first + number: CITIES[turn % 4] for number in range(20)})
        merge(place, dict.fromkeys(range(turn, 60, 7), CITIES[turn % 3]), deleted=(turn, 70 + turn))
        DeltaTable(place).update(updates={"city": f"'{CITIES[0]}'"}, predicate=f"id % 11 = {turn}")
        if turn == 3:
            DeltaTable(place).delete(f"city = '{CITIES[3]}'")
        if turn == 4:
            DeltaTable(place).optimize.compact()

    query = document(tmp_path, {"delta": {"path": place, "maxFilesPerBatch": 3}} | CHANGING, BY_CITY)
    query["spec"]["sink"] = {"delta": {"path": results, "key": ["city"]}}
    killed_and_killed(tmp_path, query, write_turn, 3)
    kept = rows_of(place).values()
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for row in kept:
        counts[row["city"]] += 1
        totals[row["city"]] += row["id"]
    found = asked(results, "SELECT city, n, total FROM results ORDER BY city")
    assert found == [(city, counts[city], totals[city]) for city in sorted(counts)]


def test_a_stream_meets_the_rows_as_they_were(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "Oslo", 2: "Rome"})
    write_deltalake(str(tmp_path / "clicks"), clicks(place, {1: 1, 2: 2}))
    merge(place, {1: "Bergen"}, deleted=(2,))
    merge(place, {3: "Riga"})
    write_deltalake(str(tmp_path / "clicks"), clicks(place, {3: 1, 4: 2, 5: 3}), mode="append")
    query = document(tmp_path, {"delta": {"path": place, "startingVersion": 0}} | CHANGING, "")
    query["spec"]["sources"]["clicks"] = {
        "delta": {"path": str(tmp_path / "clicks")},
        "schema": "click INT, id BIGINT, at TIMESTAMP",
        "watermark": {"column": "at", "delay": "0s"},
    }
    query["spec"]["query"]["sql"] = "SELECT click, city FROM clicks LEFT JOIN trips ON clicks.id = trips.id"
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(query), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(tmp_path / "query.yaml"), "--once"]
    run = Process(*command, log=tmp_path / "log", mark=Mark())
    assert run.wait() == 0, run.output
    found = pa.concat_tables(pq.read_table(each) for each in (tmp_path / "out").glob("*.parquet")).to_pylist()
    assert sorted((row["click"], row["city"]) for row in found) == [
        (1, "Oslo"),
        (2, "Rome"),
        (3, "Bergen"),
        (4, None),
        (5, "Riga"),
    ]


def clicks(place: str, ids: dict[int, int]) -> pa.Table:
    """Return records of these ids at the time of the newest commit of a table."""
    time = DeltaTable(place).history(1)[0]["timestamp"]
    times = pa.array([time * 1000] * len(ids), pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"click": pa.array(ids, pa.int32()), "id": pa.array(ids.values(), pa.int64()), "at": times})


def test_what_a_sink_upserts_are_changes(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    weight = f"CAST(IF(id % 3 = 0, -1, 1) AS BIGINT) AS {WEIGHT}"
    results = spark.range(0, 100).selectExpr("id", "concat('a', id) AS city", f"1L AS {WEIGHT}")
    sink = delta_sink(place, results, ["id"], keys=ResultKeys(("id",), weighted=True), hidden=[WEIGHT])
    sink.prepare(FRESH)
    delta_table(place).alter.set_table_properties(FEED)
    kept = Kept(changing(place, tmp_path / "state"))
    write(sink, results, 0)
    kept.take_all()
    write(sink, spark.range(50, 120).selectExpr("id", "concat('b', id) AS city", weight), 1)
    delta_table(place).optimize.compact()
    kept.take_all(replicas=2)
    assert kept.rows == rows_of(place)
    assert len(kept.rows) == 50 + 47
