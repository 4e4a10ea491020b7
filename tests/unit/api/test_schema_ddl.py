import pytest

from millrace_api.errors import MillraceError
from millrace_api.sql.schema_ddl import Column, parse_schema


def test_types_of_columns_are_brought_to_one_spelling():
    text = "medallion string, id LONG, price dec(10, 2) NOT NULL, `odd name` INTEGER COMMENT 'x, y', at TIMESTAMP"
    assert parse_schema(text) == (
        Column("medallion", "STRING"),
        Column("id", "BIGINT"),
        Column("price", "DECIMAL(10,2)", nullable=False),
        Column("odd name", "INT"),
        Column("at", "TIMESTAMP"),
    )


def test_nested_types_are_accepted_but_no_scalars():
    text = "a ARRAY<ARRAY<INT>>, m MAP<STRING, DECIMAL(5)>, s STRUCT<x: INT NOT NULL, y STRING>, c CHAR(3)"
    columns = parse_schema(text)
    assert [c.type for c in columns] == [
        "ARRAY<ARRAY<INT>>",
        "MAP<STRING, DECIMAL(5,0)>",
        "STRUCT<x: INT NOT NULL, y: STRING>",
        "CHAR(3)",
    ]
    assert [c.is_scalar for c in columns] == [False, False, False, True]


def test_a_quoted_name_may_be_a_number():
    assert [column.name for column in parse_schema("`2023` INT, `2024` INT")] == ["2023", "2024"]
    with pytest.raises(MillraceError, match="a column name is missing"):
        parse_schema("2023 INT")


def test_keywords_are_column_names():
    names = [column.name for column in parse_schema("date DATE, time TIMESTAMP, window STRING, end INT, key STRING")]
    assert names == ["date", "time", "window", "end", "key"]


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (
            "a STRNG",
            1,
            '"STRNG" is not a type that a schema can have (line 1, column 3 of the schema)',
            "did you mean STRING?",
        ),
        (
            "a INT,\n b FLOT",
            2,
            '"FLOT" is not a type that a schema can have (line 2, column 4 of the schema)',
            "did you mean FLOAT?",
        ),
        (
            "a text",
            1,
            '"text" is not a type that a schema can have (line 1, column 3 of the schema)',
            "did you mean STRING?",
        ),
        (
            "a blob",
            1,
            '"blob" is not a type that a schema can have (line 1, column 3 of the schema)',
            "write one of BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, "
            "TIMESTAMP_NTZ",
        ),
        (
            "a",
            1,
            '"a" has no type (line 1, column 2 of the schema)',
            "write a type after the name, such as a STRING",
        ),
        (
            "a INT b INT",
            1,
            '"b" stands where "," should (line 1, column 7 of the schema)',
            "write a comma between columns, such as city STRING, fare DOUBLE",
        ),
        (
            "a: INT",
            1,
            '":" stands after "a" (line 1, column 2 of the schema)',
            "write a and its type with a space between",
        ),
        (
            "a INT,",
            1,
            "a column name is missing (line 1, column 7 of the schema)",
            "write a name and a type, such as city STRING",
        ),
        (
            "a INT, A INT",
            1,
            'column "A" is defined twice (line 1, column 8 of the schema)',
            "rename one; upper and lower case are the same",
        ),
        (
            "a DECIMAL(50,2)",
            1,
            "DECIMAL(50,2) does not exist (line 1, column 14 of the schema)",
            "write a precision of 1 to 38 and a scale not greater, such as DECIMAL(10,2)",
        ),
        (
            "a DECIMAL(x)",
            1,
            "a number is missing (line 1, column 11 of the schema)",
            "write a whole number, as in DECIMAL(10,2)",
        ),
        (
            "a VARCHAR",
            1,
            "VARCHAR has no length (line 1, column 10 of the schema)",
            "write VARCHAR(20), or STRING",
        ),
        (
            "a MAP<STRING>",
            1,
            "MAP has no value type (line 1, column 13 of the schema)",
            "write both types, such as MAP<STRING, INT>",
        ),
        ("a ARRAY<INT", 1, '">" is missing (line 1, column 12 of the schema)', "close ARRAY with >"),
        ("a INT COMMENT", 1, "COMMENT has no text (line 1, column 14 of the schema)", "write COMMENT 'text'"),
        (
            "a INT,\nb STRING COMMENT 'x,\nc INT",
            2,
            "a quote is not closed (line 2, column 18 of the schema)",
            "close it",
        ),
        (
            "a INT,\nb INT /* not used\n",
            2,
            "a comment is not closed (line 2, column 7 of the schema)",
            "close it with */",
        ),
        (
            "user-id STRING",
            1,
            '"-" stands after "user" (line 1, column 5 of the schema)',
            "write a name with a hyphen in backquotes, such as `user-id` STRING",
        ),
    ],
)
def test_mistakes_have_a_position_and_a_way_out(text, line, message, hint):
    with pytest.raises(MillraceError) as caught:
        parse_schema(text)
    [problem] = caught.value.problems
    assert (problem.line, problem.message, problem.hint) == (line, message, hint)
