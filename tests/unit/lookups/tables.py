"""Tables of look-ups: their keys as Spark writes them, a store with rows, and a server over it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.lookups.process import LookupProcess
from millrace_jobs.lookups.store import TableStore

CELL = (KeyColumn("cell", "string"),)
ROUTE = (KeyColumn("origin", "string"), KeyColumn("number", "bigint"))
WINDOWED = (
    KeyColumn("window", "struct<start:timestamp,end:timestamp>", "window", 600_000_000),
    KeyColumn("cell", "string"),
)


def text(**columns: Any) -> bytes:
    """A message key or a row as Spark writes it, for values whose JSON is the same in Python."""
    return json.dumps(columns, separators=(",", ":"), ensure_ascii=False).encode()


def filled(folder: Path, rows: Mapping[bytes, bytes], batch: int | None = 0) -> TableStore:
    store = TableStore(folder)
    store.load(list(rows.items()))
    store.publish(batch)
    return store


@contextmanager
def served(folder: Path, columns: Sequence[KeyColumn], query: str = "trips") -> Iterator[LookupProcess]:
    process = LookupProcess(folder, query, columns)
    try:
        process.wait()
        yield process
    finally:
        process.close()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()
