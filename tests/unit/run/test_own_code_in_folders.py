"""The own code of queries that are checked one after the other in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace_jobs.run.query_file import check_file
from spark.cli import Project

WRITES = """import pyarrow as pa
from millrace import SinkBatch
def {name}(results: pa.Table, batch: SinkBatch) -> None: ...
"""
PLACES = """class {name}:
    def __init__(self, workers): ...
    def route(self, keys): ...
    def save(self): ...
    def restore(self, state): ...
    def resize(self, workers): ...
"""
COMBINES = "from unit.aggregates.aggregators import {name}\n"
COUNTS: dict[str, Any] = {"query": {"sql": "SELECT who, count(*) AS n FROM events GROUP BY who"}}


def calls(name: str) -> dict[str, Any]:
    aggregates = {"own": {"python": f"figures:{name}"}}
    return {"query": {"sql": "SELECT who, own(v) AS n FROM events GROUP BY who", "aggregates": aggregates}}


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        (COMBINES, lambda name: {"query": {"python": {"aggregator": f"figures:{name}", "groupBy": ["who"]}}}),
        (COMBINES, calls),
        (WRITES, lambda name: COUNTS | {"sink": {"python": {"write": f"figures:{name}"}}}),
        (PLACES, lambda name: COUNTS | {"partitioner": {"algorithm": "python", "parameters": {"class": f"figures:{name}"}}}),
    ],
    ids=["aggregator", "aggregates", "sink", "partitioner"],
)  # fmt: skip
def test_modules_of_one_name_in_two_folders_are_each_query_s_own(
    tmp_path: Path, code: str, settings: Callable[[str], dict[str, Any]]
) -> None:
    files = []
    for folder, name in (("a", "Mean"), ("b", "First")):
        project = Project(tmp_path / folder)
        project.give("1.csv", "who,v\na,1\n")
        project.write("figures.py", code.format(name=name))
        source = {"files": {"path": str(project.inbox), "format": "csv"}, "schema": "who STRING, v INT"}
        file = project.query(sources={"events": source}, batchInterval="1s", **settings(name))
        files.append(project.folder / file)
    path = list(sys.path)
    assert [check_file(file) for file in files] == [[], []]
    assert sys.path == path
