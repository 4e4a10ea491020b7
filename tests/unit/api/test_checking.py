import re

import pytest

from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.checks import check_sql
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable
from millrace_api.validation.checking import check_query

from .documents import MINIMAL, changed, problems
from .unsound import UNSOUND

TABLES = {
    "trips": SourceTable(
        parse_schema(
            "medallion STRING, cell STRING, fare DOUBLE, pickup TIMESTAMP, tags ARRAY<STRING>, "
            "info STRUCT<a: INT, b: STRUCT<c: INT>>"
        ),
        "pickup",
    ),
    "zones": SourceTable(parse_schema("cell STRING, borough STRING, since TIMESTAMP")),
    "boroughs": SourceTable(parse_schema("cell STRING, borough STRING"), static=True),
    "blob": SourceTable(None),
}

SOUND = [
    "SELECT * FROM trips",
    "SELECT CELL, Trips.FARE, `cell` FROM Trips",
    "SELECT t.*, z.borough FROM trips t JOIN boroughs z USING (cell)",
    "SELECT cell, count(*) c FROM trips GROUP BY cell HAVING c > 2",
    "SELECT tag FROM trips LATERAL VIEW explode(tags) x AS tag",
    "SELECT transform(tags, x -> upper(x)), aggregate(tags, 0, (acc, x) -> acc + length(x)) FROM trips",
    "SELECT info.a, info.b.c, trips.info.b.c FROM trips",
    "SELECT timestampdiff(MINUTE, pickup, current_timestamp()), extract(year FROM pickup), current_date FROM trips",
    "WITH a(x, y) AS (SELECT cell, fare FROM trips) SELECT x, y FROM a",
    "SELECT anything FROM blob",
    "SELECT window.start, window.end, cell FROM trips GROUP BY window(pickup, '1 minute'), cell",
    "SELECT session_window.start FROM (SELECT session_window(pickup, '5 minutes') FROM trips)",
    "SELECT w.window.start, n FROM (SELECT window(pickup, '1 hour'), count(*) n FROM trips GROUP BY window(pickup, '1 hour')) w",
    "SELECT q.cell FROM (SELECT cell FROM trips UNION ALL SELECT cell FROM zones) q",
    "SELECT cell FROM trips WHERE EXISTS (SELECT 1 FROM range(3) r WHERE r.id = trips.fare AND r.id = fare)",
    "SELECT fare * 2 AS d, d + 1 AS e FROM trips",
    "SELECT x.fare FROM (SELECT * FROM trips) x",
    "SELECT * FROM trips WHERE pickup > TIMESTAMP '2020-01-01' - INTERVAL 5 minutes",
    "SELECT cell FROM trips, range(10) WHERE id = fare",
    "SELECT info.a FROM trips AS info",  # a field of the column, which has the name of the table
    "SELECT timestampdiff(minute, pickup, pickup), dateadd(DAY, 1, pickup), date_add(pickup, 1) FROM trips",
]


@pytest.mark.parametrize("sql", SOUND)
def test_sound_sql_has_no_problems(sql):
    assert check_sql(sql, TABLES, emit=Emit.ON_UPDATE) == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT cel FROM trips",
            'there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?',
        ),
        (
            "SELECT cell\nFROM trips\nWHERE cel = 1",
            'there is no column "cel" (line 3, column 7 of the SQL); did you mean "cell"?',
        ),
        (
            "SELECT cel AS cel FROM trips",
            'there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?',
        ),
        (
            "SELECT fare * 2 AS d FROM trips WHERE d > 1",
            'there is no column "d" (line 1, column 39 of the SQL); '
            "write one of medallion, cell, fare, pickup, tags, info",
        ),
        (
            "SELECT z.boro FROM trips t JOIN boroughs z USING (cell)",
            '"z" has no column "boro" (line 1, column 10 of the SQL); did you mean "borough"?',
        ),
        (
            "SELECT q.fare FROM (SELECT cell FROM trips) q",
            '"q" has no column "fare" (line 1, column 10 of the SQL); write one of cell',
        ),
        (
            "SELECT cell FROM zones y WHERE zones.cell > 1",
            'there is no table or column "zones" (line 1, column 32 of the SQL); write one of cell, borough, since, y',
        ),
        (
            "SELECT cell FROM zones WHERE EXISTS (SELECT 1 FROM range(3) WHERE zones.boro = 1)",
            '"zones" has no column "boro" (line 1, column 73 of the SQL); did you mean "borough"?',
        ),
        (
            "SELECT a FROM trps",
            'there is no source "trps" (line 1, column 15 of the SQL); did you mean "trips"?',
        ),
        (
            "SELECT a FROM x.trips",
            'there is no source "x.trips" (line 1, column 17 of the SQL); did you mean "trips"?',
        ),
        (
            "SELECT a FROM other",
            'there is no source "other" (line 1, column 15 of the SQL); write one of the sources: trips, zones, boroughs, blob',
        ),
        (
            "SELECT count(*) FROM trips GROUP BY window(fare, '1 minute')",
            'the window is over "fare", which is DOUBLE (line 1, column 44 of the SQL); write a TIMESTAMP column',
        ),
        (
            "SELECT cell, count(*) FROM trips GROUP BY 3",
            "GROUP BY 3 is not a position in the SELECT list; write a number from 1 to 2, or the expression itself",
        ),
        (
            "SELECT cell, count(*) FROM trips GROUP BY 0",
            "GROUP BY 0 is not a position in the SELECT list; write a number from 1 to 2, or the expression itself",
        ),
        (
            "SELECT x",
            'there is no column "x" (line 1, column 8 of the SQL); add FROM and the name of a source',
        ),
    ],
)
def test_unknown_names_are_a_problem_with_their_position(sql, expected):
    assert [str(p) for p in check_sql(sql, TABLES, emit=Emit.ON_UPDATE)] == [expected]


def test_sql_that_does_not_parse_has_its_line():
    [problem] = check_sql("SELECT cell,\n  count(* AS n\nFROM trips", TABLES, emit=Emit.ON_UPDATE)
    assert problem.line == 2
    assert "does not parse at line 2" in problem.message


@pytest.mark.parametrize(
    ("sql", "line", "expected"),
    [
        (
            "SELECT cell\nFROM trips\nWHERE cell = 'x\n",
            3,
            "a quote is not closed (line 3, column 14 of the SQL); close it, and double every quote inside it",
        ),
        (
            "SELECT `cell FROM trips",
            1,
            "a quote is not closed (line 1, column 8 of the SQL); close it, and double every quote inside it",
        ),
        (
            "SELECT cell\nFROM trips /* all",
            2,
            "a comment is not closed (line 2, column 12 of the SQL); close it with */",
        ),
        (
            "SELECT cell FROM trips WHERE",
            1,
            "the SQL does not parse at line 1, column 24: an expression is missing in 'SELECT cell FROM trips WHERE'; "
            "correct the SQL there",
        ),
        (
            "SELECT cell FROM",
            1,
            "the SQL does not parse at line 1, column 13: Expected table name in 'SELECT cell FROM'; "
            "correct the SQL there",
        ),
        ("-- later", None, "the SQL is empty; write one SELECT statement"),
        ("SHOW TABLES", None, "the SQL is SHOW; write one SELECT statement"),
    ],
)
def test_sql_that_does_not_parse_is_explained_in_one_line(caplog, sql, line, expected):
    [problem] = check_sql(sql, TABLES, emit=Emit.ON_UPDATE)
    assert (problem.line, str(problem)) == (line, expected)
    assert caplog.records == []  # the parser would report some of it, too


def test_a_window_without_a_source_has_the_hint_to_add_one():
    [problem] = check_sql("SELECT window(pickup, '1 minute') AS w", TABLES, emit=Emit.ON_WINDOW_CLOSE)
    assert problem.hint == "add FROM and the name of a source"


@pytest.mark.parametrize(("text", "line", "replacement", "expected"), UNSOUND)
def test_problems_have_the_line_of_the_file(tmp_path, text, line, replacement, expected):
    assert problems(tmp_path, changed(text, line, replacement)) == expected


def from_kafka(sink, *, source="topicPattern: trips.*", servers="k1:9092, k2:9092", letters=None, other=None):
    """A query from a topic to a sink; ``letters`` is a dead-letter topic, ``other`` the topic of another source."""
    lines = [f'      kafka: {{bootstrapServers: "{servers}", {source}}}']
    if letters:
        lines.append(f"      corruptRecords: {{policy: DeadLetter, topic: {letters}}}")
    if other:
        lines += ["      schema: cell STRING", "    more:", f"      kafka: {{bootstrapServers: k2:9092, {other}}}"]
    return changed(changed(MINIMAL, 11, f"  sink: {sink}"), 7, "\n".join(lines))


NARROWER = "or a topicPattern of trips that does not match it (got trips.*)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            from_kafka("{kafka: {bootstrapServers: 'k2:9092,k1:9092', topic: trips-by-cell}}"),
            f'11: spec.sink.kafka.topic: source trips reads topic "trips-by-cell", '
            f"so every result would come back as a record; write another topic, {NARROWER}",
        ),
        (
            from_kafka("{table: {bootstrapServers: 'k1:9092', topic: trips}}", source="topics: [trips, rides]"),
            '11: spec.sink.table.topic: source trips reads topic "trips", '
            "so every result would come back as a record; write another topic",
        ),
        (
            from_kafka(
                "{table: {bootstrapServers: 'k1:9092', topic: by-cell, history: {topic: trips, retention: 1h}}}",
                source="topics: [trips, rides]",
            ).replace("at TIMESTAMP", "at TIMESTAMP\n      watermark: {column: at, delay: 1m}"),
            '12: spec.sink.table.history.topic: source trips reads topic "trips", '
            "so every earlier version would come back as a record; write another topic",
        ),
        (
            from_kafka("{console: {}}", source="topic: trips", letters="bad", other="topicPattern: b.*"),
            '8: spec.sources.trips.corruptRecords.topic: source more reads topic "bad", so every dead letter would come '
            "back as a record; write another topic, or a topicPattern of more that does not match it (got b.*)",
        ),
    ],
)
def test_what_is_written_to_kafka_must_not_be_read_again(tmp_path, text, expected):
    assert problems(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        from_kafka("{kafka: {bootstrapServers: 'k1:9092', topic: by-cell}}", letters="bad", other="topic: rides"),
        from_kafka("{kafka: {bootstrapServers: 'k3:9092', topic: trips-by-cell}}"),
        from_kafka("{kafka: {bootstrapServers: 'k3:9092,', topic: trips-by-cell}}", servers="k1:9092,"),
        from_kafka("{files: {path: trips}}"),
    ],
)
def test_other_topics_and_clusters_may_be_written_to(tmp_path, text):
    assert problems(tmp_path, text) == []


def between_folders(source, sink):
    """A query from files to files; ``sink`` is the sink's settings."""
    text = changed(MINIMAL, 11, f"  sink: {{files: {sink}}}")
    return changed(text, 7, f"      files: {{path: '{source}', format: csv}}")


@pytest.mark.parametrize(
    ("path", "format"), [("out", "csv"), ("out/", "parquet"), ("./out/*.csv", "csv"), ("*/*", "csv")]
)
def test_what_is_written_to_files_must_not_be_read_again(tmp_path, path, format):
    text = between_folders(path, f"{{path: out, format: {format}}}")
    assert problems(tmp_path, text) == [
        '11: spec.sink.files.path: source trips reads the files in "out", so every result would come back as a record; '
        "write to another folder"
    ]


@pytest.mark.parametrize("path", ["out.csv", "out/part-*.csv", "out/*.txt", "out/*/*.csv", "*.csv", "/out", "in"])
def test_other_files_may_be_written(tmp_path, path):
    assert problems(tmp_path, between_folders(path, "{path: out, format: csv}")) == []


def test_a_query_has_no_time_zone_of_its_own(tmp_path):
    zone = "  sparkConf:\n    spark.ui.enabled: 'false'\n    spark.sql.session.timeZone: {}"
    assert problems(tmp_path, changed(MINIMAL, 12, zone.format("Asia/Tokyo"))) == [
        '14: spec.sparkConf.spark.sql.session.timeZone: is "Asia/Tokyo", but queries compute '
        "in UTC; leave it out, and write from_utc_timestamp(column, 'Asia/Tokyo') where the SQL needs local time"
    ]
    assert problems(tmp_path, changed(MINIMAL, 12, zone.format("UTC"))) == []


def test_a_query_has_no_cluster_manager(tmp_path):
    master = "  sparkConf: {{spark.master: {}}}"
    for refused in ("yarn", "spark://host:7077", "k8s://https://host", "local[0x2]", "localhost"):
        assert problems(tmp_path, changed(MINIMAL, 12, master.format(f"'{refused}'"))) == [
            f'12: spec.sparkConf.spark.master: is "{refused}", but a query runs in local Spark, or in the pods that the '
            "operator creates; leave it out, or write local[N] with a number of threads"
        ]
    for accepted in ("local", "local[4]", "local[*]", "local[2, 1]", "local-cluster[2, 1, 1024]"):
        assert problems(tmp_path, changed(MINIMAL, 12, master.format(f"'{accepted}'"))) == []


@pytest.mark.parametrize(
    ("columns", "second"),
    [
        ("cell, fare AS cell", 14),
        ("cell, fare AS CELL", 14),
        ("count(*) AS n, max(fare) AS n", 23),
        ("cell, at, trips.cell", 18),
    ],
)
def test_the_columns_of_a_result_have_names_of_their_own(tmp_path, columns, second):
    group = " GROUP BY cell" if "count" in columns else ""
    (found,) = problems(tmp_path, changed(MINIMAL, 10, f"    sql: SELECT {columns} FROM trips{group}"))
    assert re.fullmatch(
        rf'10: spec\.query\.sql: the result has 2 columns with the name "(cell|n)" \(line 1, column {second} of the SQL\); '
        r"give each a name of its own: SELECT \.\.\. AS name",
        found,
    ), found


def test_a_query_without_a_file_has_problems_without_lines():
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "a"},
        "spec": {
            "sources": {"r": {"rate": {}}},
            "query": {"sql": "SELECT kee FROM r"},
            "sink": {"console": {}},
        },
    }
    [problem] = check_query(StreamQuery.model_validate(document, by_name=False))
    assert (problem.file, problem.line, problem.field) == ("", 1, "spec.query.sql")
    assert problem.message == 'there is no column "kee" (line 1, column 8 of the SQL)'


def test_the_metadata_of_kafka_may_have_types_that_a_schema_may_not(tmp_path):
    kafka = "      kafka: {bootstrapServers: 'kafka:9092', topic: trips, includeMetadata: true}"
    text = changed(MINIMAL, 7, kafka).replace("SELECT cell,", "SELECT cell, max(_offset) AS last,")
    assert problems(tmp_path, text.replace("FROM trips", "FROM trips WHERE size(_headers) = 0")) == []
    declared = changed(text, 8, "      schema: cell STRING, tags ARRAY<TIMESTAMP_NTZ>")
    assert any("column tags[] has the type TIMESTAMP_NTZ" in problem for problem in problems(tmp_path, declared))
