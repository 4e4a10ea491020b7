"""Random queries of tables, killed with SIGKILL at random moments and continued under other plans, have DuckDB's rows."""

from __future__ import annotations

import random
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from generated_tables import SOURCES, rows, sources_in
from lab.processes import Mark
from staged_queries import duckdb_rows

from .cli import Project
from .killed_queries import Process, choose_plan

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FILES, RECORDS = 5, 12
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[int, str, int]


def recorded(chance: random.Random) -> list[list[Row]]:
    """Records of a source in files, each some microseconds after the one before it, with some disorder."""
    return [
        [
            (20 * number + chance.randint(-9, 30) + 10, chance.choice("abc"), chance.randint(0, 3))
            for _ in range(RECORDS)
        ]
        for number in range(FILES)
    ]


def contents(files: list[list[Row]], *, table: bool) -> list[Row]:
    """All records of a stream, or the rows of a table: the newest record of each key, by time and then by arrival."""
    arrived = [row for file in files for row in file]
    if not table:
        return arrived
    return list({row[1]: row for row in sorted(arrived, key=lambda row: row[0])}.values())


def query_file(project: Project, sql: str, inputs: dict[str, list[list[Row]]]) -> Path:
    """Write the inputs, and the query with the changelog of its groups in files; return the file of the query."""
    sources = {}
    for name, files in inputs.items():
        (project.folder / name).mkdir()
        for number, records in enumerate(files):
            lines = [f"{(BEGIN + timedelta(microseconds=at)).isoformat()},{key},{n}\n" for at, key, n in records]
            project.write(f"{name}/{number}.csv", "at,k,n\n" + "".join(lines))
        sources[name] = {
            "files": {"path": str(project.folder / name), "format": "csv", "maxFilesPerBatch": 1},
            "schema": "at TIMESTAMP, k STRING, n BIGINT",
            "watermark": {"column": "at", "delay": "1h"},
        } | ({"table": {"keys": ["k"]}} if SOURCES[name] else {})
    spec = {
        "sources": sources,
        "query": {"sql": sql},
        "sink": {"files": {"path": str(project.folder / "out"), "key": ["k"]}},
        "batchInterval": "200ms",
        "parallelism": {"max": 16},
        "checkpoint": {"uri": (project.folder / "checkpoint").as_uri()},
    }
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "random"},
        "spec": spec,
    }
    return project.folder / project.write("query.yaml", yaml.safe_dump(document))


def table_of(folder: Path) -> Counter[tuple[object, ...]]:
    """Return the table that a changelog adds up to: for each key its newest upsert that no delete has removed."""
    if not list(folder.glob("*.parquet")):
        return Counter()  # no row has ever been in it
    with duckdb.connect() as reader:
        changes = f"read_parquet('{folder}/*.parquet')"
        twice = f"SELECT k FROM {changes} GROUP BY k, _batch_id HAVING count(*) > 1"
        assert reader.execute(twice).fetchall() == []
        newest = "row_number() OVER (PARTITION BY k ORDER BY _batch_id DESC) = 1 AND _operation = 'upsert'"
        return Counter(reader.execute(f"SELECT k, c, total FROM {changes} QUALIFY {newest}").fetchall())


@pytest.mark.timeout(1200)
@settings(
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(
    inner=rows().filter(lambda sql: len(sql) > 250 and len(sources_in(sql)) > 1),
    chance=st.randoms(use_true_random=True),
)
def test_a_random_query_that_is_killed_has_duckdb_s_rows(tmp_path_factory, inner, chance):
    sql = f"SELECT k, count(*) AS c, sum(n) AS total FROM ({inner}) GROUP BY k"
    folder = tmp_path_factory.mktemp("random")
    inputs = {name: recorded(chance) for name in sources_in(sql)}
    query, plan_file, mark = query_file(Project(folder), sql, inputs), folder / "plan.yaml", Mark()
    command = [str(Path(sys.executable).parent / "millrace"), "run", str(query), "--plan", str(plan_file)]
    for number in range(2):
        choose_plan(plan_file, chance, number)
        run = Process(*command, log=folder / f"{number}.log", mark=mark)
        run.wait_for_batch()
        run.sleep(chance.uniform(0, 1.5))
        run.kill()
    last = Process(*command, "--once", log=folder / "last.log", mark=mark)
    assert last.wait() == 0, last.output
    held = {name: contents(files, table=SOURCES[name]) for name, files in inputs.items()}
    assert table_of(folder / "out") == duckdb_rows(sql, held), (sql, inputs)
