"""Reads of MySQL's tables that end before the table does: the rest of it is not read, and nothing else goes wrong."""

from __future__ import annotations

import pytest

from databases.tables import begin_to_read
from lab.mariadb import MariaDbServer
from lab.waiting import wait_until
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.sources import database_table
from millrace_jobs.sources.static_tables import TableLimits, static_table

pytestmark = [pytest.mark.mysql, pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")]

ROWS, ROW_BYTES = 200_000, 500
MANY = f"SELECT seq AS n, repeat('x', {ROW_BYTES}) AS t FROM seq_1_to_{ROWS}"
COLUMNS = "n BIGINT, t STRING"


def sent(server: MariaDbServer) -> int:
    """Return the bytes that the server has sent in all, once it answers no read."""
    reads = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE info LIKE concat('%', 'seq_1_to_', {ROWS}, '%')"
    wait_until(lambda: not server.execute(reads), "the server ends the read")
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


def test_a_table_with_too_many_rows_is_not_read_to_its_end(server: MariaDbServer) -> None:
    before = sent(server)
    schema, records = begin_to_read(server, COLUMNS, query=MANY)
    with pytest.raises(MillraceError, match="has more than 1,000 rows"):
        static_table("customers", records, schema, ["n"], TableLimits(rows=1_000, bytes=1 << 40))
    del records
    assert sent(server) - before < ROWS * ROW_BYTES // 3  # a block of text, and what the sockets hold


def test_a_read_that_is_abandoned_is_not_read_to_its_end(server: MariaDbServer) -> None:
    before = sent(server)
    _, records = begin_to_read(server, COLUMNS, query=MANY)
    assert next(records).num_rows < ROWS // 10
    records.close()  # type: ignore[attr-defined]
    assert sent(server) - before < ROWS * ROW_BYTES // 3


def test_a_server_that_dies_during_a_read_may_come_back(
    own_server: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_table, "_BLOCK_BYTES", 5_000)
    _, records = begin_to_read(own_server, COLUMNS, query=MANY)
    next(records)
    own_server.kill()
    with pytest.raises(TransientError, match="has broken the connection"):
        list(records)
