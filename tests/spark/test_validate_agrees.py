"""``millrace validate`` and a run agree on generated queries: what a run refuses, validate refuses without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from generated_queries import document
from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.results import result_keys
from millrace_jobs.run.query_file import execution_problems
from millrace_jobs.sources.connector import open_source

pytestmark = pytest.mark.spark

QUERIES = int(os.environ.get("MILLRACE_GENERATED_QUERIES", "60"))
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
"""What validate refuses although Spark would start it."""


def refused_by_run(spark: SparkSession, query: StreamQuery, folder: Path) -> str:
    """Return what a run says before its first batch; empty if it starts."""
    spec = query.spec
    try:
        sources = {name: open_source(name, each, folder / name, folder) for name, each in spec.sources.items()}
        compiled = compile_query(spark, spec, {name: source.schema for name, source in sources.items()})
        compiled.check_streaming(spec, spark, sources)
        for output in spec.outputs.values():
            result_keys(compiled, output)
    except (MillraceError, PySparkException) as error:
        return str(error)
    return ""


def refused_by_validate(query: StreamQuery) -> str:
    """Return what ``millrace validate`` says; empty if nothing."""
    return "\n".join(map(str, check_query(query) or execution_problems(query)))


def test_validate_and_a_run_agree(spark: SparkSession, tmp_path: Path) -> None:
    seeds = range(5000, 5000 + QUERIES)
    queries = {seed: StreamQuery.model_validate(document(seed), by_name=False) for seed in seeds}
    differences, accepted = [], 0
    for seed, query in queries.items():
        validated = refused_by_validate(query)
        run = "" if any(said in validated for said in _PLAIN) else refused_by_run(spark, query, tmp_path)
        accepted += not validated and not run
        if bool(validated) != bool(run) and not any(said in validated for said in _PLAIN):
            differences.append((seed, query.spec.query.sql, validated, run))
    assert not differences, "\n".join(map(str, differences))
    assert accepted
