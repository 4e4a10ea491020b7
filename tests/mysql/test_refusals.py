"""A MySQL database that cannot be used is refused at the start, in one sentence that says what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from databases.certificates import certificate_for
from databases.refusals import impatient, refusal  # noqa: F401
from databases.sinks import FRESH, open_sink, write
from lab.mariadb import DATABASE, OWNER
from lab.ports import free_port
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.sinks.base import LastBatch

pytestmark = [pytest.mark.spark, pytest.mark.mysql]

MakeTable = Callable[[str], str]
GOOD = "cell {text}, since datetime(6), trips bigint, fare double"
KEYED = GOOD.replace("{text}", "{text} NOT NULL").replace("datetime(6)", "datetime(6) NOT NULL")


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        (GOOD.replace(", fare double", ""), (),
         "table: table s.results has no column fare; ALTER TABLE s.results ADD `fare` double;"),
        (GOOD.replace("bigint", "int"), (),
         "table: column trips of table s.results is int(11), and the result has BIGINT; change it, as in "
         "ALTER TABLE s.results MODIFY `trips` bigint; or cast the column in the SELECT list"),
        (GOOD.replace("bigint", "bigint unsigned"), (), "is bigint(20) unsigned, and the result has BIGINT"),
        (GOOD.replace("bigint", "decimal(20,2)"), (), "is decimal(20,2), and the result has BIGINT"),
        (GOOD.replace("datetime(6)", "datetime"), (), "since of table s.results is datetime, and the result has TIMESTAMP"),
        (GOOD.replace("datetime(6)", "timestamp(3)"), (), "is timestamp(3), and the result has TIMESTAMP"),
        (GOOD.replace("datetime(6)", "timestamp(6) NOT NULL"), (),
         "since of table s.results is NOT NULL, so the server would write the current time for NULL; "
         "ALTER TABLE s.results MODIFY `since` timestamp(6) NULL;"),
        (GOOD.replace("double", "double(8,2)"), (), "is double(8,2), and the result has DOUBLE"),
        (GOOD.replace("{text}", "char(60)"), (), "cell of table s.results is char(60), and the result has STRING"),
        (f"{GOOD}, city {{text}} NOT NULL", (),
         "table: column city of table s.results is NOT NULL, and the result has no such column; select it, or give"),
        (GOOD.replace("trips bigint", "trips bigint AUTO_INCREMENT PRIMARY KEY"), (),
         "column trips of table s.results has values that the database generates; leave the column out"),
        (GOOD.replace("trips bigint", "trips bigint AS (1) STORED"), (), "has values that the database generates"),
        (KEYED, ("cell", "since"),
         "key: table s.results has no primary key or unique constraint on exactly cell, since; add one, as in "
         "ALTER TABLE s.results ADD PRIMARY KEY (`cell`, `since`);"),
        (f"{KEYED}, UNIQUE (cell(10))", ("cell",), "no primary key or unique constraint on exactly cell"),
        (f"{GOOD}, UNIQUE (cell, since)", ("since", "cell"),
         "key: column since of table s.results may be NULL, and rows without a key would be repeated; "
         "ALTER TABLE s.results MODIFY `since` datetime(6) NOT NULL;"),
        (f"{KEYED}, PRIMARY KEY (cell)".replace("{text}", "varchar(60) CHARACTER SET utf8mb4"), ("cell",),
         "key: column cell of table s.results has the collation utf8mb4_general_ci, under which texts that differ can be one "
         "key, and rows be lost; ALTER TABLE s.results MODIFY `cell` varchar(60) CHARACTER SET utf8mb4 COLLATE "
         "utf8mb4_nopad_bin NOT NULL;"),
        (f"{KEYED}, PRIMARY KEY (cell)".replace("{text}", "varchar(60) COLLATE utf8mb4_bin"), ("cell",),
         "has the collation utf8mb4_bin, under which texts that differ can be one key"),
        (f"{GOOD}) ENGINE=MyISAM COMMENT=(''".replace("=(''", "='' -- ("), (), "table: s.results is of the engine MyISAM"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_suit_the_results_is_refused(server, make_table, results, columns, key, expected):
    assert expected in refusal(server, make_table(columns), results, key)


def test_the_commands_of_the_refusals_make_the_table_suitable(server, make_table: MakeTable, results):
    table = make_table("cell varchar(60) CHARACTER SET utf8mb4 NOT NULL, since datetime(6) NOT NULL, trips int,"
                       "PRIMARY KEY (cell, since)")  # fmt: skip
    for expected in (2, 1):
        sink = open_sink(server, table, results, ("cell", "since"))
        with pytest.raises(MillraceError) as raised:
            sink.prepare(FRESH)
        assert len(raised.value.problems) == expected
        for problem in raised.value.problems:
            server.execute(problem.hint.removeprefix("change it, as in ").partition(";")[0])
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    sink.close()


@pytest.mark.parametrize("key", [(), ("cell", "since", "h")])
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
    assert message == f"spec.sink.mysql.table: database {DATABASE} at {server.host} has no table {table}"
    server.execute(command)
    sink.prepare(FRESH)
    assert write(sink, wide, 0) == 1
    sink.close()


def test_types_that_no_column_holds_and_views_are_refused(server, make_table, spark, results):
    odd = spark.sql("SELECT INTERVAL '1' DAY AS a, CAST(0 AS DECIMAL(38,31)) AS b")
    assert refusal(server, make_table("a longtext"), odd).splitlines() == [
        "spec.sink.mysql: column a is INTERVAL DAY, for which no type of MySQL is known; "
        "cast it in the SELECT list, as in CAST(a AS STRING) AS a",
        "spec.sink.mysql: column b is DECIMAL(38,31), for which no type of MySQL is known; "
        "cast it in the SELECT list, as in CAST(b AS STRING) AS b",
    ]
    table = make_table(GOOD)
    server.execute(f"CREATE VIEW {table}_view AS SELECT * FROM {table}")
    assert "results_view is no table; write the name of a table" in refusal(server, f"{table}_view", results)


def test_wrong_logins_databases_and_hosts_are_refused(server, make_table, results, monkeypatch):
    table = make_table(GOOD)
    monkeypatch.setenv("WRONG", "wrong")
    doing = f"while looking for table {table}".replace(table.split(".")[0], "s")
    assert refusal(server, table, results, password={"env": "WRONG"}) == (
        "spec.sink.mysql.password: MySQL at SERVER refuses the login (Access denied for user "
        f"'{OWNER}'@'127.0.0.1' (using password: YES)) {doing}; check user and password, and from which hosts the user may log in"
    )
    assert refusal(server, table, results, database="nope") == (
        f"spec.sink.mysql.database: MySQL at SERVER has no such database (Unknown database 'nope') {doing}; "
        "create it, or correct its name"
    )
    assert refusal(server, table, results, tls={}) == (
        "spec.sink.mysql.tls: MySQL at SERVER does not offer TLS (SSL is required but the server doesn't support it) "
        f"{doing}; leave tls out, or give the server a certificate"
    )
    assert refusal(server, table, results, tls={"ca": {"env": "WRONG"}}).startswith(
        "spec.sink.mysql.tls.ca: the certificate authority for MySQL at SERVER is not in PEM"
    )


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "no-such-host.invalid:{port}"])
def test_a_server_that_cannot_be_reached_may_come_back(server, results, host):
    sink = open_sink(server, "results", results, host=host.format(port=free_port()))
    with pytest.raises(TransientError, match=r"spec.sink.mysql.host: MySQL at .* cannot be reached \(.*\) while"):
        sink.prepare(FRESH)


def test_of_several_servers_the_one_that_accepts_writes_is_used(server, own_server, make_table, results):
    table = make_table(GOOD)
    own_server.execute("SET GLOBAL read_only = ON")
    sink = open_sink(server, table, results, host=f"127.0.0.1:{free_port()}, {own_server.host}, {server.host}")
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    sink.close()
    with pytest.raises(TransientError, match=r"accepts no writes \(the server is read-only\)"):
        open_sink(own_server, table, results).prepare(FRESH)


def test_a_server_that_becomes_a_replica_is_a_transient_error(own_server, results):
    own_server.execute("CREATE TABLE results (cell longtext, since datetime(6), trips bigint, fare double)")
    own_server.execute("CREATE USER millrace IDENTIFIED BY 'theirs'")
    own_server.execute(f"GRANT ALL ON {DATABASE}.* TO millrace")
    sink = open_sink(own_server, "results", results, user="millrace", password={"env": "THEIRS"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THEIRS", "theirs")
        sink.prepare(FRESH)
        assert write(sink, results, 0) == 1
        own_server.execute("SET GLOBAL read_only = ON")
        with pytest.raises(TransientError, match=r"accepts no writes \(.*read-only"):
            write(sink, results, 1)
        own_server.execute("SET GLOBAL read_only = OFF")
        assert write(sink, results, 1) == 1
    sink.close()


def test_missing_rights_are_refused_before_the_first_batch(server, make_table, results, monkeypatch):
    table = make_table(f"{KEYED}, PRIMARY KEY (cell, since)")
    user, database = f"user_{free_port()}", table.split(".")[0]
    server.execute(f"CREATE USER {user}@'%%' IDENTIFIED BY 'theirs'" % ())
    monkeypatch.setenv("THEIRS", "theirs")
    login = {"user": user, "password": {"env": "THEIRS"}}
    key = ("cell", "since")
    denied = "spec.sink.mysql.user: MySQL at SERVER does not let this user do that ("
    assert refusal(server, table, results, key, **login).startswith(denied)
    server.execute(f"GRANT CREATE TEMPORARY TABLES ON {DATABASE}.* TO {user}")
    server.execute(f"GRANT SELECT ON {table} TO {user}")
    found = refusal(server, table, results, key, **login)
    assert f"user {user} may not create table millrace_batches in schema s; create it as its owner: CREATE" in found
    for command in found.partition("as its owner: ")[2].replace("`s`", f"`{database}`").strip(";").split("; "):
        server.execute(command)
    for right in ("INSERT", "UPDATE"):
        assert f"{denied}" in refusal(server, table, results, key, **login)
        server.execute(f"GRANT {right} ON {table} TO {user}")
    sink = open_sink(server, table, results, key, **login)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    sink.close()


def test_tls_verifies_the_server(own_server, results, tmp_path: Path):
    own_server.execute("CREATE TABLE results (cell longtext, since datetime(6), trips bigint, fare double)")
    right, wrong = certificate_for("127.0.0.1", tmp_path), certificate_for("other.example.org", tmp_path)
    own_server.use_tls(*right)
    for number, tls in enumerate(({"ca": {"file": str(right[0])}}, None)):
        sink = open_sink(own_server, "results", results, **({} if tls is None else {"tls": tls}))
        sink.prepare(LastBatch(number - 1, number - 1) if number else FRESH)
        assert write(sink, results, number) == 1
        assert sink._open is not None
        used = sink._open.execute("SHOW STATUS LIKE 'Ssl_version'").fetchall()
        assert used[0][1].startswith("TLS")
        sink.close()
    refused = "spec.sink.mysql.tls: MySQL at SERVER cannot be verified ("
    assert refusal(own_server, "results", results, tls={"ca": {"file": str(wrong[0])}}).startswith(refused)
    assert refusal(own_server, "results", results, tls={}).startswith(refused)
    own_server.use_tls(*wrong)
    found = refusal(own_server, "results", results, tls={"ca": {"file": str(wrong[0])}})
    assert found.startswith(refused)
    assert "127.0.0.1" in found
