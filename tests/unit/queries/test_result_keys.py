import pytest
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import OutputSpec, Spec
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.result_names import output_names
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.results import result_keys
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Scan
from millrace_jobs.queries.tables.table_query import TableQuery
from millrace_jobs.sinks.base import ResultKeys, WindowColumn

MINUTE = 60_000_000
WINDOWED = "SELECT {columns}, count(*) AS n FROM trips GROUP BY window(at, '10 minutes', '1 minute'), cell"
TOPIC = {"bootstrapServers": "kafka:9092", "topic": "out"}


def spec(sql, kind="table", emit="OnUpdate", watermark="at", **sink):
    source = {"rate": {}} if watermark is None else {
        "files": {"path": "in", "format": "csv"},
        "schema": "cell STRING, at TIMESTAMP, seen TIMESTAMP",
        "watermark": {"column": watermark, "delay": "30s"},
    }  # fmt: skip
    target = {"console": {}} if kind == "console" else {kind: TOPIC | sink}
    query = {"sql": sql} if isinstance(sql, str) else {"python": sql}
    return Spec.model_validate({"sources": {"trips": source}, "query": query, "sink": target, "emit": emit})


def compiled(names, plan):
    """A compiled query; its columns have some types."""
    result = StructType()
    for name in names:
        kind = TimestampType() if name in ("since", "until", "window_start", "window_end") else StringType()
        result.add(name, LongType() if name == "n" else kind)
    return CompiledQuery(plan, result, True)


def native(sql):
    """A query that Spark runs by its own plan."""
    query = parsed_query(sql)
    return compiled(output_names(query.tree), Native(query, "the test wants it"))


def keys(sql, **more):
    return result_keys(native(sql), spec(sql, **more))


def test_only_what_goes_to_kafka_has_keys():
    assert keys(WINDOWED.format(columns="cell"), kind="console") == ResultKeys()


def test_rows_expire_by_the_column_of_the_key_that_knows_the_window():
    sql = WINDOWED.format(columns="window.start AS since, window.end AS until, cell")
    assert keys(sql) == ResultKeys(("since", "cell"), WindowColumn("since", "start", 10 * MINUTE))
    assert keys(sql, key=["cell", "until"]) == ResultKeys(("cell", "until"), WindowColumn("until", "end", 10 * MINUTE))


@pytest.mark.parametrize("changed", [{"kind": "kafka"}, {"emit": "OnWindowClose"}, {"watermark": "seen"}])
def test_rows_stay_that_are_final_or_messages_or_of_windows_that_never_close(changed):
    sql = WINDOWED.format(columns="window.start AS since, cell")
    assert keys(sql, **changed) == ResultKeys(("since", "cell"))


def test_rows_that_are_first_emitted_at_the_end_of_their_window_stay_when_it_closes():
    sql = WINDOWED.format(columns="window.start AS since, cell")
    held = compiled(["since", "cell", "n"], Routed("trips", None, None, None, None, ahead=(30_000_000,)))
    assert result_keys(held, spec(sql, emit="OnWindowEnd")) == ResultKeys(("since", "cell"), weighted=True)
    assert result_keys(held, spec(sql, kind="kafka", emit="OnWindowEnd")) == ResultKeys(("since", "cell"))


def test_each_of_two_outputs_has_its_own_keys():
    """Rows of the table expire, since every update is emitted; nothing takes final rows back but their absence."""
    sql = WINDOWED.format(columns="window.start AS since, cell") + " HAVING count(*) > 1"
    held = compiled(["since", "cell", "n"], Routed("trips", None, None, None, None, ahead=(None, 0)))
    both = spec(sql).model_copy(
        update={"additional_outputs": {"final": OutputSpec(emit="OnWindowClose", sink={"kafka": TOPIC})}}
    )
    updates, final = (result_keys(held, output) for output in both.outputs.values())
    assert updates == ResultKeys(("since", "cell"), WindowColumn("since", "start", 10 * MINUTE), weighted=True)
    assert final == ResultKeys(("since", "cell"))


def test_an_aggregator_s_rows_expire_by_their_window():
    python = {
        "aggregator": "m:A", "groupBy": ["cell"], "window": {"column": "at", "size": "10m", "slide": "1m"}
    }  # fmt: skip
    aggregating = compiled(["window_start", "window_end", "cell", "n"], Routed("trips", None, None, None, None))
    assert result_keys(aggregating, spec(python)) == ResultKeys(
        ("window_start", "cell"), WindowColumn("window_start", "start", 10 * MINUTE)
    )


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_groups_that_having_has_admitted_can_be_retracted_only_by_our_own_merge(emit):
    sql = WINDOWED.format(columns="window.start AS since, cell") + " HAVING count(*) > 1"
    if emit == "OnWindowClose":
        assert keys(sql, emit=emit) == ResultKeys(("since", "cell"))
        return
    with pytest.raises(MillraceError, match=r"spec\.query\.sql: a table cannot take back rows .* the test wants it;"):
        keys(sql)


def test_the_key_is_that_of_the_result_as_spark_spells_it():
    sql = "SELECT cell AS Cell, count(*) AS n FROM trips GROUP BY cell"
    assert keys(sql, watermark="at", key=["cell"]) == ResultKeys(("Cell",))


@pytest.mark.parametrize(("given", "expected"), [([], ("cell",)), (["n"], ("n",))])
def test_a_table_of_rows_without_groups_has_the_key_that_identifies_them_unless_another_is_given(given, expected):
    rows = Scan("trips", (("n", "c1"), ("cell", "c2")), "c3", ("c2",))
    tables = TableQuery("", rows, ("c1", "c2"), Contents.TABLE, False, 0, {}, (), 4, key=(1,))
    found = result_keys(compiled(["n", "cell"], tables), spec("SELECT n, cell FROM trips", key=given))
    assert found == ResultKeys(expected, weighted=True)


@pytest.mark.parametrize(
    ("given", "refused"), [(["cell"], None), (["n", "cell"], None), (["n"], "leaves out cell"), (["seen"], None)]
)
def test_a_key_of_files_has_all_columns_of_a_key_that_identifies_the_rows(given, refused):
    rows = Scan("trips", (("n", "c1"), ("cell", "c2"), ("seen", "c3")), "c3", ("c2",))
    places = {"key": (1,), "other_keys": ((2,),)}
    tables = TableQuery("", rows, ("c1", "c2", "c3"), Contents.TABLE, False, 0, {}, (), 4, **places)
    files = spec("SELECT n, cell, seen FROM trips").model_copy(
        update={"sink": SinkSpec.model_validate({"files": {"path": "out", "key": given}})}
    )
    asked = (compiled(["n", "cell", "seen"], tables), files)
    if refused is None:
        assert result_keys(*asked) == ResultKeys(tuple(given), weighted=True)
        return
    with pytest.raises(MillraceError, match=rf"^spec\.sink\.files\.key: the key {refused}, so rows .*; add cell$"):
        result_keys(*asked)


def test_a_table_of_rows_that_nothing_identifies_needs_a_key():
    tables = TableQuery("", Scan("trips", (), "c1", ("c2",)), ("c1",), Contents.TABLE, False, 0, {}, (), 4, key=None)
    with pytest.raises(MillraceError, match=r"spec\.sink\.table\.key: the query does not say which columns identify"):
        result_keys(compiled(["n"], tables), spec("SELECT n FROM trips"))
