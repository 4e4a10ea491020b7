"""What a sink needs to know of a kind of database: its tables and types, its statements, and its errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.databases.connection import DatabaseConnection, Session
from millrace_jobs.sinks.base import TIMES_AS_TEXT

PART, ROW, REMOVED = "millrace_part", "millrace_row", "millrace_removed"
"""Columns of staged rows: the Spark partition they come from, their place in it, and whether their key is removed."""


@dataclass(frozen=True)
class ColumnType:
    """The types of a table's column that hold all values of a result's type.

    Args:
        name: the type for CREATE TABLE.
        accepted: names of all of them, as in ``TableColumn.base``.
        digits: digits before and after the point that a decimal column has to hold; None for other types.
        lossy: types that would change values, and what they do, as a relative clause.
    """

    name: str
    accepted: frozenset[str]
    digits: tuple[int, int] | None = None
    lossy: Mapping[str, str] = field(default_factory=dict)


class Obstacle(NamedTuple):
    """Why a column cannot be used: the end of a sentence about it, and the change of its table that helps."""

    what: str
    change: str


@dataclass(frozen=True)
class TableColumn:
    """A column of a table in the database.

    ``base`` is the name of its type without digits. ``digits`` are those before and after the point that it has; None
    without limits. ``staged`` is the type for a temporary table. The obstacles are to any values, and to a key.
    """

    name: str
    type: str
    base: str
    digits: tuple[int, int] | None
    not_null: bool
    has_default: bool
    generated: bool
    staged: str
    obstacle: Obstacle | None = None
    key_obstacle: Obstacle | None = None


@dataclass(frozen=True)
class FoundTable:
    """A table in the database; ``refusal`` says why no sink can write to it, and what to do instead."""

    schema: str
    name: str
    columns: Mapping[str, TableColumn]
    unique: Sequence[frozenset[str]]
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True)
class TargetTable:
    """A table that suits the results: its name, and its columns with their types, in the order of the result's."""

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


class Dialect(ABC):
    """A kind of database, with the connection to one of its servers."""

    error: ClassVar[type[Exception]]
    """Base of the client library's errors."""

    insert_if_missing: ClassVar[str]
    """Inserts a row, whose table and values are ``{rest}``, unless its key is there."""

    changed_type: ClassVar[str]
    without_null: ClassVar[str]
    """Parts of ALTER TABLE: give the column ``{name}`` the type ``{type}``, or make it NOT NULL."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self.connection = connection

    def check_login(self) -> None:
        """Log in once. Raises MillraceError if the server refuses that; a TransientError if it may pass."""
        try:
            self.connection.open().close()
        except self.error as error:
            raise self.problem(error, "logging in") from error

    @abstractmethod
    def problem(self, error: Exception, doing: str) -> MillraceError:
        """Return an error of the client library as a sentence; a TransientError if it may pass by itself."""

    @abstractmethod
    def is_conflict(self, error: Exception) -> bool:
        """Return whether a transaction has failed because of another one, so that it can be tried again."""

    @abstractmethod
    def is_denied(self, error: Exception) -> bool:
        """Return whether the user lacks a right."""

    @abstractmethod
    def is_there(self, error: Exception) -> bool:
        """Return whether a table could not be created because another session has just done so."""

    @abstractmethod
    def quoted(self, *names: str) -> str:
        """Return a name, or names joined by dots, for a statement without values."""

    @abstractmethod
    def literal(self, text: str) -> str:
        """Return a text for a statement."""

    def grantee(self, session: Session) -> str:
        """Return this session's user for GRANT."""
        return self.quoted(self.connection.user)

    @abstractmethod
    def column_type(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""

    @abstractmethod
    def find(self, session: Session, name: str) -> FoundTable | None:
        """Return the table with the name that the user wrote; None if there is none."""

    @abstractmethod
    def missing_rights(self, session: Session, table: FoundTable, wanted: Sequence[str]) -> list[str]:
        """Return which of these rights the user lacks on a table."""

    def definition(self, session: Session, name: str, kind: ColumnType, *, is_key: bool) -> str:
        """Return a column for CREATE TABLE."""
        return f"{self.quoted(name)} {kind.name}"

    @abstractmethod
    def batches(self, session: Session, table: str) -> tuple[bool, str]:
        """Return whether the table of batches beside ``table`` exists, and the command that creates it."""

    @abstractmethod
    def encoded(self, results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
        """Return the results as one column of texts, which tasks compute and ``Staging.fill`` takes.

        ``columns`` are all that are staged: those of the table, the mark, and PART.
        """

    @abstractmethod
    def staging(self, table: TargetTable, mark: str | None) -> Staging:
        """Return what stages the results for a table."""


class Staging(ABC):
    """The results of one batch in a temporary table of a session, from where they are merged into their table.

    The staged rows have the columns of the table, then a mark, which is ADMITTED, WEIGHT or none, and the number of the
    Spark partition that they come from. Together with their order in it, that is the order of the results, in which the
    last row of a key counts.
    """

    staged: ClassVar[str]
    """The temporary table, quoted."""

    def __init__(self, dialect: Dialect, table: TargetTable, mark: str | None = None) -> None:
        self.quoted, self.mark = dialect.quoted, mark
        self.table, self.columns, self.types = dialect.quoted(table.schema, table.name), table.columns, table.types
        self.key = table.key
        self.others = [self.quoted(name) for name in table.columns if name not in table.key]

    @abstractmethod
    def create(self, session: Session) -> None:
        """Create the temporary tables."""

    def empty(self, session: Session) -> None:
        """Remove the rows of the last batch."""
        session.execute(f"TRUNCATE TABLE {self.staged}")

    @abstractmethod
    def fill(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        """Write the encoded results into the temporary tables as they come; no transaction is open before the first."""

    def repeated_key(self, session: Session) -> tuple[Any, ...] | None:
        """Return a key that two rows have which a batch of weighted changes adds; None if there is none."""
        key = self.listed(self.key)
        again = f"SELECT {key} FROM ({self.net}) AS net WHERE {WEIGHT} > 0 GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
        found: tuple[Any, ...] | None = session.execute(again).fetchone()
        return found

    @abstractmethod
    def merge(self, session: Session) -> int:
        """Upsert and delete rows by key, or append without a key; return the number of rows that were written."""

    @property
    @abstractmethod
    def net(self) -> str:
        """Selects the staged rows with the sum of their weights, without rows whose weights cancel each other out."""

    @property
    def append(self) -> str:
        """Adds the staged rows to the table, in their order."""
        columns = self.listed(self.columns)
        return f"INSERT INTO {self.table} ({columns}) SELECT {columns} FROM {self.staged} ORDER BY {PART}, {ROW}"

    @property
    def latest(self) -> tuple[str, str, str]:
        """Where the last row of each key is found, by which condition it is removed, and in which order it is first."""
        if self.mark == WEIGHT:
            return f"({self.net}) AS net", f"{WEIGHT} < 0", f"{WEIGHT} DESC"
        return self.staged, "FALSE" if self.mark is None else f"NOT {self.mark}", f"{PART} DESC, {ROW} DESC"

    def listed(self, names: Sequence[str]) -> str:
        """Return names for a statement."""
        return ", ".join(map(self.quoted, names))


TEXTS = (T.StringType, T.CharType, T.VarcharType)
"""Types of texts."""

NESTED = (T.ArrayType, StructType, T.MapType)
"""Types whose values become JSON."""

JSON = {"ignoreNullFields": "false", "timeZone": "UTC", **TIMES_AS_TEXT}
"""Options of Spark by which they do."""

_DIGITS: Mapping[type[DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
"""Digits that the values of a type of integers have."""


@dataclass(frozen=True)
class ColumnTypes:
    """The column types of a database.

    Attributes:
        decimal: name of its decimals.
        integers: name of the smallest type that holds a type of integers.
        holds: digits of the integers that each of its types holds, by ``TableColumn.base``.
        others: what columns hold the types of results but for decimals and integers.
        most_scale: most digits after the point.
    """

    decimal: str
    integers: Mapping[type[DataType], str]
    holds: Mapping[str, int]
    others: tuple[tuple[tuple[type[DataType], ...], ColumnType], ...]
    most_scale: int = 38

    def of(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""
        if isinstance(kind, T.DecimalType):
            digits = (kind.precision - kind.scale, kind.scale)
            name = f"{self.decimal}({kind.precision},{kind.scale})"
            return ColumnType(name, frozenset({self.decimal}), digits) if kind.scale <= self.most_scale else None
        if (integers := _DIGITS.get(type(kind))) is not None:
            wide = {each for each, digits in self.holds.items() if digits >= integers}
            return ColumnType(self.integers[type(kind)], frozenset({*wide, self.decimal}), (integers, 0))
        return next((each for kinds, each in self.others if isinstance(kind, kinds)), None)


def texts(batch: pa.RecordBatch) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Return the texts of a batch of one column, without a copy, and where each of them ends.

    Arrow keeps strings one after another. NULL counts as an empty text.
    """
    column = batch.column(0)
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return memoryview(b""), np.zeros(len(column), np.int64)
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(column.type) else np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return memoryview(data)[int(ends[0]) : int(ends[-1])], ends[1:] - ends[0]
