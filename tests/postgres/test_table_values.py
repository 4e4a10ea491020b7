"""What is read of PostgreSQL's tables: values of each type without loss, and a sentence for what cannot be read."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from databases.tables import read
from lab.postgres import PASSWORD, PostgresServer
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.sources import database_table

pytestmark = [pytest.mark.postgres]

MakeTable = Callable[[str], str]

VALUES = [
    ("BIGINT", "bigint", [0, -(2**63), 2**63 - 1]),
    ("BIGINT", "smallint", [-(2**15)]),
    ("INT", "integer", [2**31 - 1]),
    ("SMALLINT", "smallint", [-7]),
    ("BOOLEAN", "boolean", [True, False]),
    ("DOUBLE", "double precision", [0.1, -0.0, 1e300, math.inf, -math.inf, 5e-324]),
    ("DOUBLE", "integer", [2**31 - 1]),
    ("FLOAT", "real", [0.5, -3.25]),
    ("DECIMAL(38,9)", "numeric", [Decimal("1.5"), Decimal("-12345678901234567890123456789.123456789")]),
    ("DECIMAL(20,0)", "bigint", [2**63 - 1]),
    ("DATE", "date", [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    (
        "TIMESTAMP",
        "timestamptz",
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ],
    ),
    ("TIMESTAMP", "timestamp", [datetime(2026, 3, 29, 2, 30, 0, 1, tzinfo=UTC)]),
    ("STRING", "text", ["", "a,b", 'say "hi"', "two\nlines\r\n", "\\.", "\\N", "NULL", " ä€😀\t"]),
    ("STRING", "char(5)", ["ab   "]),
    ("STRING", "varchar(9)", ["ab "]),
    ("STRING", "uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("STRING", "jsonb", ['{"a": [1, "x,y"]}']),
    ("STRING", "numeric", ["123456789012345678901234567890123456789012345.6789"]),
    ("BINARY", "bytea", [b"", b"\x00\xff,\n"]),
]


@pytest.mark.parametrize(
    ("declared", "stored", "values"), VALUES, ids=[f"{one} of {other}" for one, other, _ in VALUES]
)
def test_values_of_every_type_are_read_without_loss(
    server: PostgresServer, make_table: MakeTable, declared: str, stored: str, values: list[Any]
) -> None:
    table = make_table(f'n integer, "the value" {stored}')
    for number, value in enumerate([*values, None]):
        given = value.replace(tzinfo=None) if stored == "timestamp" and value is not None else value
        server.execute(f'INSERT INTO {table} VALUES (%s, %s::text::{stored})' if stored == "uuid" else
                       f'INSERT INTO {table} VALUES (%s, %s)', number, given)  # fmt: skip
    found = read(server, f"n INT, `the value` {declared}", table=table).sort_by("n")["the value"].to_pylist()
    assert found == [*values, None]
    assert [math.copysign(1, each) for each in found if isinstance(each, float)] == [
        math.copysign(1, each) for each in values if isinstance(found[0], float)
    ]


def test_nan_and_null_stay_apart(server: PostgresServer, make_table: MakeTable) -> None:
    table = make_table("x double precision")
    server.execute(f"INSERT INTO {table} VALUES ('NaN'), (NULL), (NULL)")
    found = read(server, "x DOUBLE", table=table)["x"].to_pylist()
    assert [each is None for each in found] == [False, True, True]
    assert math.isnan(found[0])


def test_a_time_as_text_is_what_the_server_writes(server: PostgresServer) -> None:
    query = "SELECT 1 AS n, timestamp '2026-03-29 02:30:00.5' AS a, timestamptz '2026-03-29 02:30:00+02' AS b"
    (found,) = read(server, "n INT, a STRING, b STRING", query=query).to_pylist()
    assert found == {"n": 1, "a": "2026-03-29 02:30:00.5", "b": "2026-03-29 00:30:00+00"}


def test_a_query_with_a_comment_is_read_in_many_blocks(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_table, "_BLOCK_BYTES", 5_000)
    query = "SELECT n, repeat('x\n', (n % 9)::int) AS t FROM generate_series(1, 20000) AS n -- all of them"
    found = read(server, "n BIGINT, t STRING", query=query)
    assert found.num_rows == 20_000
    assert sum(len(each) for each in found["t"].to_pylist()) == sum(2 * (n % 9) for n in range(1, 20_001))


def test_a_byte_order_mark_is_part_of_a_text(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_table, "_BLOCK_BYTES", 1)
    query = r"SELECT repeat(U&'\FEFF', n) || 'x' AS t FROM generate_series(0, 2) AS n"
    assert sorted(read(server, "t STRING", query=query)["t"].to_pylist()) == ["x", "\ufeffx", "\ufeff\ufeffx"]


REFUSED = [
    (
        "n BIGINT, v INT",
        "v bigint",
        "column v of table {table} is bigint, which INT cannot hold without loss",
        "BIGINT",
    ),
    ("n BIGINT, v DOUBLE", "v numeric(9,2)", "is numeric, which DOUBLE cannot hold without loss", "DECIMAL(p,s)"),
    ("n BIGINT, v BIGINT", "v text", "is text, which BIGINT cannot hold without loss", "declare it STRING"),
    ("n BIGINT, v STRING", "v bytea", "is bytea, which STRING cannot hold without loss", "declare it BINARY"),
    ("n BIGINT, v STRING", "v integer[]", "is integer[], which has no values of a single column", "to_json(v)::text"),
    ("n BIGINT, v STRING", "v int4range", "is int4range, which has no values of a single column", "to_json(v)::text"),
    ("n BIGINT, v ARRAY<INT>", "v integer[]", "column v is ARRAY, which no column of PostgreSQL is read as", "STRING"),
    ("n BIGINT, w INT", "v integer", 'has no such column (column "w" does not exist)', "schema"),
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
        ("DECIMAL(5,2)", "numeric", "1.234"),
        ("DECIMAL(5,2)", "numeric", "12345"),
        ("DECIMAL(5,2)", "numeric", "NaN"),
        ("TIMESTAMP", "timestamptz", "infinity"),
        ("TIMESTAMP", "timestamptz", "10000-01-01"),
        ("DATE", "date", "0044-03-15 BC"),
    ],
)
def test_values_that_a_declared_type_cannot_hold_are_refused(
    server: PostgresServer, make_table: MakeTable, declared: str, stored: str, value: str
):
    table = make_table(f"n bigint, v {stored}")
    server.execute(f"INSERT INTO {table} VALUES (1, NULL), (2, %s)", value)
    with pytest.raises(
        MillraceError, match=r"column v of table \S+ has a value that .* cannot hold \(.+\); "
    ) as raised:
        read(server, f"n BIGINT, v {declared}", table=table)
    assert raised.value.problems[0].field == "spec.sources.customers.schema"


def test_refusals_of_the_server_name_the_field(server: PostgresServer, make_table: MakeTable) -> None:
    table = make_table("n bigint")
    asked = [
        ({"table": "nowhere.at_all"}, "has no such table (relation", ""),
        ({"query": "SELECT FROM WHERE"}, "does not accept the query (syntax error", ".query"),
        ({"query": "SELECT 1 AS n) AS x; SELECT * FROM (SELECT 1"}, "cannot insert multiple commands", ".query"),
        ({"query": f"DELETE FROM {table} RETURNING n"}, "does not accept the query", ".query"),
        ({"query": "SELECT 1 / (n - 1) AS n FROM (VALUES (1)) AS v (n)"}, "cannot compute a value (division", ".query"),
        ({"query": f"SELECT nextval('{table}_s') AS n"}, "does not let a source write", ".query"),
        ({"table": table, "password": {"env": "HOME"}}, "refuses the login (password authentication", ".password"),
        ({"table": table, "database": "nowhere"}, "has no such database", ".database"),
        ({"table": table, "tls": {}}, "does not offer TLS", ".tls"),
    ]
    server.execute(f"CREATE SEQUENCE {table}_s")
    for postgres, said, field in asked:
        with pytest.raises(MillraceError) as raised:
            read(server, "n BIGINT", **postgres)
        (problem,) = raised.value.problems
        assert said in problem.message, problem
        assert problem.field == f"spec.sources.customers.postgres{field}"
        assert not isinstance(raised.value, TransientError)
    server.execute(f"CREATE USER reader PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    server.execute(f"GRANT USAGE ON SCHEMA {table.partition('.')[0]} TO reader")
    with pytest.raises(MillraceError, match="does not let this user read that"):
        read(server, "n BIGINT", table=table, user="reader")


def test_a_server_that_is_away_is_a_transient_error(own_server: PostgresServer) -> None:
    own_server.kill()
    with pytest.raises(TransientError, match="cannot be reached"):
        read(own_server, "n INT", table="t")
