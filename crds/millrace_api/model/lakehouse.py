"""Tables of a lakehouse: where they are, their key, their layout, and how they are maintained."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, at_most_one
from millrace_api.model.changes import FREE, START
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.sink_kind import ResultFiles, SinkKind
from millrace_api.model.values import ColumnName, Count, PositiveDuration, WholeNumber, text

OBJECTS = "s3a://"
"""How the place of a table in an object store begins."""

TablePath = Annotated[
    str,
    *text(
        "[^\\n]+",
        2048,
        "a place of a table",
        "write a folder, or s3a:// with a bucket and a prefix, such as s3a://lake/trips",
    ),
]


class SchemaEvolution(StrEnum):
    """What happens to result columns that the table lacks when a run begins."""

    REFUSE = "Refuse"
    """The run ends."""
    ADD_COLUMNS = "AddColumns"
    """They are added to the table."""


class Maintenance(Model):
    """Keeps a table fast and small; the driver does it between two batches."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "retention is shorter than an hour, within which readers and other writers still use old files",
            "write 1h or more",
            ("retention",),
            None,
            lambda maintenance: maintenance.retention.microseconds >= 3_600_000_000,
        ),
    )

    compact_every: WholeNumber = Field(
        default=100,
        description="Batches after which small files are merged into larger ones, and old files removed; 0: never.",
        examples=[100],
    )
    retention: PositiveDuration = Field(
        default=PositiveDuration("7d"),
        description="How long files stay that the table's current version does not have, for readers of older ones; a "
        "table that keeps them for longer does so.",
        examples=["7d"],
    )


class LakehouseSinkSpec(SinkKind):
    """What the tables of all formats have."""

    key: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=32,
        description="Columns that identify a row: a result replaces the row with its key; default: none, and final "
        "results are appended.",
    )
    partition_by: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=8,
        description="Columns that a new table is partitioned by; a table that exists has to be partitioned by these.",
        examples=[["day"]],
    )
    sort_by: Annotated[tuple[ColumnName, ...], FREE] = Field(
        default=(), max_length=8, description="Columns that the rows of each file are sorted by.", examples=[["cell"]]
    )
    schema_evolution: Annotated[SchemaEvolution, FREE] = Field(
        default=SchemaEvolution.REFUSE,
        description="What happens to result columns that the table lacks when a run begins.",
    )
    maintenance: Annotated[Maintenance, FREE] = Field(
        default=Maintenance(), description="Compaction, and removal of files that no version needs."
    )


class DeltaTableSpec(Model):
    """Where a Delta table is."""

    path: Annotated[TablePath, External(ExternalKind.TABLES)] = Field(
        description="Folder or s3a:// prefix of the table; a sink creates it if it does not exist.",
        examples=["s3a://lake/trips"],
    )

    @property
    def is_local(self) -> bool:
        """Whether the table is in a folder."""
        return not self.path.startswith(OBJECTS)

    def is_table_of(self, other: DeltaTableSpec) -> bool:
        """Return whether both name the same table, as far as that is known without a file system."""
        return PurePosixPath(normpath(self.path)) == PurePosixPath(normpath(other.path))


class TableStart(StrEnum):
    """Where the first run on a table begins."""

    TABLE = "Table"
    """With the rows that the table has; those that are added later follow."""
    LATEST = "Latest"
    """Behind the rows that the table has."""


class OtherCommits(StrEnum):
    """What happens to commits that change or remove rows, which a stream of added rows cannot have."""

    REFUSE = "Refuse"
    """The query fails."""
    SKIP = "Skip"
    """They are left out as a whole, with the rows that they add."""


class LakehouseSourceSpec(Model):
    """What the sources of all formats of tables have: how the rows that are added are streamed."""

    start_from: Annotated[TableStart | None, START] = Field(
        default=None,
        description="Where a new query starts: with the rows that the table has then (Table, the default), or behind "
        "them (Latest).",
    )
    other_commits: Annotated[OtherCommits | None, FREE] = Field(
        default=None,
        description="What happens to a commit that changes or removes rows: the query fails (Refuse, the default), or "
        "the whole commit is left out (Skip). Compaction changes no rows, and is always left out.",
    )
    max_files_per_batch: Annotated[Count | None, FREE] = Field(
        default=None, description="Maximum number of data files per batch; default: all."
    )

    @property
    def streams(self) -> bool:
        """Whether a field is set that only a stream has."""
        return (self.start_from, self.other_commits, self.max_files_per_batch) != (None, None, None)


class DeltaSourceSpec(DeltaTableSpec, LakehouseSourceSpec):
    """Reads a Delta table and the rows that are added to it; or, as a table, its changes or its latest version."""

    rules: ClassVar[tuple[Rule, ...]] = (
        at_most_one("start_from", "starting_version", hint="keep one of them, or none to start with the whole table"),
    )

    starting_version: Annotated[WholeNumber | None, START] = Field(
        default=None,
        description="Version whose added rows, or changes, are the first ones that a new query reads.",
        examples=[12],
    )

    @property
    def streams(self) -> bool:
        """Whether a field is set that only a stream has."""
        return super().streams or self.starting_version is not None


class DeltaSinkSpec(LakehouseSinkSpec, DeltaTableSpec):
    """Appends to a Delta table, or replaces its rows by key; one commit per batch."""

    @property
    def result_files(self) -> ResultFiles:
        """The files of the table, of which the first is named as far as it is known."""
        return ResultFiles("path", self.path, f"{self.path}/batch-0000000000-.parquet")

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same table."""
        return isinstance(other, DeltaSinkSpec) and self.is_table_of(other)
