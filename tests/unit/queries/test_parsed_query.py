"""All that read a query's SQL share one tree of it, and none of them changes it."""

from contextlib import suppress
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.dialect import parse_query, to_sql
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.sql.outside import outside_functions
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.validation.checking import check_query
from millrace_api.validation.evolution import compare
from millrace_api.validation.results import identified_by_run, known_columns, result_groups, results_change
from millrace_jobs.lineage.columns import derived_columns
from millrace_jobs.pipeline.incomplete import required_columns
from millrace_jobs.queries.dry_compile import DeclaredTypes, dry_compile
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.routed.aggregation import aggregation_of
from millrace_jobs.queries.sql_aggregates import NotRoutableError, longest_window
from millrace_jobs.queries.tables.compile import compile_tables
from millrace_jobs.sources.connector import schema_of

ROOT = Path(__file__).parents[3]
SCHEMA = "at TIMESTAMP, k STRING, n INT, event STRUCT<time: TIMESTAMP, kind: STRING>"
WINDOW = "window(at, '1 minute')"
QUERIES = [
    f"SELECT a.K, count(*) AS n, avg(x.n) + 1 AS mean FROM a AS x GROUP BY {WINDOW}, 1 HAVING n > 1",
    f"SELECT window.end AS ended, n AS m, m + 1 AS more, sum(n) FROM a WHERE n > 0 GROUP BY {WINDOW}, n",
    f"SELECT {WINDOW} AS w, k AS key, max(n) AS most, key AS again FROM a GROUP BY w, key HAVING most > 1",
    "SELECT /*+ BROADCAST(b) */ a.*, b.n AS other FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL 1 DAY",
    "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.at = b.at WHERE b.k IS NULL",
    f"SELECT q.k, sum(q.c) AS c FROM (SELECT k, at, count(*) AS c FROM a GROUP BY k, at) q GROUP BY q.k, {WINDOW}",
    f"WITH c AS (SELECT k, at FROM a UNION ALL SELECT k, at FROM b) SELECT k, count(*) FROM c GROUP BY k, {WINDOW}",
    "SELECT event.time, event.kind, count(*) AS n FROM nested GROUP BY event.time, event.kind",
    "SELECT window.start, count(*) FROM nested AS x WHERE x.event.time > at GROUP BY window(event.time, '1 minute')",
    "SELECT reflect('java.lang.System', k) FROM a WHERE k IN (SELECT k FROM b)",
]


def query(sql, emit):
    def source(time):
        return {
            "files": {"path": "in", "format": "json"},
            "schema": SCHEMA,
            "watermark": {"column": time, "delay": "1s"},
        }

    spec = {
        "sources": {"a": source("at"), "b": source("at"), "nested": source("event.time")},
        "query": {"sql": sql},
        "sink": {"console": {}},
        "emit": emit,
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}, "spec": spec}
    return StreamQuery.model_validate(document, by_name=False)


def picture(tree):
    """Everything in a tree: its nodes, and what each knows of its own place, its position in the text and its type."""
    nodes = list(tree.walk())
    places = {id(node): place for place, node in enumerate(nodes)}
    own = [(places.get(id(node.parent)), node.arg_key, node.index, node.meta, node.type) for node in nodes]
    return repr(tree), own


def read_by_all(read):
    """Let everything that reads a query's SQL read it."""
    spec = read.spec
    parsed = parsed_query(spec.query.sql)
    check_query(read)
    list(outside_functions(spec.query.sql))
    compare(read, query("SELECT count(*) FROM a", spec.emit.value))
    identified_by_run(spec), known_columns(spec), result_groups(spec), results_change(spec)
    longest_window(parsed)
    derived_columns(spec, {name: parse_schema(SCHEMA) for name in spec.sources}, {})
    dry_compile(spec)
    native = Native(parsed, "")
    native.layout(), native.result_partitions(8), native.unpartitioned
    for name in spec.sources:
        required_columns(spec, name)


def compile_each_way(read):
    """Compile a query in each way that there is; return its SQL, in which event times are columns."""
    schemas = {name: schema_of(source) for name, source in read.spec.sources.items()}
    spec = with_flat_times(read.spec)
    parsed = parsed_query(spec.query.sql)
    for name in spec.sources:
        with suppress(NotRoutableError):
            aggregation_of(parsed, {name: schemas[name]}, lambda _: "int")
    with suppress(MillraceError):
        compile_tables(spec, parsed, schemas, DeclaredTypes(schemas).of, 4)
    return spec.query.sql


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_no_reader_of_a_query_changes_its_tree(sql, emit):
    read = query(sql, emit)
    read_by_all(read)
    for text in (sql, compile_each_way(read)):
        assert picture(parsed_query(text).tree) == picture(parse_query(text))


def test_a_query_is_parsed_once():
    assert parsed_query(QUERIES[0]) is parsed_query(QUERIES[0])


def test_scopes_are_the_readers_own():
    """A scope fills its lists when it is first asked for them, which threads may not do at once."""
    (first,), (second,) = parsed_query("SELECT k FROM a").scopes(), parsed_query("SELECT k FROM a").scopes()
    assert first is not second


def test_a_copy_is_of_its_own_and_keeps_positions():
    parsed = parsed_query("SELECT k\nFROM a")
    copy = parsed.copy()
    assert picture(copy) == picture(parsed.tree)
    copy.selects[0].this.set("this", "n")
    assert (to_sql(copy), to_sql(parsed.tree)) == ("SELECT n FROM a", "SELECT k FROM a")


def test_a_text_that_does_not_parse_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(MillraceError, match="does not parse at line 2, column 6"):
            parsed_query("SELECT k\nFROM (")


@pytest.mark.parametrize("call", ["MAX_BY(a, b)", "MAX_BY(a, b, 3)", "MIN_BY(a, b, 3)"])
def test_calls_of_max_by_keep_their_number_of_rows(call):
    assert to_sql(parse_query(f"SELECT {call.lower()} FROM t")).upper() == f"SELECT {call} FROM T".upper()


def test_queries_are_parsed_in_one_place():
    sources = [path for folder in ("crds", "jobs", "operator") for path in (ROOT / folder).rglob("*.py")]
    parsing = {path.name for path in sources if "parse_query" in path.read_text(encoding="utf-8")}
    assert parsing == {"dialect.py", "parsed_query.py"}
