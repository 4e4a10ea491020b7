"""A Hive metastore as a catalog of Iceberg tables.

A commit takes the lock of the table, compares the table with what the writer has looked at, and changes it. The lock
alone does not keep writers apart, because the metastore gives it to another one if its holder stands still for too
long. So each change is sent after a look at whether the lock is still held, and names the metadata that it replaces: a
metastore with HIVE-26882, such as 4.0.1, itself refuses it if the table has others by then.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    AlreadyExistsException,
    CheckLockRequest,
    EnvironmentContext,
    GetTableRequest,
    LockRequest,
    LockResponse,
    MetaException,
    NoSuchLockException,
    NoSuchObjectException,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import PROP_METADATA_LOCATION, PROP_PREVIOUS_METADATA_LOCATION, HiveCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from millrace_jobs.lakehouse.errors import MetastoreError
from millrace_jobs.lakehouse.iceberg_catalog import ANSWER_SECONDS, CONNECT_SECONDS, with_shared_snapshots

logging.getLogger("thrift").addHandler(logging.NullHandler())  # what it would print is in its errors

_LOCKS = {"lock-check-max-wait-time": "0.2", "lock-check-retries": "50"}
"""How long a commit waits for the lock of a table: 10 s, and not twice as long after each look, as by default."""


class HiveMetastore(HiveCatalog):
    """A catalog in a metastore, which is asked by a connection of its own each time."""

    def __init__(self, uri: str, **properties: str) -> None:
        super().__init__("hive", uri=uri, **_LOCKS, **properties)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> Any:
        return _Connections(properties["uri"])

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the newest version of a table."""
        return with_shared_snapshots(super().load_table(identifier))


class _Connections:
    """Opens a connection for each ``with`` block; of several threads, one after the other."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._busy = threading.Lock()
        self._transport: Any = None

    def __enter__(self) -> _Calls:
        server = urlsplit(self._uri)
        self._busy.acquire()
        try:
            socket = TSocket(server.hostname, server.port)
            socket.setTimeout(CONNECT_SECONDS * 1000)
            self._transport = TBufferedTransport(socket)
            self._transport.open()
            socket.setTimeout(ANSWER_SECONDS * 1000)
        except (TException, OSError) as error:
            self._busy.release()
            raise MetastoreError(_said(error)) from error
        return _Calls(TBinaryProtocol(self._transport))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._transport.close()
        self._busy.release()
        if isinstance(error, AlreadyExistsException | NoSuchObjectException):
            return  # the library has better ones for them
        if isinstance(error, TException | TimeoutError | ConnectionError):
            raise MetastoreError(_said(error)) from error


class _Calls(Client):  # type: ignore[misc]  # generated without types
    """What the library calls of a metastore."""

    _locked: int | None = None

    def get_table(self, dbname: str, tbl_name: str) -> HiveTable:
        """Return a table, by the call that all versions have: Hive 4 has no other one."""
        return self.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def lock(self, rqst: LockRequest) -> LockResponse:
        answer = super().lock(rqst)
        self._locked = answer.lockid
        return answer

    def unlock(self, rqst: UnlockRequest) -> None:
        """Give the lock back, unless it has expired."""
        with suppress(NoSuchLockException):
            super().unlock(rqst)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        """Replace a table, if the lock is held, and the table has the metadata that the new ones follow.

        Raises CommitFailedException if another writer may have been faster.
        """
        before = new_tbl.parameters[PROP_PREVIOUS_METADATA_LOCATION]
        environment_context.properties |= {
            "expected_parameter_key": PROP_METADATA_LOCATION,
            "expected_parameter_value": before,
        }
        try:
            self.check_lock(CheckLockRequest(lockid=self._locked))
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except NoSuchLockException as error:
            raise CommitFailedException(f"the lock of the table has expired: {_said(error)}") from error
        except MetaException as error:
            if "has been modified" in _said(error):
                raise CommitFailedException(_said(error)) from error
            raise


def _said(error: BaseException) -> str:
    """Return what an error of a metastore or of its connection says."""
    return str(getattr(error, "message", None) or error) or type(error).__name__
