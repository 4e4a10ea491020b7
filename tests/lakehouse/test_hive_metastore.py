"""A Hive metastore as a catalog: locks that outlive their writers, commits that are cut off, and what it refuses."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, UnlockRequest
from hive_metastore.ttypes import Table as HiveTable
from thrift.transport.TTransport import TTransportException

from lab.ports import free_port
from lab.s3_server import BUCKET, S3Server
from millrace_api.errors import MillraceError, MissingInputError, TransientError
from millrace_jobs.lakehouse import iceberg_hive
from millrace_jobs.lakehouse.iceberg_catalog import open_catalog
from millrace_jobs.lakehouse.iceberg_hive import HiveMetastore, _Calls
from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergTarget

from .answers import answering
from .iceberg_commits import append, numbers, taken
from .iceberg_tables import iceberg_spec
from .streamed import opened

pytestmark = [pytest.mark.in_turn, pytest.mark.timeout(300)]

Fields = dict[str, Any]


@pytest.fixture
def hive(iceberg: Fields) -> Fields:
    return iceberg


only_hive = pytest.mark.parametrize("iceberg", ["hive"], indirect=True)


def metastore_of(fields: Fields) -> HiveMetastore:
    catalog = open_catalog(iceberg_spec(fields))
    assert isinstance(catalog, HiveMetastore)
    return catalog


def names(fields: Fields) -> tuple[str, str]:
    database, _, table = fields["table"].partition(".")
    return database, table


@only_hive
def test_the_lock_of_a_writer_that_is_gone_expires(hive: Fields) -> None:
    to = taken(hive)
    catalog = metastore_of(hive)
    with catalog._client as calls:
        calls.lock(catalog._create_lock_request(*names(hive)))
    append(to, 0)
    assert numbers(hive) == [0]


@only_hive
@pytest.mark.parametrize("looks", [True, False], ids=["it looks at the lock", "the metastore compares"])
def test_a_writer_that_stands_still_for_longer_than_its_lock_changes_nothing(
    hive: Fields, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """Its lock expires when it has compared the table, and before it changes that; another writer commits meanwhile."""
    old, between = taken(hive), list[IcebergTarget]()
    alter = _Calls.alter_table_with_environment_context

    def stand_still(self: _Calls, **change: Any) -> None:
        if not between:
            between.append(old)
            self.unlock(UnlockRequest(lockid=self._locked))
            between.append(taken(hive))
            append(between[1], 0)
            if not looks:
                self.check_lock = lambda rqst: None
        alter(self, **change)

    monkeypatch.setattr(_Calls, "alter_table_with_environment_context", stand_still)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, 0)
    append(between[1], 1)
    assert numbers(hive) == [0, 1]


@only_hive
def test_a_change_whose_answer_is_lost_is_found(hive: Fields, monkeypatch: pytest.MonkeyPatch) -> None:
    to, lost = taken(hive), list[bool]()
    alter = _Calls.alter_table_with_environment_context

    def lose(self: _Calls, **change: Any) -> None:
        alter(self, **change)
        if not lost:
            lost.append(True)
            self._iprot.trans.close()
            raise TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes")

    monkeypatch.setattr(_Calls, "alter_table_with_environment_context", lose)
    append(to, 0)
    append(to, 1)
    assert lost
    assert numbers(hive) == [0, 1]
    assert taken(hive, LastBatch(1, 1)).last == 1


@only_hive
def test_a_table_that_hive_has_is_no_iceberg_table(hive: Fields) -> None:
    catalog = metastore_of(hive)
    database, table = names(hive)
    catalog.create_namespace(database)
    place = StorageDescriptor([], None, serdeInfo=SerDeInfo(serializationLib="lazy"))
    with catalog._client as calls:
        calls.create_table(HiveTable(dbName=database, tableName=table, sd=place, parameters={}))
    with pytest.raises(MillraceError, match="the metastore has another kind of table under this name") as raised:
        taken(hive)
    assert not isinstance(raised.value, TransientError)
    assert "spec.sink.iceberg.table: " in str(raised.value)


@only_hive
def test_a_source_finds_no_table(hive: Fields, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"the catalog has no table a.*; create it, or correct the name"):
        opened("iceberg", hive, tmp_path)


@only_hive
def test_a_place_that_the_metastore_cannot_use_is_refused(
    hive: Fields, shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metastore of these tests has no client for S3."""
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    place = f"s3a://{BUCKET}/metastore/{hive['table']}"
    with pytest.raises(MillraceError, match="the metastore itself cannot use the place of the table") as raised:
        taken(hive | {"location": place})
    assert not isinstance(raised.value, TransientError)


def away(uri: str) -> str:
    with pytest.raises(TransientError) as raised:
        taken({"catalog": {"hive": {"uri": uri}}, "table": "a.b"})
    said = str(raised.value)
    assert "\n" not in said
    assert said.startswith(
        "spec.sink.iceberg.catalog: opening the table a.b failed, because the catalog does not answer"
    )
    return said


def test_a_metastore_that_is_away_or_something_else_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Could not connect to any of" in away(f"thrift://127.0.0.1:{free_port()}")
    with answering((200, "")) as (url, _):
        assert "asks for no login" in away(url.replace("http", "thrift"))
    monkeypatch.setattr(iceberg_hive, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away(f"thrift://127.0.0.1:{silent.getsockname()[1]}")
