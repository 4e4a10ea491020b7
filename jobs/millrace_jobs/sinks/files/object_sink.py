"""The sink that writes results as objects below a prefix of an object store, each batch exactly once.

Tasks write a batch's objects below ``_millrace``, under names that no reader takes for results. Each attempt of a task
writes objects under names of its own, and reports them as rows; Spark delivers the rows of one attempt per task only,
so objects of other attempts are never published. One conditional write of the record ``_millrace/commit.json`` then
decides that the batch is written, and by which objects. Only after it the store copies them to the names of results, by
itself: no byte of them passes through the driver. Whoever finds the record, this driver or the next one, can copy them
again, with the same outcome.

The record is replaced only if it still has the version that this driver wrote or took over. So of two drivers, also of
one that comes back after an hour in the middle of a batch, one writes a batch of each number.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import FilesSinkSpec, result_file
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sinks.base import NO_BATCH, TIMES_AS_TEXT, LastBatch, ResultBatch, ResultKeys, Sink, named
from millrace_jobs.sinks.files.changelog import BATCH_ID, MARKS, changelog
from millrace_jobs.sinks.files.formats import (
    csv_columns,
    csv_header,
    csv_options,
    folder_texts,
    partition_folder,
    require_few_files,
    spread,
)
from millrace_jobs.sinks.files.sink import RESULT
from millrace_jobs.sinks.lakehouse.columns import arrow_type
from millrace_jobs.sinks.lakehouse.data_files import RowGroups, split_rows
from millrace_jobs.stores.objects import ObjectPath, ObjectWriter

PART = "millrace_part_"
"""Beginning of the names of the columns with the texts of a row's partition, which are behind all others."""

LINE = "millrace_line"
"""Name of the only other column if lines of text are written."""

_REPORT = pa.schema([("name", pa.string()), ("folder", pa.string()), ("rows", pa.int64())])

_ROW_GROUP_BYTES = 32 << 20
"""Size of a row group in memory: rows are collected up to it, then compressed and written."""

_FILE_BYTES = 64 << 20
"""Size after which a task begins another object; a store copies as much within the time-out of a request."""

_FIELD = "spec.sink.files"
_OWN = "_millrace"
_COPIES = 8
"""Copies that are asked for at once."""

_ANOTHER_WRITER = Problem(
    "another driver has written to the sink's record of batches",
    "make sure that only one driver runs, then run the same command again: nothing is lost",
)


class WrittenObject(NamedTuple):
    """An object that a task has written: its name, the folder of its partition, and its number of rows."""

    name: str
    folder: str
    rows: int


@dataclass(frozen=True)
class ObjectsWriter:
    """Writes the rows of a task as objects; a function for Spark's ``mapInArrow``.

    Args:
        place: where the objects are written.
        partition_by: columns whose values name folders; rows come sorted by their texts.
        schema: columns of Parquet; None for lines of text.
        header: what each object of text begins with.
        spec_field: the field of the spec that describes the sink.
    """

    place: ObjectPath
    partition_by: tuple[str, ...]
    schema: pa.Schema | None
    header: bytes
    spec_field: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows, and yield a row for each object. Raises MillraceError if an object cannot be written."""
        try:
            yield from self._write(batches)
        except OSError as error:
            raise lakehouse_error(error, f"writing results to {self.place}", self.spec_field) from error

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [f"{PART}{number}" for number in range(len(self.partition_by))]
        opened: _OpenObject | None = None
        for batch in batches:
            for values, rows in split_rows(batch, parts):
                folder = partition_folder(self.partition_by, values)
                if opened is not None and (opened.folder != folder or opened.is_full):
                    yield opened.close()
                    opened = None
                if opened is None:
                    opened = self._open(folder)
                opened.add(rows.drop_columns(parts) if parts else rows)
        if opened is not None:
            yield opened.close()

    def _open(self, folder: str) -> _OpenObject:
        name = str(uuid.uuid4())
        output = (self.place / name).writer()
        if self.schema is None:
            return _OpenObject(name, folder, output, _Lines(output, self.header))
        options = {"compression": "snappy", "store_decimal_as_integer": True}
        rows = RowGroups(output, self.schema, _ROW_GROUP_BYTES, **options)
        return _OpenObject(name, folder, output, rows)


def write_objects(rows: DataFrame, writer: ObjectsWriter) -> list[WrittenObject]:
    """Write the rows in one job; return the objects of the attempts that count."""
    reported = rows.mapInArrow(writer, from_arrow_schema(_REPORT)).toArrow().to_pylist()
    return [WrittenObject(**each) for each in reported]


@dataclass
class _OpenObject:
    """An object that is being written; it does not exist before it is closed."""

    name: str
    folder: str
    output: ObjectWriter
    rows: _Lines | RowGroups
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.output.tell() >= _FILE_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows.add(rows)
        self.count += rows.num_rows

    def close(self) -> pa.RecordBatch:
        self.rows.close()
        self.output.close()
        report = {"name": self.name, "folder": self.folder, "rows": self.count}
        return pa.RecordBatch.from_pylist([report], _REPORT)


class _Lines:
    def __init__(self, output: ObjectWriter, header: bytes) -> None:
        self._output = output
        if header:
            output.write(header)

    def add(self, rows: pa.RecordBatch) -> None:
        lines = rows.column(LINE).to_pylist()
        if lines:
            self._output.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Do nothing: all lines were written."""


class ObjectFilesSink(Sink):
    """A sink that adds each batch as objects of one format; ``updates`` adds the column ``_batch_id``.

    With ``keys``, the objects are the changelog of a table with this key; see ``files.changelog``.
    """

    def __init__(
        self,
        spec: FilesSinkSpec,
        results: StructType,
        checkpoint_id: str,
        *,
        updates: bool,
        keys: ResultKeys | None = None,
    ) -> None:
        self._spec, self._updates, self._keys = spec, updates, keys
        self._results = results if keys is None else StructType([*results, *MARKS])
        self._place = ObjectPath.of(spec.path)
        self._staged = self._place / _OWN / "staged"
        self._record = CommitRecord(self._place / _OWN / "commit.json", checkpoint_id)

    @property
    def place(self) -> str:
        """Prefix of the results, with the pattern of their names."""
        return f"{self._place}/{'**/' if self._spec.partition_by else ''}*.{self._spec.format}"

    def prepare(self, last: LastBatch) -> None:
        """Take over the record of batches, complete the last one, and remove what earlier runs have staged.

        Raises MillraceError if the store cannot be used, or has results that do not match this checkpoint's state.
        """
        if self._spec.format is FileFormat.PARQUET:
            self._parquet_schema()
        self._try("opening", lambda: self._take(last))

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if the record does not have it yet; return the number of rows written."""
        if batch.number <= self._record.batch:
            results.write.format("noop").mode("overwrite").save()
            return 0
        if self._keys is not None:
            results = changelog(results, self._keys)
        if self._updates:
            results = results.withColumn(BATCH_ID, F.lit(batch.number).cast("bigint"))
        rows, writer = self._prepared(spread(results, self._spec.partition_by, self._spec.files_per_partition))
        written = write_objects(rows, writer)
        require_few_files(len(written), batch.number, _FIELD)
        if written:
            batch.require_lease()
            self._try(f"writing batch {batch.number} to", lambda: self._commit(batch.number, written))
        return sum(each.rows for each in written)

    def withdraw(self) -> None:
        """Remove the record, if this run created it."""
        if self._record.is_new:
            with suppress(OSError):
                self._record.remove()

    def _take(self, last: LastBatch) -> None:
        self._place.is_dir()  # says in the store's words why it cannot be used
        self._record.read()
        if self._record.tag is None:
            self._require_fresh(last)
        elif not self._record.is_ours:
            raise _not_ours(f"{self._place} belongs to another checkpoint")
        elif last.lacks(self._record.batch):
            has = f"has results up to batch {self._record.batch}, but the checkpoint knows of {last.newest}"
            raise _not_ours(f"{self._place} {has}", "restore the newest copy of the checkpoint, or write another path")
        self._record.take()
        self._publish()
        self._staged.remove_all()

    def _require_fresh(self, last: LastBatch) -> None:
        """Refuse results of which no record says whose they are, and a checkpoint that should have one."""
        if last.committed is not None and not last.elsewhere:
            message = f"{self._place} has no record of its batches"
            raise _not_ours(
                f"{message}, but the checkpoint has finished batch {last.committed}",
                f"restore {self._place}/{_OWN}, or write another path",
            )
        if any(RESULT.fullmatch(each.key.rpartition("/")[2]) for each in self._place.objects_after()):
            raise _not_ours(f"{self._place} has results of an earlier run, which began with another checkpoint")

    def _commit(self, batch: int, written: Iterable[WrittenObject]) -> None:
        files = {}
        for number, each in enumerate(written):
            result = result_file(batch, number, self._spec.format)
            files[each.name] = f"{each.folder}/{result}" if each.folder else result
        self._record.write(batch, files)
        self._publish()

    def _publish(self) -> None:
        """Copy the objects of the recorded batch to their names as results, and remove the staged ones."""
        staged = {self._staged / name: self._place / result for name, result in self._record.files.items()}
        if not staged:
            return

        def copy(one: ObjectPath, result: ObjectPath) -> None:
            with suppress(FileNotFoundError):  # one that is gone was copied by whoever removed it
                one.copy_to(result)

        with ThreadPoolExecutor(_COPIES) as pool:
            for _ in pool.map(copy, staged, staged.values()):
                pass  # raises what a copy has raised
        with suppress(OSError):  # what is left is removed at the next start
            self._staged.remove([each.name for each in staged])

    def _prepared(self, results: DataFrame) -> tuple[DataFrame, ObjectsWriter]:
        """Return the rows as tasks write them, and what writes them."""
        parts = [text.alias(f"{PART}{number}") for number, text in enumerate(folder_texts(self._spec.partition_by))]
        kept = [name for name in results.columns if name not in self._spec.partition_by]
        schema, header = None, b""
        if self._spec.format is FileFormat.PARQUET:
            schema = self._parquet_schema()
            columns = [named(name) for name in kept]
        elif self._spec.format is FileFormat.CSV:
            header = csv_header(kept)
            values = csv_columns(results, kept)
            columns = [F.to_csv(F.struct(*values), {**TIMES_AS_TEXT, **csv_options(kept)}).alias(LINE)]
        else:
            columns = [F.to_json(F.struct(*map(named, kept)), dict(TIMES_AS_TEXT)).alias(LINE)]
        found = results.select(*columns, *parts)
        if parts:
            found = found.sortWithinPartitions(*(f"{PART}{number}" for number in range(len(parts))))
        return found, ObjectsWriter(self._staged, self._spec.partition_by, schema, header, _FIELD)

    def _parquet_schema(self) -> pa.Schema:
        fields = []
        for column in self._results:
            kind = arrow_type(column.dataType)
            if kind is None:
                message = f"column {column.name} of type {column.dataType.simpleString()} cannot be written to s3a://"
                hint = f"cast it in the SELECT list, as in CAST({column.name} AS STRING) AS {column.name}"
                raise MillraceError(Problem(message, hint, field=f"{_FIELD}.format"))
            if column.name not in self._spec.partition_by:
                fields.append(pa.field(column.name, kind))
        return pa.schema([*fields, pa.field(BATCH_ID, pa.int64())] if self._updates else fields)

    def _try(self, doing: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            raise lakehouse_error(error, f"{doing} {self._place}", f"{_FIELD}.path") from error


def _not_ours(
    message: str, hint: str = "remove what is below it to start over, or write another path"
) -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{_FIELD}.path"))


class CommitRecord:
    """The number of the last batch, and its objects: staged names with their names as results.

    Each version has a mark of its own, so an answer that was lost does not leave it open who has written the record.
    """

    def __init__(self, path: ObjectPath, checkpoint_id: str) -> None:
        self._path, self._checkpoint = path, checkpoint_id
        self._owner = checkpoint_id
        self.tag: str | None = None
        """Version of the object; None before it exists."""
        self.is_new = False
        """Whether this run has created it."""
        self.batch = NO_BATCH
        """Number of the last batch."""
        self.files: Mapping[str, str] = {}
        """Names of its staged objects, each with the name as a result."""

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to this checkpoint."""
        return self._owner == self._checkpoint

    def read(self) -> None:
        """Read it, if it exists.

        Raises:
            MillraceError: it is not such a record.
            OSError: the store does not answer, or refuses.
        """
        try:
            content, self.tag = self._path.read_version()
        except FileNotFoundError:
            self.tag = None
            return
        try:
            document = json.loads(content)
            self._owner, self.batch = str(document["checkpoint"]), int(document["batch"])
            self.files = {str(name): str(result) for name, result in document["files"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"the sink's record of batches is damaged: {content[:100]!r}"
            raise MillraceError(Problem(message, "restore it, or write another path", str(self._path))) from error

    def take(self) -> None:
        """Write it again as it was read, after which no earlier driver can.

        Raises:
            MillraceError: another driver has written it in the meantime.
            OSError: the store does not answer, or refuses.
        """
        self.is_new = self.tag is None
        self._put(self.batch, self.files)

    def write(self, batch: int, files: Mapping[str, str]) -> None:
        """Record a batch. Raises the same errors as ``take``."""
        self._put(batch, files)
        self.batch, self.files = batch, files

    def remove(self) -> None:
        """Remove it, if it exists: the answer to an earlier attempt of this request may have been lost."""
        self._path.unlink(missing_ok=True)
        self.tag = None

    def _put(self, batch: int, files: Mapping[str, str]) -> None:
        document: dict[str, Any] = {"checkpoint": self._checkpoint, "mark": uuid.uuid4().hex, "batch": batch}
        content = json.dumps(document | {"files": dict(files)}).encode()
        tag = self._path.create(content) if self.tag is None else self._path.replace_version(content, self.tag)
        if tag is None:  # or the answer to an earlier attempt of this request was lost
            found, tag = self._path.read_version()
            if found != content:
                raise MillraceError(_ANOTHER_WRITER)
        self.tag = tag
