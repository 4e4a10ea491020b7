"""Why a sink refuses a table, for tests of each kind of database, which import the fixtures, too."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.databases import connection

from .sinks import FRESH, Server, open_sink


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a server that is away."""
    monkeypatch.setattr(connection, "PATIENCE", 0.5)


@pytest.fixture
def results(spark: SparkSession) -> DataFrame:
    """A row of results."""
    return spark.sql("SELECT 'a' AS cell, TIMESTAMP'2024-01-01' AS since, 1L AS trips, 0.5D AS fare")


def refusal(server: Server, table: str, results: DataFrame, key: tuple[str, ...] = (), **fields: Any) -> str:
    """Return why a table is refused; the refusal does not pass by itself."""
    sink = open_sink(server, table, results, key, **fields)
    with pytest.raises(MillraceError) as raised:
        sink.prepare(FRESH)
    assert not isinstance(raised.value, TransientError)
    sink.withdraw()
    sink.close()
    return str(raised.value).replace(server.host, "SERVER").replace(table.split(".")[0], "s")
