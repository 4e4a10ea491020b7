"""The commits of a table as a source sees them: in which order they are, and which files each has added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from millrace_jobs.sources.base import Position
from millrace_jobs.sources.lakehouse.deleted_rows import DeletionVector
from millrace_jobs.sources.lakehouse.table_columns import FieldKeys

BYTES_PER_RECORD = 100
"""Size of a record in a file of which the table does not say how many it has: an estimate, for the backlog only."""


@dataclass(frozen=True)
class FileChanges:
    """Which rows of a file are changes of a commit, and what they are.

    Args:
        deletes: whether each row deletes that of its key; else it sets it.
        is_typed: whether the file itself says of what kind each row is. Rows of the other kind are left out.
        only: if given, rows that it does not mark are left out.
        without: the rows that it marks are left out.
    """

    deletes: bool
    is_typed: bool = False
    only: DeletionVector | None = None
    without: DeletionVector | None = None


@dataclass(frozen=True)
class AddedFile:
    """A data file of a table, or a file with changes of its rows.

    Args:
        path: absolute path or URI.
        size: its size in bytes as the table has it, at least 1, because slices are cut by it.
        records: the number of its records; an estimate where the table does not say it.
        written_ms: when it was written or committed, in ms since 1970.
        has_deleted_rows: whether some of its rows may be marked as deleted.
        values: the values of its partition as text, by the keys of columns (``FieldKeys``); None is NULL.
        changes: which of its rows are changes, if the source reads changes. Without it, each row sets that of its key.
    """

    path: str
    size: int
    records: int
    written_ms: int = 0
    has_deleted_rows: bool = False
    values: tuple[tuple[str, str | None], ...] = ()
    changes: FileChanges | None = None


@dataclass(frozen=True)
class TablePosition:
    """How far a table was read: all commits before this one, and the first ``files`` files of it.

    Args:
        commit: version of a Delta table, or id of an Iceberg snapshot; None before the first one.
        files: the number of its files that were read.
        is_whole: whether its files are all that the table had at this commit, and not those that it added.
        is_done: whether all of its files were read. Then the table may have forgotten the commit.
        sequence: number of the commit among all commits, where the table counts them apart from their ids.
        time_ms: the latest time of the commits so far, in ms since 1970, where records have the time of their commit.
    """

    commit: int | None
    files: int = 0
    is_whole: bool = False
    is_done: bool = False
    sequence: int | None = None
    time_ms: int | None = None

    @classmethod
    def of(cls, position: Position) -> Self:
        """Return the position that JSON stands for."""
        return cls(
            position["commit"],
            int(position["files"]),
            bool(position.get("whole")),
            bool(position.get("done")),
            position.get("sequence"),
            position.get("time"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON."""
        marks = {"whole": self.is_whole or None, "done": self.is_done or None}
        optional = marks | {"sequence": self.sequence, "time": self.time_ms}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"commit": self.commit, "files": self.files} | given

    @property
    def beginning(self) -> TablePosition:
        """What identifies the files of the commit."""
        return TablePosition(self.commit, is_whole=self.is_whole)


class TableCommits(Protocol):
    """The commits of a table that are known, on the driver. Methods raise MillraceError for what cannot be read."""

    table_id: str
    """The identity of the table, which another table at the same place does not have."""
    schema: pa.Schema
    """The columns of the table."""

    def refresh(self) -> None:
        """Look for new commits, and check that the table can still be read."""
        ...

    def start(self) -> TablePosition:
        """Return where a new query starts."""
        ...

    def keys(self, declared: pa.Schema) -> FieldKeys:
        """Return by what the files know the declared columns."""
        ...

    def following(self, at: TablePosition) -> TablePosition | None:
        """Return the beginning of the next commit; None if no newer one is known."""
        ...

    def behind(self, at: TablePosition) -> int:
        """Return the number of known commits after that of a position."""
        ...

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files that a commit has added, or those with its changes, always in the same order.

        Of the changes of a commit, all that delete rows are before those that set rows.
        """
        ...

    def existing(self, commit: int) -> Sequence[AddedFile]:
        """Return all files that the table has at a commit, always in the same order."""
        ...

    def deleted(self, commit: int, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return which rows of these files are deleted at a commit, as ``deleted_rows`` reads it."""
        ...
