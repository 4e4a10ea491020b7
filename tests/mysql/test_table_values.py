"""What is read of MySQL's tables: values of each type without loss, and a sentence for what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from databases.tables import read
from lab.mariadb import MariaDbServer
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.sources import database_table

pytestmark = [pytest.mark.mysql]

MakeTable = Callable[[str], str]
UTF8 = "CHARACTER SET utf8mb4"

VALUES = [
    ("BIGINT", "bigint", [0, -(2**63), 2**63 - 1]),
    ("BIGINT", "int unsigned", [2**32 - 1]),
    ("BIGINT", "bigint unsigned", [2**63 - 1]),
    ("INT", "mediumint unsigned", [2**24 - 1]),
    ("SMALLINT", "tinyint unsigned", [255]),
    ("SMALLINT", "year", [2026]),
    ("BOOLEAN", "tinyint(1)", [True, False]),
    ("BOOLEAN", "bit(1)", [True, False]),
    ("DOUBLE", "double", [0.1, -0.5, 1e300, 1.7976931348623157e308, 2.2250738585072014e-308, 123456789.12345679]),
    ("DOUBLE", "int", [2**31 - 1]),
    ("FLOAT", "float", [0.5, -3.25, 16777215.0, 123456.7890625]),
    ("DECIMAL(38,9)", "decimal(60,20)", [Decimal("1.5"), Decimal("-12345678901234567890123456789.123456789")]),
    ("DECIMAL(20,0)", "bigint unsigned", [2**64 - 1]),
    ("DATE", "date", [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    (
        "TIMESTAMP",
        "datetime(6)",
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
    ),
    ("TIMESTAMP", "datetime", [datetime(2026, 3, 29, 2, 30, tzinfo=UTC)]),
    ("TIMESTAMP", "timestamp(3) NULL", [datetime(2026, 3, 29, 2, 30, 0, 1000, tzinfo=UTC)]),
    (
        "STRING",
        f"longtext {UTF8}",
        ["", "a,b", 'say "hi"', "two\nlines\r\n", "\\.", "\\N", "NULL", " ä€😀\t", "＂", "\0"],
    ),
    ("STRING", f"varchar(9) {UTF8}", ["ab ", "'"]),
    ("STRING", "varchar(9) CHARACTER SET latin1", ["ä€"]),
    ("STRING", "enum('a','b')", ["b"]),
    ("STRING", "json", ['{"a": [1, "x,y"]}']),
    ("STRING", "decimal(65,30)", ["12345678901234567890123456789012345.678900000000000000000000000000"]),
    ("BINARY", "longblob", [b"", b"\x00\xff,\n"]),
    ("BINARY", "varbinary(9)", [b"\x00 "]),
]


@pytest.mark.parametrize(
    ("declared", "stored", "values"), VALUES, ids=[f"{one} of {other}" for one, other, _ in VALUES]
)
def test_values_of_every_type_are_read_without_loss(
    server: MariaDbServer, make_table: MakeTable, declared: str, stored: str, values: list[Any]
) -> None:
    table = make_table(f"n int, `the value` {stored}")
    for number, value in enumerate([*values, None]):
        given = value.replace(tzinfo=None) if isinstance(value, datetime) else value
        server.execute(f"INSERT INTO {table} VALUES (%s, %s)", number, given)
    found = read(server, f"n INT, `the value` {declared}", table=table).sort_by("n")["the value"].to_pylist()
    assert found == [*values, None]


def test_a_query_with_a_comment_is_read_in_many_blocks(server: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_table, "_BLOCK_BYTES", 5_000)
    query = "SELECT seq AS n, repeat('x\n', seq % 9) AS t FROM seq_1_to_20000 -- all of them"
    found = read(server, "n BIGINT, t STRING", query=query)
    assert found.num_rows == 20_000
    assert sum(len(each) for each in found["t"].to_pylist()) == sum(2 * (n % 9) for n in range(1, 20_001))


REFUSED = [
    (
        "n BIGINT, v INT",
        "v bigint",
        "column v of table {table} is bigint, which INT cannot hold without loss",
        "BIGINT",
    ),
    ("n BIGINT, v INT", "v bigint unsigned", "is bigint unsigned, which INT cannot hold", "BIGINT or DECIMAL(20,0)"),
    ("n BIGINT, v DOUBLE", "v decimal(9,2)", "is decimal, which DOUBLE cannot hold without loss", "DECIMAL(p,s)"),
    ("n BIGINT, v BIGINT", "v longtext", "is text, which BIGINT cannot hold without loss", "declare it STRING"),
    ("n BIGINT, v STRING", "v blob", "is binary, which STRING cannot hold without loss", "declare it BINARY"),
    ("n BIGINT, v ARRAY<INT>", "v json", "column v is ARRAY, which no column of MySQL is read as", "STRING"),
    ("n BIGINT, w INT", "v int", "has no such column (Unknown column 'w' in", "schema"),
]


@pytest.mark.parametrize(("columns", "stored", "said", "hint"), REFUSED, ids=[each[2][:40] for each in REFUSED])
def test_columns_that_cannot_be_read_are_refused_with_a_hint(
    server, make_table: MakeTable, columns: str, stored: str, said: str, hint: str
):
    table = make_table(f"n bigint, {stored}")
    with pytest.raises(MillraceError) as raised:
        read(server, columns, table=table)
    (problem,) = raised.value.problems
    assert said.format(table=table) in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("declared", "stored", "value"),
    [
        ("DECIMAL(5,2)", "decimal(9,4)", "1.234"),
        ("DECIMAL(5,2)", "decimal(9,4)", "12345"),
        ("BOOLEAN", "tinyint", "2"),
        ("BIGINT", "bigint unsigned", str(2**63)),
        ("DATE", "date", "0000-00-00"),
        ("TIMESTAMP", "datetime", "0000-00-00 00:00:00"),
        ("TIMESTAMP", "datetime", "2026-02-00 00:00:00"),
    ],
)
def test_values_that_a_declared_type_cannot_hold_are_refused(
    server: MariaDbServer, make_table: MakeTable, declared: str, stored: str, value: str
):
    table = make_table(f"n bigint, v {stored}")
    with server.connect(sql_mode="") as connection:
        connection.cursor().execute(f"INSERT INTO {table} VALUES (1, NULL), (2, %s)", (value,))
    with pytest.raises(
        MillraceError, match=r"column v of table \S+ has a value that .* cannot hold \(.+\); "
    ) as raised:
        read(server, f"n BIGINT, v {declared}", table=table)
    assert raised.value.problems[0].field == "spec.sources.customers.schema"


def test_refusals_of_the_server_name_the_field(server: MariaDbServer, make_table: MakeTable) -> None:
    table = make_table("n bigint")
    database = table.partition(".")[0]
    server.execute(f"CREATE SEQUENCE {table}_s")
    asked = [
        ({"table": "nowhere.at_all"}, "has no such table (Table 'nowhere.at_all' doesn't exist", ""),
        ({"query": "SELECT FROM WHERE"}, "does not accept the query (You have an error", ".query"),
        ({"query": "SELECT 1 AS n) AS x; SELECT * FROM (SELECT 1"}, "does not accept the query", ".query"),
        ({"query": f"DELETE FROM {table} RETURNING n"}, "does not accept the query", ".query"),
        ({"query": f"SELECT nextval({table}_s) AS n"}, "does not let a source write", ".query"),
        ({"table": table, "password": {"env": "HOME"}}, "refuses the login (Access denied", ".password"),
        ({"table": table, "database": "nowhere"}, "has no such database", ".database"),
        ({"table": table, "tls": {}}, "does not offer TLS", ".tls"),
    ]
    for mysql, said, field in asked:
        with pytest.raises(MillraceError) as raised:
            read(server, "n BIGINT", **mysql)
        (problem,) = raised.value.problems
        assert said in problem.message, problem
        assert problem.field == f"spec.sources.customers.mysql{field}"
        assert not isinstance(raised.value, TransientError)
    server.execute("CREATE USER reader IDENTIFIED BY %s", "the-owner's")
    server.execute(f"GRANT INSERT ON {database}.* TO reader")
    server.execute("GRANT USAGE ON *.* TO reader")
    server.execute("GRANT CREATE TEMPORARY TABLES ON lab.* TO reader")
    with pytest.raises(MillraceError, match="does not let this user read that"):
        read(server, "n BIGINT", table=table, user="reader")


def test_a_row_that_is_larger_than_a_packet_is_refused(server: MariaDbServer) -> None:
    query = "SELECT 1 AS n, repeat('x', 9000000) AS a, repeat('y', 9000000) AS b"
    with pytest.raises(MillraceError, match=r"is larger than the server's max_allowed_packet; raise that, or"):
        read(server, "n INT, a STRING, b STRING", query=query)


def test_a_server_that_is_away_is_a_transient_error(own_server: MariaDbServer) -> None:
    own_server.kill()
    with pytest.raises(TransientError, match="cannot be reached"):
        read(own_server, "n INT", table="t")
