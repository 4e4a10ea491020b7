"""A connection that breaks at any step, servers that die or freeze, and other sessions: no batch is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame, SparkSession

from lab.mariadb import MariaDbServer
from lab.postgres import PostgresServer
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.databases import connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.databases import sink as sinks

from .sinks import FRESH, Server, open_sink, write

pytestmark = [pytest.mark.spark]

STEPS = {
    PostgresServer: [
        (b"TRUNCATE", 0),
        (b"statement_timeout = 0", 0),
        (b"COPY ", 0),
        (b"COMMIT", 0),  # of the results in the temporary table
        (b"FOR UPDATE", 0),
        (b"INSERT INTO", 0),
        (b"SET batch", 0),
        (b"COMMIT", 1),  # of the batch
    ],
    MariaDbServer: [
        (b"TRUNCATE", 0),
        (b"INSERT INTO `millrace_staged`", 0),
        (b"wait_timeout = 20", 0),
        (b"FOR UPDATE", 0),
        (b"`results`", 0),
        (b"SET batch", 0),
        (b"COMMIT", 0),
        (b"wait_timeout = 28800", 0),  # when it is committed
    ],
}


@contextmanager
def locked(server: Server, table: str) -> Iterator[None]:
    """Lock a table for others."""
    with server.connect() as other:
        if isinstance(server, MariaDbServer):
            other.cursor().execute(f"LOCK TABLES {table} WRITE")
        else:
            other.execute("BEGIN")
            other.execute(f"LOCK TABLE {table}")
        yield


@pytest.fixture
def results(spark: SparkSession) -> Callable[[int], DataFrame]:
    """Return a function that makes the results of a batch."""
    return lambda number: spark.range(number * 1000, number * 1000 + 500, 1, 2)


@pytest.mark.parametrize("answered", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("key", [["id"], []], ids=["upserted", "appended"])
def test_a_connection_that_breaks_at_any_step_loses_and_doubles_no_batch(
    server, make_table, results, key, place, answered
):
    step, before = STEPS[type(server)][place]
    table = make_table("id bigint PRIMARY KEY" if key else "id bigint")
    with server.proxied() as proxy:
        sink = open_sink(server, table, results(0), key, host=f"127.0.0.1:{proxy.port}")
        sink.prepare(FRESH)
        write(sink, results(0), 0)
        proxy.break_at(step, before=before, answered=answered)
        try:
            write(sink, results(1), 1)
        except TransientError:
            sink.prepare(LastBatch(1, 0))
            write(sink, results(1), 1)
        assert proxy.has_broken
        write(sink, results(2), 2)
        sink.close()
    expected = [(number * 1000 + each,) for number in range(3) for each in range(500)]
    assert sorted(server.execute(f"SELECT * FROM {table}")) == expected


def test_a_server_that_was_restarted_between_two_batches_costs_no_result(own_server, results):
    own_server.execute("CREATE TABLE results (id bigint)")
    sink = open_sink(own_server, "results", results(0))
    sink.prepare(FRESH)
    write(sink, results(0), 0)
    own_server.restart()
    assert write(sink, results(1), 1) == 500
    assert own_server.execute("SELECT count(*), count(DISTINCT id) FROM results") == [(1000, 1000)]
    sink.close()


def test_a_server_that_freezes_and_dies_is_a_transient_error(own_server, results, monkeypatch):
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)
    monkeypatch.setattr(connection, "_GRACE_SECONDS", 0.5)
    own_server.execute("CREATE TABLE results (id bigint)")
    sink = open_sink(own_server, "results", results(0))
    sink.prepare(FRESH)
    write(sink, results(0), 0)
    own_server.pause()
    with pytest.raises(TransientError, match="cannot be reached"):
        write(sink, results(1), 1)
    own_server.kill()
    with pytest.raises(TransientError, match="cannot be reached"):
        write(sink, results(1), 1)
    own_server.restart()
    sink.prepare(LastBatch(1, 0))
    assert write(sink, results(1), 1) == 500
    sink.close()


def test_a_frozen_driver_keeps_no_lock_from_the_next_one(server, make_table, results, monkeypatch):
    monkeypatch.setattr(connection, "IDLE_SECONDS", 1.0)
    table = make_table("id bigint PRIMARY KEY")
    old, new = (open_sink(server, table, results(0), ["id"]) for _ in range(2))
    old.prepare(FRESH)
    session, record = old._open, old._record
    assert session is not None
    assert record is not None
    session.transaction().__enter__()
    record.lock(session, ResultBatch(0, 1, 0))  # and then it says nothing more
    new.prepare(FRESH)
    assert write(new, results(0), 0) == 500
    with pytest.raises(MillraceError, match="another driver has taken over"):
        write(old, results(0), 0)
    old.close()
    new.close()


def test_a_table_that_another_session_locks_for_long_is_a_transient_error(server, make_table, results, monkeypatch):
    monkeypatch.setattr(connection, "LOCK_SECONDS", 1.0)
    monkeypatch.setattr(sinks, "_MERGES", 2)
    table = make_table("id bigint PRIMARY KEY")
    sink = open_sink(server, table, results(0), ["id"])
    sink.prepare(FRESH)
    said = r"has made this session wait for too long .*while writing batch 0"
    with locked(server, table), pytest.raises(TransientError, match=said):
        write(sink, results(0), 0)
    sink.prepare(LastBatch(0, None))
    assert write(sink, results(0), 0) == 500
    sink.close()


def test_a_table_that_was_changed_meanwhile_is_refused(server, make_table, results):
    table = make_table("id bigint PRIMARY KEY")
    sink = open_sink(server, table, results(0), ["id"])
    sink.prepare(FRESH)
    write(sink, results(0), 0)
    server.execute(f"ALTER TABLE {table} RENAME COLUMN id TO number")
    with pytest.raises(MillraceError, match=r"has another table than at the start .*start the query again") as raised:
        write(sink, results(1), 1)
    assert not isinstance(raised.value, TransientError)
    sink.close()


def test_a_new_session_that_cannot_stage_results_is_closed(server, make_table, results, monkeypatch):
    sink = open_sink(server, make_table("id bigint"), results(0))
    sink.prepare(FRESH)
    sink.close()
    opened = []

    def refused(self, session):
        opened.append(session)
        session.execute("SELECT * FROM nowhere.at_all")

    monkeypatch.setattr(type(sink._staging), "create", refused)
    with pytest.raises(MillraceError, match="while writing batch 0"):
        write(sink, results(0), 0)
    (session,) = opened
    with pytest.raises(sink._dialect.error):
        session.execute("SELECT 1")


def test_a_patient_start_outlasts_a_short_absence_of_the_server(own_server, results):
    own_server.execute("CREATE TABLE results (id bigint)")
    sink = open_sink(own_server, "results", results(0))
    own_server.kill()
    assert connection.PATIENCE > connection.LOCK_SECONDS > connection.IDLE_SECONDS
    with ThreadPoolExecutor(1) as drivers:
        preparing = drivers.submit(sink.prepare, FRESH)
        time.sleep(1.0)
        own_server.restart()  # by this thread: the server ends with the one that started it
        preparing.result()
    assert write(sink, results(0), 0) == 500
    sink.close()
