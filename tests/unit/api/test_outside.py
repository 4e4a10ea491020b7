"""What the text of a query shows of functions that reach outside its SQL; Spark's plan shows the rest."""

import pytest

from millrace_api.model.streamquery import Emit
from millrace_api.sql.checks import check_sql
from millrace_api.sql.outside import outside_functions
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable

REACHING = [
    ("SELECT reflect('a', 'b') AS x FROM trips", "reflect", 8),
    ("SELECT\n  REFLECT ('a', 'b') AS x FROM trips", "reflect", 3),
    ("SELECT `Reflect`('a', 'b') AS x FROM trips", "reflect", 8),
    ("SELECT reflect/**/('a', 'b') AS x FROM trips", "reflect", 8),
    ("SELECT builtin.try_reflect('a', 'b') AS x FROM trips", "try_reflect", 16),
    ("SELECT system.builtin.`java_method`('a', 'b') AS x FROM trips", "java_method", 23),
    ("SELECT transform(a, e -> reflect('a', 'b')) AS x FROM trips", "reflect", 26),
    ("SELECT cell FROM trips WHERE v IN (SELECT reflect('a', 'b'))", "reflect", 43),
    ("SELECT cell FROM trips LATERAL VIEW explode(array(reflect('a', 'b'))) t AS x", "reflect", 51),
    ("FROM trips |> SELECT reflect('a', 'b')", "reflect", 22),
    ("SELECT * FROM IDENTIFIER('text.`/etc/passwd`')", "identifier", 15),
    ("SELECT from_avro(v, '{}', map('avroSchemaUrl', '/etc/passwd')) AS x FROM trips", "from_avro", 8),
    ("SELECT from_protobuf(v, 'M', '/etc/passwd') AS x FROM trips", "from_protobuf", 8),
]


@pytest.mark.parametrize(("sql", "name", "column"), REACHING)
def test_a_function_is_found_however_it_is_written(sql, name, column):
    ((found, problem),) = outside_functions(sql)
    assert found == name
    assert f'"{name}" reaches outside the SQL' in problem.message
    assert f"column {column} of the SQL" in problem.message
    assert problem.hint.endswith(f"add {name} to functions of the policy")


def test_a_program_and_an_xml_schema_are_found():
    for sql, name in (
        ("SELECT TRANSFORM(cell) USING 'sh' AS (x) FROM trips", "transform_using"),
        (
            "SELECT from_xml(v, 'b INT', map('rowvalidationXSDpath', 'http://evil.com')) AS x FROM trips",
            "xml_schema_file",
        ),
    ):
        assert [str(found) for found, _ in outside_functions(sql)] == [name]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'reflect(1)' AS reflect, reflect AS x FROM trips -- reflect('a')",
        "SELECT transform(a, e -> e + 1) AS x FROM trips JOIN zones USING (reflect)",
        "SELECT from_xml(v, 'b INT', map('mode', 'FAILFAST')) AS x, to_avro(v) AS y FROM trips",
    ],
)
def test_other_things_with_such_names_are_not_found(sql):
    assert list(outside_functions(sql)) == []


@pytest.mark.parametrize(
    ("sql", "refused"),
    [
        ("-- \\\nSELECT cell FROM trips /*\nSET spark.x=1\n-- */", True),
        ("SELECT cell -- a \\\nFROM trips", True),
        ("SELECT cell -- a \\ b\nFROM trips", False),
        ("SELECT cell, '-- \\\\\n' AS x FROM trips", False),
        ("SELECT cell FROM trips -- a \\", False),
    ],
)
def test_a_comment_that_spark_reads_beyond_its_line_is_refused(sql, refused):
    tables = {"trips": SourceTable(parse_schema("cell STRING"), None)}
    found = [problem.message for problem in check_sql(sql, tables, emit=Emit.ON_UPDATE)]
    assert found == (["a comment of the SQL ends in a backslash"] if refused else [])


@pytest.mark.parametrize("name", ["text./etc/passwd", "CSV./etc/passwd", "a.b"])
def test_a_cte_does_not_make_a_table_of_several_parts_known(name):
    first, rest = name.split(".", 1)
    sql = f"WITH `{name}` AS (SELECT 1) SELECT cell FROM trips, {first}.`{rest}`"
    tables = {"trips": SourceTable(parse_schema("cell STRING"), None)}
    (problem,) = check_sql(sql, tables, emit=Emit.ON_UPDATE)
    assert problem.message.startswith(f'there is no source "{name}"')
