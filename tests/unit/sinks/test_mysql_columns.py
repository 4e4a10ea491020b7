"""Which columns of MySQL hold nested results: its JSON rounds numbers with fractions, and the lab has no MySQL."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millrace_api.errors import MillraceError
from millrace_jobs.databases.mysql import MySqlConnection
from millrace_jobs.sinks.databases.dialect import FoundTable, TableColumn
from millrace_jobs.sinks.databases.target import WantedTable
from millrace_jobs.sinks.mysql.dialect import MySqlDialect

SESSION: Any = None
TEXT = "longtext CHARACTER SET utf8mb4"
INEXACT: list[DataType] = [
    ArrayType(DoubleType()),
    ArrayType(ArrayType(FloatType())),
    StructType([StructField("a", StringType()), StructField("b", DecimalType(38, 18))]),
    MapType(StringType(), StructType([StructField("a", ArrayType(DecimalType(20, 0)))])),
]
EXACT: list[DataType] = [
    ArrayType(LongType()),
    StructType([StructField("a", TimestampType()), StructField("b", StringType()), StructField("c", BooleanType())]),
    MapType(DoubleType(), BinaryType()),
]


def wanted(kind: DataType, base: str, monkeypatch: pytest.MonkeyPatch) -> WantedTable:
    """Return what a result of this type needs of a table, whose column is of the type ``base`` in the server's words."""
    dialect = MySqlDialect(MySqlConnection((("db", 3306),), "sales", "millrace"))
    column = TableColumn("v", base, base, None, not_null=False, has_default=False, generated=False, staged=base)
    found = FoundTable("sales", "results", {"v": column}, [])
    monkeypatch.setattr(dialect, "find", lambda session, name: found)
    return WantedTable("results", StructType([StructField("v", kind)]), (), False, dialect)


@pytest.mark.parametrize("kind", INEXACT, ids=str)
def test_numbers_that_json_of_mysql_changes_need_text(kind: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = wanted(kind, "json", monkeypatch)
    with pytest.raises(MillraceError) as raised:
        refused.find(SESSION)
    (problem,) = raised.value.problems
    assert problem.message.startswith(
        "column v of table sales.results is json, in which MySQL changes FLOAT, DOUBLE and DECIMAL, and the result has "
    )
    command = f"ALTER TABLE sales.results MODIFY `v` {TEXT}"
    assert problem.hint == f"change it, as in {command}; or cast the column in the SELECT list"
    assert refused.create_command(SESSION) == f"CREATE TABLE `results` (`v` {TEXT});"
    assert wanted(kind, "longtext", monkeypatch).find(SESSION).columns == ("v",)  # what MariaDB says of json


@pytest.mark.parametrize("kind", EXACT, ids=str)
@pytest.mark.parametrize("base", ["json", "longtext"])
def test_other_nested_values_fit_either(kind: DataType, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = wanted(kind, base, monkeypatch)
    assert table.find(SESSION).columns == ("v",)
    assert table.create_command(SESSION) == "CREATE TABLE `results` (`v` json);"
