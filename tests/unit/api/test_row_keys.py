import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import SinkSpec
from millrace_api.validation.results import row_key

from .documents import MINIMAL, PYTHON, changed, problems

COLUMNS = ["since", "until", "Cell", "n"]
GROUPS = [("window(at, '10 minutes')", ("since", "until")), ("cell", ("Cell",))]


def sink(kind, *key):
    return SinkSpec.model_validate({kind: {"bootstrapServers": "kafka:9092", "topic": "out", "key": list(key)}})


@pytest.mark.parametrize("kind", ["kafka", "table"])
def test_the_grouping_columns_are_the_key_unless_another_is_given(kind):
    assert row_key(sink(kind), COLUMNS, GROUPS) == ("since", "Cell")
    assert row_key(sink(kind, "cell", "UNTIL"), COLUMNS, GROUPS) == ("Cell", "until")


def test_messages_may_have_any_key_or_none():
    assert row_key(sink("kafka", "n"), COLUMNS, GROUPS) == ("n",)
    assert row_key(sink("kafka"), ["n"], [("cell", ())]) is None
    assert row_key(sink("kafka"), ["n"], []) is None
    assert row_key(sink("kafka"), COLUMNS, None) is None


def test_a_table_of_one_row_has_an_empty_key():
    assert row_key(sink("table"), ["n"], []) == ()


def test_a_table_over_rows_that_are_no_groups_has_the_key_that_is_given():
    assert row_key(sink("table", "Cell"), COLUMNS, None) == ("Cell",)
    assert row_key(sink("table", "anything"), None, None) == ("anything",)


@pytest.mark.parametrize(
    ("given", "groups", "said"),
    [
        ((), None, "the query does not say which columns identify a row of the table"),
        ((), [*GROUPS, ("day", ())], "the query groups by day and does not select it"),
        (("Cell",), GROUPS, "the key leaves out since"),
        (("since", "Cell", "n"), GROUPS, '"n" is not a grouping column'),
        (("since", "cel"), GROUPS, 'the result has no column "cel"; did you mean "Cell"?'),
    ],
)
def test_a_key_that_does_not_tell_the_rows_of_a_table_apart_is_refused(given, groups, said):
    with pytest.raises(MillraceError, match=r"spec\.sink\.table\.key") as refused:
        row_key(sink("table", *given), COLUMNS, groups)
    assert said in str(refused.value)


TABLE = "  sink: {table: {bootstrapServers: 'kafka:9092', topic: out"


def test_validate_tells_a_key_that_cannot_be(tmp_path):
    sql, target = (n for n, line in enumerate(MINIMAL.splitlines(), 1) if "sql:" in line or "sink:" in line)
    good = changed(MINIMAL, target, TABLE + "}}")
    assert problems(tmp_path, good) == []
    without = changed(good, sql, "    sql: SELECT count(*) AS n FROM trips GROUP BY cell")
    assert problems(tmp_path, without) == [
        f"{target}: spec.sink.table.key: the query groups by cell and does not select it, so rows of the table would "
        "collide; add cell to the SELECT list, or group by less"
    ]
    wrong = changed(MINIMAL, target, TABLE.replace("table", "kafka") + ", key: [sell]}}")
    assert problems(tmp_path, wrong) == [
        f'{target}: spec.sink.kafka.key: the result has no column "sell"; did you mean "cell"?'
    ]


@pytest.mark.parametrize(
    ("select", "known"),
    [
        ("SELECT * FROM trips", "cell, fare, at"),
        ("SELECT t.*, 1 AS one FROM (SELECT * FROM trips) t", "cell, fare, at, one"),
        ("SELECT y.* FROM (SELECT cell AS c, 1 AS one FROM trips UNION ALL SELECT cell, 2 FROM trips) y", "c, one"),
        ("WITH w AS (SELECT fare, at FROM trips) SELECT * FROM w", "fare, at"),
        ("SELECT fare + 1, cell FROM trips", "fare + 1, cell"),
    ],
)
def test_validate_writes_out_stars_to_find_the_key(tmp_path, select, known):
    sql, target = (n for n, line in enumerate(MINIMAL.splitlines(), 1) if "sql:" in line or "sink:" in line)
    text = changed(MINIMAL, sql, f"    sql: {select}")
    keyed = changed(text, target, TABLE.replace("table", "kafka") + ", key: [zz]}}")
    assert problems(tmp_path, keyed) == [
        f'{target}: spec.sink.kafka.key: the result has no column "zz"; write one of {known}'
    ]
    assert problems(tmp_path, keyed.replace("[zz]", f"[{known.rpartition(', ')[2]}]")) == []


def test_validate_refuses_a_star_over_two_columns_of_a_name_where_the_sink_does(tmp_path):
    sql, target = (n for n, line in enumerate(MINIMAL.splitlines(), 1) if "sql:" in line or "sink:" in line)
    star = changed(MINIMAL, sql, "    sql: SELECT *, fare AS cell FROM trips")
    assert problems(tmp_path, star) == []
    [problem] = problems(tmp_path, changed(star, target, "  sink: {files: {path: out, format: csv}}"))
    assert (
        'the result has 2 columns with the name "cell" (line 1, column 11 of the SQL); give each a name of its own'
        in problem
    )


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("named_struct('a', cell) AS s", "s of type struct cannot be written to csv; select its fields one by one, or"),
        ("array(cell) AS l", "l of type array cannot be written to csv; select to_json(l) AS l, or"),
        ("CASE WHEN fare > 1 THEN map(cell, 1) END AS m", "m of type map cannot be written to csv; select to_json(m)"),
        ("CAST(cell AS BINARY) AS b", "b of type binary cannot be written to csv; select base64(b) AS b, or write"),
        ("window(at, '1 minute')", "window of type struct<start:timestamp,end:timestamp> cannot be written to csv; "
         "select its fields one by one, such as window.start, or write format: parquet"),
        ("window(at, '1 minute').end AS e", ""),
        ("size(split(cell, ',')) AS n", ""),
        ("split(cell, ',')[0] AS f", ""),
    ],
)  # fmt: skip
def test_validate_finds_columns_that_csv_has_no_text_for(tmp_path, item, said):
    sql, target = (n for n, line in enumerate(MINIMAL.splitlines(), 1) if "sql:" in line or "sink:" in line)
    csv = changed(MINIMAL, target, "  sink: {files: {path: out, format: csv}}")
    for select in (f"SELECT cell, {item} FROM trips", f"SELECT x.* FROM (SELECT {item} FROM trips) x"):
        found = problems(tmp_path, changed(csv, sql, f'    sql: "{select}"'))
        assert len(found) == bool(said), found
        assert f"{target}: spec.sink.files.format: column {said}" in found[0] if said else not found


def test_validate_leaves_it_to_the_run_what_identifies_the_rows_of_tables_and_groups(tmp_path):
    lines = MINIMAL.splitlines()
    schema, sql, target = (
        next(n for n, line in enumerate(lines, 1) if each in line) for each in ("schema", "sql", "sink")
    )
    rows = changed(changed(MINIMAL, target, TABLE + "}}"), sql, "    sql: SELECT cell, fare FROM trips")
    assert "the query does not say which columns identify a row" in problems(tmp_path, rows)[0]
    table = "      watermark: {column: at, delay: 30s}\n      table: {keys: [cell]}"
    assert problems(tmp_path, changed(rows, schema, f"{lines[schema - 1]}\n{table}")) == []
    of_groups = "    sql: SELECT x.cell FROM (SELECT cell, count(*) AS n FROM trips GROUP BY cell) x"
    assert problems(tmp_path, changed(rows, sql, of_groups)) == []
    named = changed(changed(rows, sql, of_groups), target, TABLE + ", key: [sell]}}")
    assert 'the result has no column "sell"' in problems(tmp_path, named)[0]


def test_validate_knows_the_window_and_the_key_of_an_aggregator(tmp_path):
    target = next(n for n, line in enumerate(PYTHON.splitlines(), 1) if "sink:" in line)
    assert problems(tmp_path, changed(PYTHON, target, TABLE + ", key: [cell, window_end]}}")) == []
    assert problems(tmp_path, changed(PYTHON, target, TABLE + ", key: [cell]}}")) == [
        f"{target}: spec.sink.table.key: the key leaves out window_start, so rows of the table would collide; "
        "add window_start, or leave key out"
    ]
