"""A deadlock with another session."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from databases.sinks import FRESH, open_sink, rows, write
from lab.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def test_a_deadlock_costs_another_attempt_only(spark, server, make_table):
    table = make_table("k text PRIMARY KEY, n bigint")
    server.execute(f"INSERT INTO {table} VALUES ('a', 0), ('b', 0)")
    results = spark.createDataFrame([("a", 1), ("b", 1)], "k STRING, n BIGINT")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    written: list[Any] = []
    with server.connect() as other:
        other.execute("SET deadlock_timeout = '10s'")  # the sink's session finds the deadlock
        other.execute("BEGIN")
        other.execute(f"UPDATE {table} SET n = 5 WHERE k = 'b'")
        thread = threading.Thread(target=lambda: written.append(write(sink, results, 0)))
        thread.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'millrace' AND wait_event_type = 'Lock'"
        wait_until(lambda: bool(server.execute(waits)), "the sink waits for the other transaction")
        other.execute(f"UPDATE {table} SET n = 5 WHERE k = 'a'")
        other.execute("COMMIT")
    thread.join()
    assert written == [2]
    assert rows(server, table) == [("a", 1), ("b", 1)]
    sink.close()
