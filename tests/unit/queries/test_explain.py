"""What ``millrace explain`` reports of the state of a query."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.dry_compile import DeclaredTypes
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.tables.compile import compile_tables
from millrace_jobs.sources.connector import schema_of
from millrace_jobs.windows import Window

MINUTE = 60_000_000
MOMENT = pa.timestamp("us", tz="UTC")
SQL = "SELECT cell, count(*) AS n FROM trips GROUP BY window(at, '1 minute'), cell"


@pytest.mark.parametrize(
    ("watermark", "state"),
    [
        ({"watermark": {"column": "AT", "delay": "30s"}}, "state until the watermark, 30s behind, passes the window"),
        ({"watermark": {"column": "seen", "delay": "30s"}}, "state forever, as the watermark is on seen and the "),
        ({}, "state forever, as the source has no watermark"),
    ],
)
def test_only_a_watermark_on_the_window_s_column_ends_its_state(watermark, state):
    said = explained({"console": {}}, 8, watermark)
    assert f"in Spark's state store, 1 window of 60 s per pane; {state}" in said


@pytest.mark.parametrize(
    ("transaction", "partitions", "committed"),
    [
        ({}, 8, "by the driver in one transaction a batch"),
        ({"transaction": "Batch"}, 1, "by the driver in one transaction a batch"),
        (
            {"transaction": "Partition"},
            8,
            "by the tasks that merge in a transaction for each partition of the state (at most 8 a batch)",
        ),
        ({"transaction": "Auto"}, 8, "by the driver in one transaction a batch"),
        (
            {"transaction": "Auto"},
            1,
            "by the tasks that merge in a transaction for each partition of the state (at most 1 a batch)",
        ),
    ],
)
def test_explain_says_who_commits_the_results_and_how_many_at_once(transaction, partitions, committed):
    sink = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "out"} | transaction}
    assert explained(sink, partitions, {}).endswith(f"-> kafka, {committed}")


TABLE = {
    "kafka": {"bootstrapServers": "kafka:9092", "topic": "in"},
    "schema": "at TIMESTAMP, k STRING, n INT",
    "watermark": {"column": "at", "delay": "1s"},
    "table": {"keys": ["k"]},
}


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        ("p.k = q.k AND q.n > 1", ["filter   (q.n > 1); over the changelog of q, before its rows are kept"]),
        (
            "p.k = q.k AND p.n = q.n AND q.n > 1",
            [
                "table    p by p.k; state of its rows",
                "filter   (q.n > 1); over the changelog of q, before its rows are kept",
                "table    q by q.k; state of its rows",
            ],
        ),
    ],
)
def test_explain_says_what_keeps_a_table_and_what_runs_over_its_changelog(condition, steps):
    spec = Spec.model_validate(
        {
            "sources": {"p": TABLE, "q": TABLE},
            "query": {"sql": f"SELECT p.k, q.n FROM p JOIN q ON {condition}"},
            "sink": {"table": {"bootstrapServers": "kafka:9092", "topic": "out"}},
        }
    )
    schemas = {name: schema_of(source) for name, source in spec.sources.items()}
    query = compile_tables(spec, parsed_sql(spec), schemas, DeclaredTypes(schemas).of, 2)
    _, said = query.explain(StructType(), spec, {}, Pin(1, "hash", 1, 1), None)
    assert said[2:-2] == steps


def explained(sink, partitions, watermark):
    source = {"files": {"path": "in", "format": "csv"}, "schema": "cell STRING, at TIMESTAMP, seen TIMESTAMP"}
    spec = Spec.model_validate(
        {"sources": {"trips": source | watermark}, "query": {"sql": SQL}, "sink": sink, "emit": "OnUpdate"}
    )
    window = Window("at", MINUTE, MINUTE)
    schema = pa.schema([("cell", pa.string()), ("at", MOMENT), ("seen", MOMENT)])
    projection = Projection("", (("k0", "cell"), ("at", "`at`")), schema.remove(2), 1)
    routed = Routed("trips", window, projection, None, Aggregation("trips", "", (), window, (), (), ""))
    query = CompiledQuery(routed, StructType().add("n", LongType()), True)
    return query.explain(spec, {"trips": SimpleNamespace(schema=schema)}, Pin(1, "native", 2, 4), partitions)
