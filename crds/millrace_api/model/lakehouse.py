"""Tables of a lakehouse: where they are, their key, their layout, and how they are maintained."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.values import ColumnName, PositiveDuration, WholeNumber, text

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


class LakehouseSinkSpec(Model):
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
    sort_by: tuple[ColumnName, ...] = Field(
        default=(), max_length=8, description="Columns that the rows of each file are sorted by.", examples=[["cell"]]
    )
    schema_evolution: SchemaEvolution = Field(
        default=SchemaEvolution.REFUSE,
        description="What happens to result columns that the table lacks when a run begins.",
    )
    maintenance: Maintenance = Field(
        default=Maintenance(), description="Compaction, and removal of files that no version needs."
    )


class DeltaTableSpec(Model):
    """Where a Delta table is."""

    path: TablePath = Field(
        description="Folder or s3a:// prefix of the table; a sink creates it if it does not exist.",
        examples=["s3a://lake/trips"],
    )

    @property
    def is_local(self) -> bool:
        """Whether the table is in a folder."""
        return not self.path.startswith(OBJECTS)


class DeltaSourceSpec(DeltaTableSpec):
    """Reads a Delta table as a static table, as of its latest version."""


class DeltaSinkSpec(LakehouseSinkSpec, DeltaTableSpec):
    """Appends to a Delta table, or replaces its rows by key; one commit per batch."""

    @property
    def first_file(self) -> str:
        """Path of a file with results, as its name begins."""
        return f"{self.path}/batch-0000000000-.parquet"
