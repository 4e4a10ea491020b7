"""Contents of static tables in a checkpoint in S3."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Process
from lab.s3_server import S3Server
from millrace_jobs.sources.static_tables import TableContents
from millrace_jobs.stores.objects import ObjectPath

MILLRACE = str(Path(sys.executable).with_name("millrace"))
ROWS = pa.table({"who": ["a", "b"], "town": ["Rome", None]})


def test_contents_are_stored_and_removed(place: ObjectPath) -> None:
    contents = TableContents(place / "towns")
    assert contents.newest() is None
    first = contents.store(ROWS, "a file", None, None)
    assert contents.newest() == first
    assert contents.load(first.name).equals(ROWS)
    assert contents.store(ROWS, "a file", "2", first).name == first.name
    second = contents.store(ROWS.slice(1), "a file", "3", first)
    assert second.name > first.name
    contents.remove_before(second.name)
    assert sorted(name for name, _ in (place / "towns").objects()) == [f"{second.name}.json", f"{second.name}.parquet"]
    with pytest.raises(FileNotFoundError):
        contents.load(first.name)


@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.timeout(600)
def test_a_query_keeps_the_contents_of_its_tables_in_s3(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    events = {"files": {"path": str(tmp_path / "in"), "format": "csv"}, "schema": "who STRING, n INT"}
    towns = {
        "files": {"path": str(tmp_path / "towns.csv"), "format": "csv"},
        "schema": "who STRING, town STRING",
        "table": {"keys": ["who"], "static": True, "refreshEvery": "1s"},
    }
    spec = {
        "sources": {"events": events, "towns": towns},
        "query": {"sql": "SELECT e.n, t.town FROM events e LEFT JOIN towns t ON t.who = e.who"},
        "sink": {"files": {"path": str(tmp_path / "out"), "format": "parquet"}},
        "batchInterval": "500ms",
        "parallelism": {"max": 2},
        "checkpoint": {"uri": str(place)},
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}, "spec": spec}
    file = tmp_path / "query.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / "in").mkdir()
    for number, town in enumerate(["Rome", "Oslo"]):
        (tmp_path / "towns.csv").write_text(f"who,town\na,{town}\n")
        (tmp_path / "in" / f"{number}.csv").write_text(f"who,n\na,{number}\n")
        run = Process([MILLRACE, "run", file, "--once"], tmp_path / f"{number}.log")
        assert run.wait(300) == 0, run.said
    found = pq.read_table(tmp_path / "out", columns=["n", "town"]).sort_by("n").to_pylist()
    assert found == [{"n": 0, "town": "Rome"}, {"n": 1, "town": "Oslo"}]
    assert sum(name.endswith(".parquet") for name, _ in (place / "tables" / "towns").objects()) == 2
