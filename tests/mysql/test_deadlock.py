"""A deadlock with another session."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from databases.sinks import FRESH, open_sink, rows, write
from lab.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.mysql]


def test_a_deadlock_costs_another_attempt_only(spark, server, make_table):
    table = make_table("k {text} PRIMARY KEY, n bigint")
    others = ", ".join(f"('k{number}', 0)" for number in range(50))
    server.execute(f"INSERT INTO {table} VALUES ('a', 0), ('b', 0), {others}")
    results = spark.createDataFrame([("a", 1), ("b", 1)], "k STRING, n BIGINT")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    written: list[Any] = []
    with server.connect() as connection, connection.cursor() as other:
        other.execute("BEGIN")
        # the server ends the transaction that has written less, which is the sink's
        other.execute(f"UPDATE {table} SET n = 5 WHERE k <> 'a'")
        thread = threading.Thread(target=lambda: written.append(write(sink, results, 0)))
        thread.start()
        waits = "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
        wait_until(lambda: bool(server.execute(waits)), "the sink waits for the other transaction")
        other.execute(f"UPDATE {table} SET n = 5 WHERE k = 'a'")
        other.execute("COMMIT")
    thread.join()
    assert written == [2]
    found = rows(server, table)
    assert found[:2] == [("a", 1), ("b", 1)]
    assert [n for _, n in found[2:]] == [5] * 50
    sink.close()
