"""A database that cannot be used is refused at the start, in one sentence that says what to write or do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from databases.certificates import certificate_for
from databases.refusals import impatient, refusal  # noqa: F401
from databases.sinks import FRESH, open_sink, write
from lab.ports import free_port
from lab.postgres import PostgresServer
from millrace_api.errors import MillraceError, TransientError

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

GOOD = "cell text, since timestamptz, trips bigint, fare double precision"


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        ("cell text, since timestamptz, trips bigint", (),
         'table: table s.results has no column fare; ALTER TABLE s.results ADD "fare" double precision;'),
        (GOOD.replace("trips bigint", "trips integer"), (),
         "table: column trips of table s.results is integer, and the result has BIGINT; change it, as in "
         'ALTER TABLE s.results ALTER "trips" TYPE bigint; or cast the column in the SELECT list'),
        (GOOD.replace("trips bigint", "trips numeric(20,2)"), (), "is numeric(20,2), and the result has BIGINT"),
        (GOOD.replace("timestamptz", "timestamp"), (), "is timestamp without time zone, and the result has TIMESTAMP"),
        (f"{GOOD}, city text NOT NULL", (),
         "table: column city of table s.results is NOT NULL, and the result has no such column; select it, or give"),
        (GOOD.replace("trips bigint", "trips bigint GENERATED ALWAYS AS IDENTITY"), (),
         "column trips of table s.results has values that the database generates; leave the column out"),
        (GOOD, ("cell", "since"),
         "key: table s.results has no primary key or unique constraint on exactly cell, since; add one, as in "
         'ALTER TABLE s.results ADD PRIMARY KEY ("cell", "since");'),
        (f"{GOOD}, PRIMARY KEY (cell)", ("cell", "since"), "no primary key or unique constraint on exactly cell, since"),
        (f"{GOOD}, UNIQUE (cell) DEFERRABLE", ("cell",), "no primary key or unique constraint on exactly cell"),
        (f"{GOOD}, UNIQUE (cell, since)", ("since", "cell"),
         "key: column since of table s.results may be NULL, and rows without a key would be repeated; "
         'ALTER TABLE s.results ALTER "since" SET NOT NULL;'),
    ],
)  # fmt: skip
def test_a_table_that_does_not_suit_the_results_is_refused(server, make_table, results, columns, key, expected):
    assert expected in refusal(server, make_table(columns), results, key)


def test_all_problems_of_a_table_are_said_at_once(server, make_table, results):
    found = refusal(server, make_table("cell integer, since date"), results)
    assert len(found.splitlines()) == 4


@pytest.mark.parametrize("key", [(), ("cell", "since")])
def test_the_command_for_a_missing_table_creates_one_that_suits(server, spark, results, key):
    table = f"missing_{len(key)}"
    wide = results.selectExpr(
        "*", "1Y AS a", "1S AS b", "1 AS c", "CAST(1 AS FLOAT) AS d", "1.5BD AS e", "true AS f", "DATE'2024-01-01' AS g",
        "X'00' AS h", "array(1) AS i", "named_struct('a', 1) AS j", "map('a', 1) AS k", "TIMESTAMP_NTZ'2024-01-01' AS l",
    )  # fmt: skip
    sink = open_sink(server, table, wide, key)
    with pytest.raises(MillraceError) as raised:
        sink.prepare(FRESH)
    message, _, command = str(raised.value).partition("; create it: ")
    assert message == f"spec.sink.postgres.table: database postgres at {server.host} has no table {table}"
    server.execute(command)
    sink.prepare(FRESH)
    assert write(sink, wide, 0) == 1
    sink.close()


def test_a_type_that_no_column_holds_is_refused(server, make_table, spark):
    found = refusal(server, make_table("a text"), spark.sql("SELECT INTERVAL '1' DAY AS a, NULL AS b"))
    assert found.splitlines() == [
        "spec.sink.postgres: column a is INTERVAL DAY, for which no type of PostgreSQL is known; "
        "cast it in the SELECT list, as in CAST(a AS STRING) AS a",
        "spec.sink.postgres: column b is VOID, for which no type of PostgreSQL is known; "
        "cast it in the SELECT list, as in CAST(b AS STRING) AS b",
    ]


def test_a_view_is_no_table(server, make_table, results):
    table = make_table(GOOD)
    server.execute(f"CREATE VIEW {table}_view AS SELECT * FROM {table}")
    assert f"{table.split('.')[1]}_view is no table; write the name of a table" in refusal(
        server, f"{table}_view", results
    )


def test_wrong_logins_databases_and_hosts_are_refused(server, make_table, results, monkeypatch):
    table = make_table(GOOD)
    monkeypatch.setenv("WRONG", "wrong")
    doing = f"while looking for table {table}".replace(table.split(".")[0], "s")
    assert refusal(server, table, results, password={"env": "WRONG"}) == (
        'spec.sink.postgres.password: PostgreSQL at SERVER refuses the login (password authentication failed for user "postgres") '
        f"{doing}; check user and password, and the server's pg_hba.conf"
    )
    assert refusal(server, table, results, password=None).startswith(
        "spec.sink.postgres.password: PostgreSQL at SERVER refuses the login (fe_sendauth: no password supplied)"
    )
    assert refusal(server, table, results, user="nobody").startswith(
        "spec.sink.postgres.password: PostgreSQL at SERVER refuses"
    )
    assert refusal(server, table, results, database="nope") == (
        f'spec.sink.postgres.database: PostgreSQL at SERVER has no such database (database "nope" does not exist) {doing}; '
        "create it, or correct its name"
    )
    assert refusal(server, table, results, tls={}) == (
        "spec.sink.postgres.tls: PostgreSQL at SERVER does not offer TLS (server does not support SSL, but SSL was required) "
        f"{doing}; leave tls out, or turn ssl on at the server"
    )
    assert refusal(server, table, results, password={"env": "UNSET"}) == (
        "the password for PostgreSQL at SERVER is read from the environment variable UNSET, which is not set; "
        "set UNSET where the query is started, and for its executors"
    )


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "no-such-host.invalid:{port}"])
def test_a_server_that_cannot_be_reached_may_come_back(server, results, host):
    sink = open_sink(server, "results", results, host=host.format(port=free_port()))
    with pytest.raises(
        TransientError, match=r"spec.sink.postgres.host: PostgreSQL at .* cannot be reached \(.*\) while"
    ):
        sink.prepare(FRESH)


def test_of_several_servers_the_one_that_answers_is_used(server, make_table, results):
    table = make_table(GOOD)
    sink = open_sink(server, table, results, host=f"127.0.0.1:{free_port()}, {server.host}")
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    sink.close()


@pytest.fixture
def user(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user without rights, whose password is in the variable USERS_PASSWORD."""
    name = f"user_{free_port()}"
    server.execute(f"CREATE USER {name} PASSWORD 'theirs'")
    monkeypatch.setenv("USERS_PASSWORD", "theirs")
    return name


def test_missing_rights_are_refused_with_the_commands_that_grant_them(server, make_table, results, user):
    table = make_table(f"{GOOD}, PRIMARY KEY (cell, since)")
    schema = table.split(".")[0]
    login = {"user": user, "password": {"env": "USERS_PASSWORD"}}
    key = ("cell", "since")
    assert "does not let this user do that (permission denied for schema s) while" in refusal(
        server, table, results, key, **login
    )
    server.execute(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
    expected = [
        (f"user {user} may not INSERT, SELECT, UPDATE on table s.results; GRANT ", 1),
        (f"user {user} may not create table millrace_batches in schema s; create it as its owner: ", 2),
    ]
    for message, commands in expected:
        found = refusal(server, table, results, key, **login)
        assert message in found
        granted = found.partition("create it as its owner: " if commands > 1 else "; ")[2]
        for command in granted.replace("s.results", table).replace('"s"', f'"{schema}"').strip(";").split("; "):
            server.execute(command)
    sink = open_sink(server, table, results, key, **login)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    sink.close()
    server.execute(f"REVOKE UPDATE ON {schema}.millrace_batches FROM {user}")
    found = refusal(server, table, results, key, checkpoint="second", query="second", **login)
    assert f'user {user} may not use table s.millrace_batches; GRANT SELECT, INSERT, UPDATE, DELETE ON "s".' in found


def test_a_password_that_has_expired_is_a_refused_login(server, make_table, results, user):
    server.execute(f"ALTER USER {user} VALID UNTIL '2000-01-01'")
    found = refusal(server, make_table(GOOD), results, user=user, password={"env": "USERS_PASSWORD"})
    assert found.startswith(
        "spec.sink.postgres.password: PostgreSQL at SERVER refuses the login (password authentication"
    )


def test_tls_verifies_the_server(own_server, results, tmp_path: Path):
    own_server.execute(f"CREATE TABLE results ({GOOD})")
    right, wrong = certificate_for("127.0.0.1", tmp_path), certificate_for("other.example.org", tmp_path)
    own_server.use_tls(*right)
    sink = open_sink(own_server, "results", results, tls={"ca": {"file": str(right[0])}})
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    (used,) = own_server.execute(
        "SELECT ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE application_name = 'millrace'"
    )
    assert used == (True,)
    sink.close()
    tls = "spec.sink.postgres.tls: PostgreSQL at SERVER cannot be verified ("
    assert refusal(own_server, "results", results, tls={"ca": {"file": str(wrong[0])}}).startswith(
        f"{tls}certificate verify failed"
    )
    assert refusal(own_server, "results", results, tls={}).startswith(f"{tls}")
    own_server.use_tls(*wrong)
    found = refusal(own_server, "results", results, tls={"ca": {"file": str(wrong[0])}})
    assert found.startswith(f'{tls}server certificate for "other.example.org"')
