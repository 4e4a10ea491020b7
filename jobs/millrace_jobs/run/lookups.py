"""The look-ups of a run: the view of its result table, the process that serves it, and where other commands find that.

A run on this machine writes the URL into the file ``lookups.json`` of its checkpoint, for ``millrace get FILE``.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import lmdb

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.lookups import LookupsSpec
from millrace_api.model.secrets import SecretValue
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.lookups.process import LookupProcess
from millrace_jobs.lookups.service import ServiceSettings
from millrace_jobs.lookups.store import TableStore
from millrace_jobs.secrets import Secret
from millrace_jobs.sinks.connector import TABLE

_FILE = "lookups.json"

_log = logging.getLogger(__name__)


class TableLookups:
    """A view and its process, started when this object is made; the process starts while the run goes on.

    Args:
        folder: a folder on a local disk that has to exist, for rows that end with the run.
        query: name of the query.
        columns: columns of the table's key.
        port: port to listen on; 0 takes a free one.
        has_history: whether earlier versions of rows are kept.
        service: the service for other pods; None for none.
        copies: an existing folder in which the rows stay for a later run, and those of an earlier one have been
            checked; None for none. If they cannot be mapped into memory there, as in some folders of networks, they
            are in ``folder``.
    """

    def __init__(
        self,
        folder: Path,
        query: str,
        columns: Sequence[KeyColumn],
        port: int,
        *,
        has_history: bool = False,
        service: ServiceSettings | None = None,
        copies: Path | None = None,
    ) -> None:
        from millrace_jobs.sinks.kafka.table_view import REBUILDING, TableView  # only queries with a table need Kafka

        rows, store = _opened_store(folder, copies, has_history)
        self.key = tuple(column.name for column in columns)
        """Names of the columns of the table's key."""
        self._process = LookupProcess(rows, query, columns, port, service, REBUILDING)
        self._file: Path | None = None
        self.view = TableView(store, self._process.notify)

    def listen(self, query: StreamQuery) -> str:
        """Wait until look-ups of the query are answered, and return their URL.

        Raises:
            MillraceError: the port is taken.
        """
        self._process.wait()
        self._file = _file_of(query)
        with suppress(OSError):  # the URL is also shown, and a full disk is reported where it matters
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._content()), encoding="utf-8")
        return self._process.url

    def close(self) -> None:
        """End the process and the view; a second call does nothing."""
        self._process.close()
        self.view.close()
        with suppress(OSError, ValueError):
            if self._file is not None and json.loads(self._file.read_text(encoding="utf-8")) == self._content():
                self._file.unlink()
        self._file = None

    def _content(self) -> dict[str, object]:
        return {"url": self._process.url, "pid": os.getpid()}


def _opened_store(folder: Path, copies: Path | None, has_history: bool) -> tuple[Path, TableStore]:
    """Return the store, and the folder that it is in: that of copies if it can be used, else the other one."""
    if copies is not None:
        rows = copies / TABLE
        try:
            rows.mkdir(exist_ok=True)
            return rows, TableStore(rows, has_history, stays=True)
        except (lmdb.Error, OSError) as error:
            _log.warning("the rows for look-ups are in %s, since they cannot be in %s: %s", folder, rows, error)
            shutil.rmtree(rows, ignore_errors=True)
    rows = folder / TABLE
    rows.mkdir(exist_ok=True)
    return rows, TableStore(rows, has_history)


def service_settings(spec: LookupsSpec, host: str, port: int, folder: Path) -> ServiceSettings:
    """Return the settings of the service that a query asks for; ``folder`` takes what is in environment variables.

    Raises:
        MillraceError: a token, certificate or key cannot be read.
    """

    def file_of(what: str, name: str, value: SecretValue) -> str:
        """Return the file of a secret, which the server reads again when it changes."""
        content = Secret.of(what, value).resolve()
        if value.file is not None:
            return value.file
        place = folder / name
        place.touch(0o600)
        place.write_text(content, encoding="utf-8")
        return str(place)

    tokens = file_of("the file of tokens for look-ups", "tokens", spec.tokens)
    if spec.tls is None:
        return ServiceSettings(host, port, tokens)
    certificate = file_of("the certificate for look-ups", "tls.crt", spec.tls.certificate)
    return ServiceSettings(host, port, tokens, certificate, file_of("the key for look-ups", "tls.key", spec.tls.key))


def table_url(query: StreamQuery, file: Path) -> str:
    """Return the URL of the look-ups of a query that runs on this machine.

    Raises:
        MillraceError: the query has no table, or does not run here.
    """
    require_table(query)
    place = _file_of(query)
    try:
        return str(json.loads(place.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        hint = f"start it with millrace run {file}, or write the URL that its run shows as lookups"
        raise MillraceError(Problem(f"{query.name} does not run on this machine: there is no {place}", hint)) from None


def _file_of(query: StreamQuery) -> Path:
    """Return the file that has the URL: in the checkpoint, or in the folder of the default one if that is no folder."""
    root = checkpoint_root(query)
    return (root if isinstance(root, Path) else Path(".millrace", query.name)) / _FILE


def require_table(query: StreamQuery) -> None:
    """Check that results of a query can be looked up. Raises MillraceError if its sink is no table."""
    if query.spec.sink.table is None:
        kind = query.spec.sink.kind
        message = f"{query.name} has no result table to look rows up in: its results go to the sink {kind}"
        hint = "write spec.sink.table: {bootstrapServers: ..., topic: ...} with a compacted topic"
        raise MillraceError(Problem(message, hint, field=f"spec.sink.{kind}"))
    if query.spec.sink.table.by_partition:
        message = f"the table of {query.name} cannot be looked up, since tasks write it by partition"
        raise MillraceError(Problem(message, "write transaction: Batch", field="spec.sink.table.transaction"))
