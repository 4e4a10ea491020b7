"""Sources that are read as tables: their keys, and how a static table is read again."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.values import ByteSize, ColumnName, Count, Flag, PositiveDuration

WHOLE_TABLES: Final = ("postgres", "mysql", "delta", "iceberg")
"""Kinds of sources that are tables, which can be read as a whole."""

IS_WHOLE: Final = "(has(self.postgres) || has(self.mysql) || has(self.delta) || has(self.iceberg))"
"""CEL: a source is of such a kind."""

CHANGED_AT: Final = "_changed_at"
"""Column with the time of a change, of a source in Debezium's format, and of a lakehouse's table that changes."""


def _changes(kind: str, what: str) -> tuple[Rule, ...]:
    """Return what is true of tables of a kind whose changes are read."""
    return (
        Rule(
            f"the rows of {what} with keys change at the times of its commits",
            f"add watermark: {{column: {CHANGED_AT}, delay: 0s}}; or leave table out for a stream of added rows, or "
            "add static: true to it",
            (kind, "table", "watermark"),
            f"!has(self.{kind}) || !has(self.table) || self.table.static || (has(self.watermark) && "
            f"self.watermark.column == '{CHANGED_AT}')",
            lambda s: (
                getattr(s, kind) is None
                or not s.is_evolving
                or (s.watermark is not None and s.watermark.column == CHANGED_AT)
            ),
        ),
        Rule(
            f"the rows of {what} with keys have all changes, and leave no commit out",
            "leave otherCommits out",
            (kind, "table"),
            f"!has(self.{kind}) || !has(self.{kind}.otherCommits) || !has(self.table) || self.table.static",
            lambda s: getattr(s, kind) is None or not s.is_evolving or getattr(s, kind).other_commits is None,
        ),
    )


def _static_only(kind: str) -> Rule:
    return Rule(
        "a table of a database is read as a static table",
        "add table: {keys: [...], static: true}, and refreshEvery: 5m in it to read it again",
        (kind, "table"),
        f"!has(self.{kind}) || (has(self.table) && self.table.static)",
        lambda s: getattr(s, kind) is None or s.is_static,
    )


def _with_schema(kind: str) -> Rule:
    return Rule(
        f"schema is missing: which columns of the {kind} table are read",
        "write the columns and their types, such as schema: city STRING, fare DOUBLE, at TIMESTAMP",
        (kind,),
        f"!has(self.{kind}) || has(self.schema)",
        lambda s: getattr(s, kind) is None or s.ddl is not None,
    )


STATIC_TABLE_RULES: Final = (
    Rule(
        "a static table is read from files, a database or a lakehouse, all at once and without event time",
        "write files: {path: ...} without maxFilesPerBatch and watermark, or leave static out",
        ("table",),
        "!has(self.table) || !self.table.static || (!has(self.watermark) && "
        f"({IS_WHOLE} || (has(self.files) && !has(self.files.maxFilesPerBatch))))",
        lambda s: (
            not s.is_static
            or (s.watermark is None and (s.is_whole or (s.files is not None and not s.files.max_files_per_batch)))
        ),
    ),
    *(_static_only(kind) for kind in ("postgres", "mysql")),
    Rule(
        "a static table has all rows of a table of a lakehouse, and is no stream that starts somewhere",
        "leave startFrom, startingVersion, startingSnapshot, otherCommits and maxFilesPerBatch out",
        ("delta", "iceberg", "table"),
        None,
        lambda s: s.lakehouse is None or not s.is_static or not s.lakehouse.streams,
    ),
    *_changes("delta", "a Delta table"),
    *_changes("iceberg", "an Iceberg table"),
    *(_with_schema(kind) for kind in WHOLE_TABLES),
)
"""What is true of sources that are tables."""

_SHORTEST_REFRESH = 1_000_000
"""Shortest time between two reads of a table, in microseconds."""


class TableSpec(Model):
    """A table: each record sets the row of its key from its event time on; static, each record is a row."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "refreshEvery, maxRows and maxSize are for static tables, which are read as a whole",
            "add static: true, or leave them out",
            ("refresh_every", "max_rows", "max_size"),
            "(has(self.static) && self.static) || !(has(self.refreshEvery) || has(self.maxRows) || has(self.maxSize))",
            lambda table: table.static or (table.refresh_every, table.max_rows, table.max_size) == (None, None, None),
        ),
        Rule(
            "refreshEvery is shorter than a second",
            "write 1s or more",
            ("refresh_every",),
            None,
            lambda table: table.refresh_every is None or table.refresh_every.microseconds >= _SHORTEST_REFRESH,
        ),
    )

    keys: tuple[ColumnName, ...] = Field(
        min_length=1, max_length=32, description="Primary key of the table.", examples=[["symbol"]]
    )
    static: Flag = Field(
        default=False,
        description="Read all of it when the query starts, as a table without versions: what changes later counts "
        "from the next start, or the next refresh. Two rows with one key are an error, and a row with NULL in its key "
        "is left out.",
    )
    refresh_every: PositiveDuration | None = Field(
        default=None,
        description="How often a static table is read again while the query runs; default: never. A batch has the "
        "newest content that was read before it began, also if it is repeated.",
        examples=["5m"],
    )
    max_rows: Count | None = Field(
        default=None,
        description="Maximum number of rows of a static table that is refreshed, or read from a database or a "
        "lakehouse; a larger one is an error. Default: 1000000.",
    )
    max_size: ByteSize | None = Field(
        default=None,
        description="Maximum size of these rows in memory; a larger one is an error. Default: 256m.",
        examples=["64m"],
    )

    @property
    def most_rows(self) -> int:
        """The maximum number of rows."""
        return self.max_rows or 1_000_000

    @property
    def most_bytes(self) -> int:
        """The maximum size of the rows in memory, in bytes."""
        return (self.max_size or ByteSize("256m")).bytes
