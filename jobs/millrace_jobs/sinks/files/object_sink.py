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

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import LongType, StructField, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import BATCH_ID, FilesSinkSpec, result_file
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sinks.base import TIMES_AS_TEXT, LastBatch, ResultBatch, ResultKeys, Sink, named
from millrace_jobs.sinks.files.changelog import MARKS, changelog
from millrace_jobs.sinks.files.commit_record import CommitRecord, Publication
from millrace_jobs.sinks.files.compaction import LINE, CompactionPlan
from millrace_jobs.sinks.files.folder_compaction import RESULT
from millrace_jobs.sinks.files.formats import (
    csv_columns,
    csv_header,
    csv_options,
    folder_texts,
    require_few_files,
    spread,
)
from millrace_jobs.sinks.files.object_merging import ObjectMerging, key_in
from millrace_jobs.sinks.files.object_writing import PART, ObjectsWriter, WrittenObject, write_objects
from millrace_jobs.sinks.lakehouse.columns import arrow_type
from millrace_jobs.sinks.sink_clock import SINK_CLOCK
from millrace_jobs.stores.objects import ObjectPath

_FIELD = "spec.sink.files"
_OWN = "_millrace"
_COPIES = 8
"""Copies that are asked for at once."""

_log = logging.getLogger(__name__)


class ObjectFilesSink(Sink):
    """A sink that adds each batch as objects of one format; ``updates`` adds the column ``_batch_id``.

    With ``keys``, the objects are the changelog of a table with this key; see ``files.changelog``. It is compacted as
    the spec says; see ``files.compaction``.
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
        self._plan = CompactionPlan(spec.compact_every, keys, spec.partition_by) if keys is not None else None

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
            with SINK_CLOCK.running():
                self._try(f"writing batch {batch.number} to", lambda: self._commit(batch.number, written))
        if self._plan is not None:
            self._compact(self._plan, batch, written, results.sparkSession)
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
        if self._plan is not None:
            self._plan.begin(self._listed())

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
        files = {each.name: key_in(each.folder, self._name(batch, number)) for number, each in enumerate(written)}
        self._record.write(batch, Publication(files))
        self._publish()

    def _compact(
        self, plan: CompactionPlan, batch: ResultBatch, written: Sequence[WrittenObject], spark: SparkSession
    ) -> None:
        """Add the objects of a batch to the plan, and merge those of earlier ones if it is time to.

        An error is logged: what is not compacted now, is the next time.
        """
        plan.add((each.folder, self._name(batch.number, number), each.size) for number, each in enumerate(written))
        merges = plan.due(batch, self._name(batch.number, 0))
        if not merges:
            return
        columns = [column for column in self._results if column.name not in self._spec.partition_by]
        schema = StructType([*columns, StructField(BATCH_ID, LongType())])
        parquet = self._parquet_schema() if self._spec.format is FileFormat.PARQUET else None
        merging = ObjectMerging(self._place, self._staged, self._spec, schema, parquet)
        try:
            publication, sizes = merging.merged(merges, spark)
            batch.require_lease()  # merging may have taken long
            self._record.write(max(self._record.batch, batch.number), publication)
            self._publish()
        except (OSError, ValueError, PySparkException, Py4JJavaError) as error:
            _log.warning("compacting the changelog in %s after batch %d: %s", self._place, batch.number, error)
            self._try("listing", lambda: plan.begin(self._listed()))
            return
        for merge, found in sizes.items():
            plan.replace(merge, found)

    def _listed(self) -> Iterator[tuple[str, str, int]]:
        """Yield the folder, the name and the size of each object with results."""
        for key, size in self._place.objects():
            folder, _, name = key.rpartition("/")
            if RESULT.fullmatch(name):
                yield folder, name, size

    def _name(self, batch: int, number: int) -> str:
        return result_file(batch, number, self._spec.format)

    def _publish(self) -> None:
        """Copy what is recorded to the names of results, remove what it replaces, and then the staged objects."""
        published = self._record.published
        if not published.files and not published.replacing:
            return

        def copy(one: ObjectPath, result: ObjectPath) -> None:
            with suppress(FileNotFoundError):  # one that is gone was copied by whoever removed it
                one.copy_to(result)

        with ThreadPoolExecutor(_COPIES) as pool:
            for files in (published.files, published.replacing):
                places = [self._place / result for result in files.values()]
                for _ in pool.map(copy, [self._staged / name for name in files], places):
                    pass  # raises what a copy has raised
        self._place.remove(published.removed)
        with suppress(OSError):  # what is left is removed at the next start
            self._staged.remove([*published.files, *published.replacing])

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
