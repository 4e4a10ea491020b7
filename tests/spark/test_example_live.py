"""The example without an end: whatever it has said when it is stopped is right."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import yaml

from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.generated.rows import GeneratedRows

from .answers import assert_same, duckdb_rows, rows_of, without_zones
from .cli import Project
from .example_answers import windows

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FILE = Path(__file__).parents[2] / "examples" / "11-nexmark-live.yaml"
POSITION = re.compile(r'"position": \{"row": (\d+), "epoch": (\d+)\}')


def test_windows_of_a_generated_stream_are_right_when_it_is_stopped(tmp_path: Path) -> None:
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    document["spec"]["sink"] = {"files": {"path": "out", "format": "parquet"}}
    project = Project(tmp_path)
    project.write("live.yaml", yaml.safe_dump(document))
    with project.start("run", "live.yaml") as running:
        running.wait_for(r"batch=\d+ rows=[1-9]", times=8)
        running.process.send_signal(signal.SIGINT)
        ended = running.finish()
    assert (ended.status, ended.err) == (0, ""), ended
    assert ended.summary["late"] == "0"
    assert int(ended.summary["results"]) > 0

    offsets = tmp_path / ".millrace/nexmark-live/spark/offsets"
    last = max((file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    position = POSITION.search(last.read_text(encoding="utf-8"))
    assert position is not None
    assert ended.summary["rows"] == position[1]
    source = open_source(
        "bid", SourceSpec.model_validate({"nexmark": document["spec"]["sources"]["bid"]["nexmark"]}), tmp_path, tmp_path
    )
    bids = pa.Table.from_batches(source.read(GeneratedRows(0, int(position[1]), int(position[2])), ""))

    with duckdb.connect() as connection:
        found = rows_of(
            without_zones(connection.sql(f"SELECT * FROM '{tmp_path}/out/batch-*.parquet'").to_arrow_table())
        )
    closed = max(until for until, *_ in found)
    sql = f"""SELECT until, auction, count(*), max(price) FROM {windows("events", "date_time", 10, 2)}
              WHERE until <= TIMESTAMP '{closed}' GROUP BY ALL HAVING count(*) >= 100"""
    assert_same(found, duckdb_rows(bids, sql), 2)
