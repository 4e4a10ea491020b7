"""``millrace validate``, ``millrace explain`` and a run have one verdict on generated queries.

All of them read a file by the same checks without a plan. What passes these goes to the planner: of ``validate`` with
declared types, of the others with Spark's. So the planner's two verdicts are compared, and Spark's analyzer must find
nothing that the checks without it have not found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from generated_queries import document
from millrace_api.errors import MillraceError
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_jobs.queries.reading import RunContext
from millrace_jobs.run.inputs import open_sources
from millrace_jobs.run.prepared_query import checked_query
from millrace_jobs.run.query_file import execution_problems

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

QUERIES = int(os.environ.get("MILLRACE_GENERATED_QUERIES", "2000"))
_PARTS = 5
_BUILT = 4
"""Of so many queries that are accepted, the streaming DataFrame of one is built, as a run does."""

_REFUSED_BY_SPARK = "Spark does not accept the SQL"
_PLAIN = (
    "emit On",
    "has no key for Spark",
    "would keep its records",
    "would wait forever",
    "needs a key",
    "subquery outside of FROM",
    "columns with the name",
    ", which is a text",
    "sessions of a stream need a key",
)
"""What the checks without a plan refuse although Spark would start it."""


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the queries run in, with the file of the static table."""
    write_rows(tmp_path / "in" / "r")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_rows(folder: Path) -> None:
    """Write a file of records that all sources can read."""
    rows = [{"at": f"2026-01-01T00:00:0{n}Z", "k": "ab"[n % 2], "n": n, "v": n / 2, "b": n > 1} for n in range(4)]
    folder.mkdir(parents=True)
    (folder / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def runnable() -> Iterator[dict[str, Any]]:
    """Yield generated queries that ``validate`` accepts, over files, with results that need no service."""
    for seed in range(QUERIES):
        made = document(seed)
        spec = made["spec"]
        sinks = [spec["sink"], *(output["sink"] for output in spec.get("additionalOutputs", {}).values())]
        if any(sink.keys() & {"kafka", "table"} for sink in sinks):
            continue
        for name, source in spec["sources"].items():
            if source.pop("kafka", None):
                source["files"] = {"path": f"in/{name}", "format": "json"}
        try:
            query = StreamQuery.model_validate(made, by_name=False)
        except ValidationError:
            continue
        if not (check_query(query) or execution_problems(query)):
            yield made


def queries(seeds: range) -> Iterator[tuple[int, StreamQuery]]:
    """Yield the generated queries that the model accepts, with their numbers."""
    for seed in seeds:
        try:
            yield seed, StreamQuery.model_validate(document(seed), by_name=False)
        except ValidationError:  # of all of them alike
            continue


def refused_by_run(spark: SparkSession, query: StreamQuery, folder: Path, *, built: bool = False) -> str:
    """Return what ``millrace explain`` says instead of a plan; empty if nothing. ``built``: a run, before a batch."""
    spec = query.spec
    try:
        sources = open_sources(spec, folder / "sources", folder)
        compiled = checked_query(spark, spec, sources)
        if spec.partitioner.placement is PlacementSetting.DEDICATED:
            schemas = {name: source.schema for name, source in sources.items()}
            problem = compiled.execution.dedicated_problem(spec, schemas)
            return str(problem or "")
        if built:
            compiled.build(spec, RunContext(spark, sources, folder, folder, folder, everything=True), routed=False)
    except (MillraceError, PySparkException) as error:
        return str(error) or type(error).__name__
    return ""


@pytest.mark.parametrize("part", range(_PARTS))
def test_validate_explain_and_a_run_agree(spark: SparkSession, inputs: Path, part: int) -> None:
    differences, accepted, size = [], 0, QUERIES // _PARTS
    for seed, query in queries(range(part * size, (part + 1) * size)):
        if check_query(query):
            continue
        validated = "\n".join(map(str, execution_problems(query)))
        explained = refused_by_run(spark, query, inputs, built=not validated and accepted % _BUILT == 0)
        accepted += not validated
        analyzed = _REFUSED_BY_SPARK in explained and _REFUSED_BY_SPARK not in validated
        if bool(validated) != bool(explained) or analyzed:
            differences.append((seed, query.spec.query.sql, validated, explained))
    assert not differences, "\n".join(map(str, differences))
    assert accepted


def test_the_checks_refuse_nothing_that_runs(spark: SparkSession, inputs: Path) -> None:
    differences = []
    for seed, query in queries(range(QUERIES, QUERIES + 60)):
        refused = "\n".join(map(str, check_query(query)))
        if refused and not any(said in refused for said in _PLAIN) and not refused_by_run(spark, query, inputs):
            differences.append((seed, query.spec.query.sql, refused))
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("number", range(0, 9, 3))
def test_what_validate_accepts_runs(tmp_path: Path, number: int) -> None:
    project, made = Project(tmp_path), next(islice(runnable(), number, None))
    for name in made["spec"]["sources"]:
        write_rows(tmp_path / "in" / name)
    query = project.write("query.yaml", yaml.safe_dump(made))
    result = project.millrace("run", query, "--once")
    assert result.status == 0, (made["spec"], result)
