"""The commits of a table as a source sees them: in which order they are, and which files each has added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from millrace_jobs.sources.base import Position
from millrace_jobs.sources.lakehouse.field_keys import FieldKeys

BYTES_PER_RECORD = 100
"""Size of a record in a file of which the table does not say how many it has: an estimate, for the backlog only."""


@dataclass(frozen=True)
class AddedFile:
    """A data file of a table.

    Args:
        path: absolute path or URI.
        size: its size in bytes as the table has it, at least 1, because slices are cut by it.
        records: the number of its records; an estimate where the table does not say it.
        written_ms: when it was written or committed, in ms since 1970.
        has_deleted_rows: whether some of its rows may be marked as deleted.
        values: the values of its partition as text, by the keys of columns (``FieldKeys``); None is NULL.
    """

    path: str
    size: int
    records: int
    written_ms: int = 0
    has_deleted_rows: bool = False
    values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class TablePosition:
    """How far a table was read: all commits before this one, and the first ``files`` files of it.

    Args:
        commit: version of a Delta table, or id of an Iceberg snapshot; None before the first one.
        files: the number of its files that were read.
        is_whole: whether its files are all that the table had at this commit, and not those that it added.
        is_done: whether all of its files were read. Then the table may have forgotten the commit.
        sequence: number of the commit among all commits, where the table counts them apart from their ids.
    """

    commit: int | None
    files: int = 0
    is_whole: bool = False
    is_done: bool = False
    sequence: int | None = None

    @classmethod
    def of(cls, position: Position) -> Self:
        """Return the position that JSON stands for."""
        return cls(
            position["commit"],
            int(position["files"]),
            bool(position.get("whole")),
            bool(position.get("done")),
            position.get("sequence"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON."""
        optional = {"whole": self.is_whole or None, "done": self.is_done or None, "sequence": self.sequence}
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
        """Return the files that a commit has added to the table's rows, always in the same order."""
        ...

    def existing(self, commit: int) -> Sequence[AddedFile]:
        """Return all files that the table has at a commit, always in the same order."""
        ...

    def deleted(self, commit: int, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return which rows of these files are deleted at a commit, as ``deleted_rows`` reads it."""
        ...
