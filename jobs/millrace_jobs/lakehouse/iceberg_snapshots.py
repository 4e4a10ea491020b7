"""What keeps a commit to an Iceberg table cheap when the table has thousands of snapshots.

With each look at a transaction, sixteen times for a commit, pyiceberg computes what the table becomes, and copies all
of its snapshots for that. Here it does so once for each change that is staged, and the copies have the same snapshots,
which nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class StagedTransaction(Transaction):
    """A transaction that computes what the table becomes once for each change that is staged."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._computed: tuple[tuple[TableUpdate, ...], TableMetadata] = (), table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with the changes so far."""
        if self._computed[0] is not self._updates:
            self._computed = self._updates, super().table_metadata
        return self._computed[1]


class _Shared(list[Any]):
    """Values that are never changed, so that a copy of the list has the same ones."""

    def __add__(self, more: Iterable[Any]) -> _Shared:
        return _Shared([*self, *more])

    def __deepcopy__(self, known: dict[int, Any]) -> _Shared:
        return _Shared(self)


def with_shared_snapshots(table: Table) -> Table:
    """Return a table whose snapshots are not copied with its metadata."""
    found = table.metadata
    lists = {"snapshots": _Shared(found.snapshots), "snapshot_log": _Shared(found.snapshot_log)}
    table.metadata = found.model_copy(update=lists)
    return table
