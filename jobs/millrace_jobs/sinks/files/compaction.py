"""Compaction of a changelog in files: files of earlier batches become one, with the newest row of each key.

**Which files.** Files are in the order of their batches. They are merged from the first one on that is no larger than
all newer ones together. So what earlier compactions have left is larger than all that is newer: a table has few files,
of which the first has at most one row of each key, and a row is rewritten as often as the sizes double, not with every
compaction.

**What a reader can see.** Rows keep the number of their batch, by which a reader takes the newest of each key. The
merged file replaces the newest of the files that it was made of, under its name and in one step; only then are the
others removed, the oldest first. In between, a row can be in two files, each time with the same values and the same
number. No row is missing at any time.

**Deleted rows.** The newest row of a key can say that it was deleted. It stays as long as an older file can have an
earlier row of the key, and goes when the oldest file, to which it has come by then, is merged again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import BATCH_ID
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, named, quoted
from millrace_jobs.sinks.files.changelog import DELETE, OPERATION

FOLDER = "millrace_folder"
"""Column with the number of the folder that a row is in."""

OLDEST = "millrace_oldest"
"""Boolean column that is true for rows to which no older file can have an earlier row of the same key."""

LINE = "millrace_line"
"""Column with the text of a record of JSON, which stays as it is."""

_ROW, _PARSED, _OF_ROW = "millrace_row", "millrace_parsed", "millrace_operation"

MOST_FOLDERS = 32
"""Folders of partitions that are compacted after one batch; others are, after the next ones."""

_EARLIEST = 10
"""The close of a window is followed by a compaction after this fraction of the batches between two."""


@dataclass(frozen=True)
class Merge:
    """Files of a folder that become one: their names in the order of their batches, and whether the oldest is first."""

    folder: str
    names: tuple[str, ...]
    has_oldest: bool

    @property
    def target(self) -> str:
        """The name of the merged file."""
        return self.names[-1]

    @property
    def removed(self) -> tuple[str, ...]:
        """The names of the files that are removed, in this order, once there is a merged file."""
        return self.names[:-1]


def first_to_merge(sizes: Sequence[int]) -> int:
    """Return the place of the first file that is no larger than all newer ones together; the number of files if none.

    ``sizes`` are in the order of the files.
    """
    newer = [0, *accumulate(reversed(sizes))][-2::-1]
    return next((place for place, size in enumerate(sizes) if size <= newer[place]), len(sizes))


@dataclass
class CompactionPlan:
    """Which files of a changelog to merge, and when.

    Args:
        every: batches between two compactions; 0 for none.
        keys: the key of the rows. Once a window can have closed, whose rows are final, fewer batches are enough.
        partition_by: columns whose values name folders.
    """

    every: int
    keys: ResultKeys
    partition_by: Sequence[str] = ()
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    _due: list[Merge] = field(default_factory=list)
    _last: ResultBatch | None = None

    def begin(self, files: Iterable[tuple[str, str, int]]) -> None:
        """Begin with these files: the folder, the name and the size of each."""
        self._sizes, self._due = {}, []
        self.add(files)

    def add(self, files: Iterable[tuple[str, str, int]]) -> None:
        """Add files, in place of those that have the same names."""
        for folder, name, size in files:
            self._sizes.setdefault(folder, {})[name] = size

    def replace(self, merge: Merge, sizes: Mapping[str, int]) -> None:
        """Put merged files, with their sizes, in the place of those that they were made of."""
        files = self._sizes[merge.folder]
        for name in merge.names:
            files.pop(name, None)
        files.update(sizes)

    def due(self, batch: ResultBatch, first_name: str) -> list[Merge]:
        """Return what to merge after a batch, which is nothing after most batches.

        Files of the batch itself, from ``first_name`` on, are left out: Spark may run it again.
        """
        self._last = self._last or batch
        if self.every and self._is_time(batch, self._last):
            self._last = batch
            self._due = sorted(self._merges(first_name), key=lambda merge: len(merge.names))
        merges, self._due = self._due[-MOST_FOLDERS:], self._due[:-MOST_FOLDERS]
        return merges

    def _is_time(self, batch: ResultBatch, last: ResultBatch) -> bool:
        window = self.keys.window
        closed = window is not None and (batch.watermark - last.watermark) * 1000 >= window.size
        return (batch.number + 1) % self.every == 0 or (
            closed and (batch.number - last.number) * _EARLIEST >= self.every
        )

    def _merges(self, first_name: str) -> Iterable[Merge]:
        # files from before another partitionBy can have earlier rows of a key in folders that are not the key's own
        alike = all(columns_of(folder) == [*self.partition_by] for folder, sizes in self._sizes.items() if sizes)
        for folder, sizes in self._sizes.items():
            names = sorted(name for name in sizes if name < first_name)
            first = first_to_merge([sizes[name] for name in names])
            if len(names) - first > 1:
                yield Merge(folder, tuple(names[first:]), first == 0 and alike)


def columns_of(folder: str) -> list[str]:
    """Return the columns whose values the names of folders have, such as ``day`` in ``day=1``."""
    return [unquote(part.partition("=")[0]) for part in folder.split("/") if "=" in part]


def literal_path(path: str) -> str:
    """Return a path for Spark's readers, which take it for a pattern otherwise."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def newest_rows(rows: DataFrame, schema: StructType, key: Sequence[str], format: FileFormat) -> DataFrame:
    """Return of each folder the newest row of each key, without deleted rows that are ``OLDEST``.

    Args:
        rows: the rows of files, with ``FOLDER`` and ``OLDEST``: as their columns if the format is Parquet, as columns
            of text if it is CSV, and as ``LINE`` if it is JSON.
        schema: the columns of the files, with their types.
        key: those that are the key within a folder.
        format: the format of the files.

    Raises:
        ValueError: numbers within a column of the key cannot be compared by the text that JSON has of them.
    """
    if format is FileFormat.JSON and (nested := [name for name in key if _has_fractions(schema[name].dataType)]):
        raise ValueError(f"{', '.join(nested)} cannot be compared in JSON")
    kinds = {name: StringType() if format is not FileFormat.PARQUET else schema[name].dataType for name in key}
    # numbers have one text each, but for zero, which has two
    kinds |= {name: DoubleType() for name in key if isinstance(schema[name].dataType, FloatType | DoubleType)}
    # from_json makes text of a number with a fraction through a double
    kinds |= {name: schema[name].dataType for name in key if isinstance(schema[name].dataType, DecimalType)}
    columns, at = rows.columns, named
    if format is FileFormat.JSON:
        read = StructType()
        for name, kind in kinds.items():
            read = read.add(name, kind)
        read = read.add(OPERATION, StringType()).add(BATCH_ID, LongType())
        rows = rows.withColumn(_PARSED, F.from_json(named(LINE), read))
        at = _parsed
    no_number = F.raise_error(F.lit("a row of the changelog has no number of its batch")).cast("bigint")
    row = F.struct(*map(named, columns), at(OPERATION).alias(_OF_ROW))
    by_key = (at(name).cast(kind).alias(f"millrace_key_{place}") for place, (name, kind) in enumerate(kinds.items()))
    newest = rows.groupBy(named(FOLDER), *by_key).agg(
        F.max_by(row, F.coalesce(at(BATCH_ID).cast("bigint"), no_number)).alias(_ROW)
    )
    is_gone = F.col(f"{_ROW}.{OLDEST}") & F.col(f"{_ROW}.{_OF_ROW}").eqNullSafe(DELETE)
    return newest.where(~is_gone).select(*(F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in columns))


def _has_fractions(kind: DataType) -> bool:
    """Return whether values of a nested type can contain numbers with fractions."""
    match kind:
        case ArrayType():
            parts: list[DataType] = [kind.elementType]
        case MapType():
            parts = [kind.keyType, kind.valueType]
        case StructType():
            parts = [field.dataType for field in kind]
        case _:
            return False
    return any(isinstance(part, DecimalType | FloatType | DoubleType) or _has_fractions(part) for part in parts)


def _parsed(name: str) -> Column:
    return F.col(f"{_PARSED}.{quoted(name)}")
