"""Which changes of a query a checkpoint survives; every field of the API is decided about."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from millrace_api.errors import MillraceError
from millrace_api.model.changes import CheckpointChange
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.evolution import change_of
from millrace_jobs.checkpoint.evolution import check_changes, check_layout

from .changed_queries import FILES, SQL, a_query, changed

KAFKA = {
    "kafka": {"bootstrapServers": "a:9092", "topic": "trips"},
    "schema": "at TIMESTAMP, city STRING, fare DOUBLE",
    "watermark": {"column": "at", "delay": "10m"},
}
BOUNDED = KAFKA | {"kafka": {"bootstrapServers": "a:9092", "topic": "trips", "endingOffsets": "Latest"}}
OWN = {"python": {"read": "shop:Orders", "options": {"shop": "a"}}, "schema": "at TIMESTAMP, city STRING, fare DOUBLE"}
STATIC = {
    "files": {"path": "fares.csv", "format": "csv"},
    "schema": "city STRING, fare DOUBLE",
    "table": {"keys": ["city"], "static": True},
}
REPLAY = {
    "replay": {"path": "a.csv", "format": "csv", "timeColumn": "at", "speed": 2.0},
    "schema": "at TIMESTAMP, city STRING, fare DOUBLE",
}
PYTHON = {
    "python": {
        "aggregator": "trips:Fares",
        "groupBy": ["city"],
        "window": {"column": "at", "size": "10m"},
        "options": {"column": "fare"},
    }
}


def with_sql(sql, **more):
    return a_query(query={"sql": sql}, **more)


def fields_of(model, path=""):
    """Every field below a model, by the names of the YAML."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.serialization_alias or name}".lstrip(".")
        inner, kind = _model_in(field.annotation)
        if inner is None or kind is tuple:
            yield here
        else:
            yield from fields_of(inner, f"{here}.*" if kind is dict else here)


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, None
    kind = get_origin(annotation)
    for part in get_args(annotation):
        inner, below = _model_in(part)
        if inner is not None:
            return inner, below if kind in (Union, UnionType) or not isinstance(kind, type) else kind
    return None, None


def test_every_field_of_the_api_has_a_class():
    fields = list(fields_of(StreamQuery))
    assert "spec.sources.*.kafka.topicPattern" in fields
    assert "spec.partitioner.replicas.max" in fields
    for field in fields:
        change_of(field)


def test_a_new_field_has_no_class():
    for field in ("spec.novelty", "spec.sources.*.novelty", "spec.sources.*.kafka.novelty", "novelty"):
        with pytest.raises(KeyError):
            change_of(field)


@pytest.mark.parametrize(
    "spec",
    [
        {"batchInterval": "30s"},
        {"parallelism": {"min": 2, "max": 16}},
        {"partitioner": {"algorithm": "pkg", "parameters": {"choices": 3}, "replicas": {"max": 3}}},
        {"driver": {"memory": "4g"}},
        {"executors": {"max": 3}},
        {"scaling": {"mode": "Off", "target": 0.5}},
        {"sparkConf": {"spark.ui.enabled": "true"}},
        {"sink": {"console": {"rows": 3}}},
        {"sink": {"files": {"path": "elsewhere", "format": "csv"}}},
        {"suspend": True},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_how_the_job_runs_and_where_results_go_may_change(log, spec):
    assert check_changes(a_query(), a_query(**spec), log) == ()


@pytest.mark.parametrize(
    ("source", "path", "value"),
    [
        (FILES, ("files", "maxFilesPerBatch"), 100),
        (FILES, ("corruptRecords",), {"policy": "Drop"}),
        (FILES, ("watermark", "delay"), "1h"),
        (FILES, ("schema",), "at TIMESTAMP, city STRING, fare DOUBLE, tip DOUBLE"),
        (FILES, ("schema",), "AT timestamp, city string, fare double"),
        (FILES, ("schema",), "fare DOUBLE, at TIMESTAMP"),
        (REPLAY, ("replay", "speed"), 7.5),
        (KAFKA, ("kafka", "bootstrapServers"), "b:9092"),
        (KAFKA, ("kafka", "sasl"), {"mechanism": "PLAIN", "username": {"env": "U"}, "password": {"env": "P"}}),
        (KAFKA, ("kafka", "maxRecordsPerBatch"), 10),
        (OWN, ("python", "maxRecordsPerBatch"), 10),
    ],
)
def test_fields_of_a_source_that_leave_its_records_may_change(log, source, path, value):
    assert check_changes(a_query(source), a_query(changed(source, *path, value=value)), log) == ()


@pytest.mark.parametrize(
    ("source", "path", "value", "field", "change"),
    [
        (FILES, ("files", "path"), "b/*.csv", "files.path", CheckpointChange.RECORDS),
        (FILES, ("files", "delimiter"), ";", "files.delimiter", CheckpointChange.RECORDS),
        (FILES, ("files", "order"), "ByName", "files.order", CheckpointChange.RECORDS),
        (FILES, ("schema",), "at TIMESTAMP, city STRING, fare FLOAT", "schema", CheckpointChange.SCHEMA),
        (FILES, ("timestampFormat",), "seconds", "timestampFormat", CheckpointChange.RECORDS),
        (FILES, ("timeFormats",), {"at": "dd.MM.yyyy"}, "timeFormats", CheckpointChange.RECORDS),
        (FILES, ("watermark", "column"), "later", "watermark.column", CheckpointChange.STATE),
        (FILES, ("watermark",), None, "watermark.column", CheckpointChange.STATE),
        (KAFKA, ("kafka", "topic"), "rides", "kafka.topic", CheckpointChange.RECORDS),
        (KAFKA, ("kafka", "startingOffsets"), "Latest", "kafka.startingOffsets", CheckpointChange.START),
        (KAFKA, ("kafka", "endingOffsets"), "Latest", "kafka.endingOffsets", CheckpointChange.START),
        (BOUNDED, ("kafka", "endingOffsets"), None, "kafka.endingOffsets", CheckpointChange.START),
        (KAFKA, ("kafka", "endingTimestamp"), "2024-06-10T00:00:00Z", "kafka.endingTimestamp", CheckpointChange.START),
        (KAFKA, ("format",), "csv", "format", CheckpointChange.RECORDS),
        (OWN, ("python", "read"), "shop:Items", "python.read", CheckpointChange.RECORDS),
        (OWN, ("python", "options"), {"shop": "b"}, "python.options", CheckpointChange.RECORDS),
    ],
)
def test_fields_of_a_source_that_decide_its_records_have_to_stay(log, source, path, value, field, change):
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(source), a_query(changed(source, *path, value=value)), log)
    (problem,) = raised.value.problems
    assert problem.field == f"spec.sources.trips.{field}"
    assert problem.message.startswith(f"the checkpoint {log.spark.parent} was made with")  # or "without"
    assert change.value in problem.message
    assert problem.hint == (
        "write it as it was, or give the query another metadata.name and another place for its results to start over"
    )


def with_fares(fares):
    sources = {"trips": FILES, "fares": fares}
    return a_query(query={"sql": "SELECT t.at, f.fare FROM trips t JOIN fares f ON t.city = f.city"}, sources=sources)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("files",), {"path": "new/*.json", "format": "json"}),
        (("table", "keys"), ["city", "fare"]),
        (("timestampFormat",), "seconds"),
        (("schema",), "city STRING, fare DOUBLE, name STRING"),
    ],
)
def test_a_static_table_may_change(log, path, value):
    assert check_changes(with_fares(STATIC), with_fares(changed(STATIC, *path, value=value)), log) == ()


@pytest.mark.parametrize(
    ("path", "value", "change"),
    [
        (("schema",), "city STRING, fare FLOAT", CheckpointChange.SCHEMA),
        (("table",), None, CheckpointChange.STATE),
    ],
)
def test_the_schema_and_keys_of_a_static_table_have_to_stay(log, path, value, change):
    with pytest.raises(MillraceError, match=change.value):
        check_changes(with_fares(STATIC), with_fares(changed(STATIC, *path, value=value)), log)


@pytest.mark.parametrize(
    ("held", "other"),
    [
        ({"claimName": "checkpoints"}, "another metadata.name"),
        ({"uri": "file:///state"}, "another spec.checkpoint.uri"),
    ],
)
def test_what_starts_over_is_a_field_that_the_query_has(log, held, other):
    with pytest.raises(MillraceError) as raised:
        check_changes(
            a_query(KAFKA, checkpoint=held), a_query(changed(KAFKA, "format", value="csv"), checkpoint=held), log
        )
    (problem,) = raised.value.problems
    assert (
        problem.hint == f"write it as it was, or give the query {other} and another place for its results to start over"
    )


def test_every_change_that_cannot_be_is_told_with_both_values(log):
    now = a_query(changed(FILES, "files", "path", value="b"), emit="OnWindowClose", batchInterval="1m")
    now = now.model_copy(update={"metadata": now.metadata.model_copy(update={"name": "tips"})})
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(), now, log)
    assert [problem.field for problem in raised.value.problems] == [
        "metadata.name",
        "spec.sources.trips.files.path",
        "spec.emit",
    ]
    assert "made with 'data/*.csv', not with 'b'" in str(raised.value)


def test_sources_can_neither_come_nor_go(log):
    two = StreamQuery.model_validate(a_query().to_document())
    two = two.model_copy(
        update={
            "spec": two.spec.model_copy(
                update={"sources": two.spec.sources | {"more": a_query().spec.sources["trips"]}}
            )
        }
    )
    for before, now in ((a_query(), two), (two, a_query())):
        with pytest.raises(MillraceError, match=r"was made without |, which is missing now"):
            check_changes(before, now, log)


@pytest.mark.parametrize(
    "sql",
    [
        SQL.lower().replace(", ", "\n , ").replace(" from", "\nFROM"),
        SQL.replace("trips ", "trips AS t ", 1).replace("sum(fare)", "SUM(t.`Fare`)"),
        SQL.replace("count(*) AS trips", "count(*) + 1 AS rides"),
        SQL.replace("city, count", "upper(city) AS town, count", 1),
        SQL.replace("count(*) > 1", "sum(fare) > 100"),
        SQL.replace(" HAVING count(*) > 1", ""),
        "-- fares by city\n"
        + SQL.replace(", city,", ", city /* where */,").replace("sum(fare)", "sum(fare /* EUR */)"),
        SQL.replace("GROUP BY", "/* every ten minutes */ GROUP BY").replace(", city HAVING", ", city -- each\n HAVING"),
        SQL.replace("FROM trips", "FROM Trips"),
        SQL.replace("GROUP BY window(at, '10 minutes'), city", "GROUP BY window(at, '10 minutes'), 2"),
    ],
)
def test_formatting_and_output_over_the_same_state_may_change(log, sql):
    assert check_changes(a_query(), with_sql(sql), log) == ()


def test_a_changed_filter_is_told(log):
    (remark,) = check_changes(a_query(), with_sql(SQL.replace("fare > 0", "fare > 1")), log)
    assert remark.startswith("spec.query.sql: the filter has changed: the state keeps what was counted under the old")


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (", city HAVING", ", city, fare HAVING", "GROUP BY"),
        ("window(at, '10 minutes'), city", "city, window(at, '10 minutes')", "GROUP BY"),
        ("'10 minutes'", "'20 minutes'", "GROUP BY"),
        ("sum(fare)", "max(fare)", "list of aggregates"),
        ("sum(fare)", "sum(fare) FILTER (WHERE fare > 2)", "list of aggregates"),
        ("count(*) AS trips, sum(fare) AS fare", "sum(fare) AS fare, count(*) AS trips", "list of aggregates"),
        ("sum(fare) AS fare", "sum(fare) AS fare, avg(fare) AS mean", "list of aggregates"),
    ],
)
def test_what_the_state_is_built_by_has_to_stay(log, old, new, part):
    assert old in SQL
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(), with_sql(SQL.replace(old, new)), log)
    (problem,) = raised.value.problems
    assert problem.field == "spec.query.sql"
    assert f" was made with {part} " in problem.message


def test_a_query_without_state_may_become_any_other_without_state(log):
    before, now = (
        with_sql("SELECT city FROM trips"),
        with_sql("SELECT upper(city) AS c, fare FROM trips WHERE fare > 2"),
    )
    assert check_changes(before, now, log) == ()
    with pytest.raises(MillraceError, match=r"spec\.query\.sql"):
        check_changes(before, with_sql("SELECT DISTINCT city FROM trips"), log)
    with pytest.raises(MillraceError, match=r"spec\.query\.sql"):
        check_changes(before, a_query(), log)


def test_of_sql_whose_state_is_not_known_only_the_formatting_may_change(log):
    join = "SELECT a.city FROM trips a JOIN trips b ON a.city = b.city"
    assert check_changes(with_sql(join), with_sql(join.replace(" ", "  ")), log) == ()
    with pytest.raises(MillraceError, match=" was made with text SELECT"):
        check_changes(with_sql(join), with_sql(join.replace("SELECT a.city", "SELECT a.fare")), log)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("aggregator",), "trips:Tips"),
        (("groupBy",), ["city", "fare"]),
        (("window", "size"), "1h"),
        (("options",), {"column": "tip"}),
    ],
)
def test_a_python_query_has_to_stay(log, path, value):
    python = changed(PYTHON, "python", *path, value=value)
    with pytest.raises(MillraceError, match=r"spec\.query\.python"):
        check_changes(a_query(query=PYTHON), a_query(query=python), log)


AGGREGATES = {
    "sql": "SELECT city, by_fare(fare) AS fares FROM trips GROUP BY city",
    "aggregates": {"by_fare": {"builtin": "Histogram", "options": {"edges": [10]}}},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("aggregates", "by_fare", "options"), {"edges": [20]}),
        (("aggregates", "by_fare"), {"python": "fares:Histogram", "options": {"edges": [10]}}),
        (("sql",), AGGREGATES["sql"].replace("by_fare(fare)", "by_fare(-fare)")),
    ],
)
def test_an_aggregator_that_the_sql_calls_has_to_stay(log, path, value):
    with pytest.raises(MillraceError):
        check_changes(a_query(query=AGGREGATES), a_query(query=changed(AGGREGATES, *path, value=value)), log)


def test_what_is_made_of_the_results_of_an_aggregator_may_change(log):
    sql = AGGREGATES["sql"].replace("by_fare(fare) AS", "by_fare(fare)[0] AS") + " HAVING by_fare(fare)[0] > 1"
    assert check_changes(a_query(query=AGGREGATES), a_query(query=AGGREGATES | {"sql": sql}), log) == ()


def test_for_kafka_the_way_out_names_a_time_to_read_again_from(log):
    for name, content in (
        ("offsets", ["v1", '{"batchWatermarkMs": 0}', "{}"]),
        ("commits", ["v1", '{"nextBatchWatermarkMs": 1718000000123}']),
    ):
        (log.spark / name).mkdir(parents=True)
        (log.spark / name / "0").write_text("\n".join(content), encoding="utf-8")
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(KAFKA), a_query(KAFKA, emit="OnWindowClose"), log)
    assert "with startingTimestamp: 2024-06-10T06:03:20Z" in str(raised.value)  # 06:13:20 less the window
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(), a_query(emit="OnWindowClose"), log)
    assert "startingTimestamp" not in str(raised.value)


@pytest.mark.parametrize(
    ("sink", "look", "places"),
    [
        ({"files": {"path": "out/trips", "format": "csv"}}, "", " and out/trips"),
        ({"console": {}}, "", ""),
        ({"kafka": {"bootstrapServers": "a:9092", "topic": "x"}}, "look whether the sink has results of it, and ", ""),
    ],
    ids=["files", "console", "kafka"],
)
def test_before_a_batch_has_finished_the_way_out_is_to_remove_what_it_has_begun(log, sink, look, places):
    (log.spark / "offsets").mkdir(parents=True)
    (log.spark / "offsets" / "0").write_text('v1\n{"batchWatermarkMs": 0}\n{}', encoding="utf-8")
    corrected = changed(FILES, "timestampFormat", value="seconds")
    with pytest.raises(MillraceError) as raised:
        check_changes(a_query(FILES, sink=sink), a_query(corrected, sink=sink), log)
    (problem,) = raised.value.problems
    assert problem.hint == (
        f"no batch of it has finished, so {look}remove {log.spark.parent}{places} to start over; or write it as it was"
    )


def test_a_map_that_was_not_given_is_not_shown_as_an_empty_one(log):
    with_format = FILES | {"timeFormats": {"at": "dd.MM.yyyy"}}
    with pytest.raises(MillraceError, match=r"was made without {'at': 'dd\.MM\.yyyy'}"):
        check_changes(a_query(FILES), a_query(with_format), log)
    with pytest.raises(MillraceError, match=r"was made with {'at': 'dd\.MM\.yyyy'}, which is missing now"):
        check_changes(a_query(with_format), a_query(FILES), log)


LAYOUT = {"keys": ["city"], "window": [1, 1, 0], "aggregates": ["COUNT(*)"], "types": ["string", "int64"]}


def test_a_layout_is_compared_by_meaning(log):
    check_layout(None, LAYOUT, log)
    check_layout(LAYOUT, LAYOUT | {"aggregates": ["count( * )"]}, log)
    for name, value in (("keys", ["zone"]), ("window", None), ("types", ["string", "double"])):
        with pytest.raises(MillraceError, match=f"the state's {name} was "):
            check_layout(LAYOUT, LAYOUT | {name: value}, log)


def test_a_layout_that_was_kept_with_comments_is_the_same(log):
    native = {
        "FROM": "trips",
        "GROUP BY": "WINDOW(at, '10 minutes'), city",
        "list of aggregates": "COUNT(*), SUM(fare)",
    }
    kept = native | {
        "GROUP BY": "WINDOW(at, '10 minutes') /* ten */, city /* where */",
        "list of aggregates": "COUNT(*) /* all */, SUM(fare)",
    }
    check_layout(kept, native, log)
    check_layout(
        {"text": "SELECT DISTINCT city /* where */ FROM trips"}, {"text": "SELECT DISTINCT city FROM trips"}, log
    )
    check_layout(LAYOUT | {"aggregates": ["COUNT(*) /* all */"]}, LAYOUT, log)
    with pytest.raises(MillraceError, match="the state's GROUP BY was "):
        check_layout(kept, native | {"GROUP BY": "WINDOW(at, '10 minutes'), fare"}, log)
