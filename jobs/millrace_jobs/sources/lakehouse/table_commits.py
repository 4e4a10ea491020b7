"""The commits of a table as a source sees them: in which order they are, and which files each has added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import Position
from millrace_jobs.sources.lakehouse.data_files import AddedFile
from millrace_jobs.sources.lakehouse.table_columns import FieldKeys

BYTES_PER_RECORD = 100
"""Size of a record in a file of which the table does not say how many it has: an estimate, for the backlog only."""


@dataclass(frozen=True)
class TablePosition:
    """How far a table was read: all commits before this one, and the first ``files`` files of it."""

    commit: int | None  # version of a Delta table, or id of an Iceberg snapshot; None before the first one
    files: int = 0  # the number of its files that were read
    is_whole: bool = False  # whether its files are all that the table had at this commit, and not those that it added
    is_done: bool = False  # whether all of its files were read. Then the table may have forgotten the commit
    # number of the commit among all commits, where the table counts them apart from their ids
    sequence: int | None = None
    # the latest time of the commits so far, in ms since 1970, where records have the time of their commit
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


def not_only_added(source: str, commit: str, operations: Sequence[str | None], field: str) -> MillraceError:
    """Return the error for a commit that changes or removes rows; ``operations`` may have the table's word for that."""
    did = f", {operations[0]}," if operations and operations[0] else ""
    message = f"source {source}: {commit}{did} changes or removes rows, not only adds some"
    hint = "write otherCommits: Skip to leave such commits out as a whole, or read a table that only grows"
    return MillraceError(Problem(message, hint, field=f"{field}.otherCommits"))


class TableCommits(Protocol):
    """The commits of a table that are known, on the driver. Methods raise MillraceError for what cannot be read."""

    table_id: str
    """The identity of the table, which another table at the same place does not have."""
    schema: pa.Schema
    """The columns of the table."""

    def refresh(self) -> None:
        """Look for new commits, and check that the table can still be read."""

    def start(self) -> TablePosition:
        """Return where a new query starts."""

    def keys(self, declared: pa.Schema) -> FieldKeys:
        """Return by what the files know the declared columns."""

    def following(self, at: TablePosition) -> TablePosition | None:
        """Return the beginning of the next commit; None if no newer one is known."""

    def behind(self, at: TablePosition) -> int:
        """Return the number of known commits after that of a position."""

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files that a commit has added, or those with its changes, always in the same order.

        Of the changes of a commit, all that delete rows are before those that set rows.
        """

    def existing(self, commit: int) -> Sequence[AddedFile]:
        """Return all files that the table has at a commit, always in the same order."""

    def deleted(self, commit: int, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return which rows of these files are deleted at a commit, as ``DeletedRows`` reads it."""
