"""Tables that are kept by the changes that a source reads, and Delta tables with a change data feed to read from."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from millrace_jobs.sources.base import DELETED, POSITION, Source

from .streamed import COLUMNS, next_rows, opened

FEED = {"delta.enableChangeDataFeed": "true"}
"""The property of a table with a change data feed."""

CHANGING = {"table": {"keys": ["id"]}, "watermark": {"column": "_changed_at", "delay": "0s"}}
"""What makes a source a table that changes."""


def changing(
    place: str, state: Path, columns: str = COLUMNS, *, keys: tuple[str, ...] = ("id",), **fields: Any
) -> Source:
    """Return a source with the changes of a Delta table."""
    return opened("delta", {"path": place} | fields, state, columns, **CHANGING | {"table": {"keys": list(keys)}})


class Kept:
    """The rows of a table by key, as the batches of a source leave them.

    Args:
        source: the source.
        at: its position, which follows the batches.
        keys: the key.
    """

    def __init__(self, source: Source, keys: tuple[str, ...] = ("id",), at: dict[str, Any] | None = None) -> None:
        self.source, self.keys = source, keys
        self.at = dict(source.initial()) if at is None else at
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.batches: list[list[dict[str, Any]]] = []

    def restart(self, source: Source) -> None:
        """Go on with another source, as after a crash: only the position is left."""
        self.source = pickle.loads(pickle.dumps(source))

    def take(self, replicas: int = 1, **how: Any) -> int:
        """Apply the next batch, and return its number of changes."""
        found = next_rows(self.source, self.at, replicas, **how)
        assert len({each[POSITION] for each in found}) == len(found), "each change has a position of its own"
        if found and self.batches:
            assert min(_times(found)) >= max(_times(self.batches[-1])), "times never decrease"
        for each in sorted(found, key=lambda each: each[POSITION]):
            key = tuple(each[name] for name in self.keys)
            self.rows.pop(key, None)
            if not each[DELETED]:
                hidden = ("_changed_at", "millrace_deleted", "millrace_estimated", "millrace_position")
                self.rows[key] = {name: value for name, value in each.items() if name not in hidden}
        if found:
            self.batches.append(found)
        return len(found)

    def take_all(self, replicas: int = 1, **how: Any) -> int:
        """Apply batches until there is nothing new, and return the number of changes."""
        total, before = self.take(replicas, **how), None
        while before != self.at:
            before = dict(self.at)
            total += self.take(replicas, **how)
        return total


def _times(found: list[dict[str, Any]]) -> list[Any]:
    return [each["_changed_at"] for each in found]


def rows_of(
    place: str, version: int | None = None, keys: tuple[str, ...] = ("id",)
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of a table by key, as the library reads them."""
    table = DeltaTable(place, version=version)
    rows = pa.table(table.to_pyarrow_table()).to_pylist()
    found = {tuple(row[name] for name in keys): row for row in rows}
    assert len(found) == len(rows)
    return found


def rows(numbers: dict[int, str | None]) -> pa.Table:
    """Return rows with these numbers and cities."""
    return pa.table({"id": pa.array(numbers, pa.int64()), "city": pa.array(numbers.values(), pa.string())})


def create(place: str, numbers: dict[int, str | None], *, by_city: bool = False) -> None:
    """Write a table with a change data feed."""
    write_deltalake(place, rows(numbers), configuration=FEED, partition_by=["city"] if by_city else None)


def append(place: str, numbers: dict[int, str | None], **how: Any) -> None:
    """Append rows to a table."""
    write_deltalake(place, rows(numbers), **{"mode": "append"} | how)


def merge(place: str, numbers: dict[int, str | None], *, deleted: tuple[int, ...] = ()) -> None:
    """Upsert rows, and delete others, in one commit."""
    given = rows(numbers | dict.fromkeys(deleted))
    given = given.append_column("gone", pa.array([number in deleted for number in given["id"].to_pylist()]))
    merger = DeltaTable(place).merge(given, "target.id = source.id", source_alias="source", target_alias="target")
    columns = {"id": "source.id", "city": "source.city"}
    merger = merger.when_matched_delete("source.gone").when_matched_update(columns)
    merger.when_not_matched_insert(columns, "NOT source.gone").execute()
