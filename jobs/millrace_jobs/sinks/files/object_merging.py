"""Merging objects of a changelog into one, in tasks; see ``files.compaction``.

An object has a maximum size, so that a store can copy it. If the rows of merged objects take several, the others get
names that come behind that of the one which is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import FilesSinkSpec, result_file
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sinks.base import named
from millrace_jobs.sinks.files.commit_record import Publication
from millrace_jobs.sinks.files.compaction import FOLDER, LINE, OLDEST, Merge, newest_rows
from millrace_jobs.sinks.files.folder_compaction import RESULT
from millrace_jobs.sinks.files.formats import csv_header, csv_options
from millrace_jobs.sinks.files.object_writing import PART, ObjectsWriter, WrittenObject, write_objects
from millrace_jobs.stores.objects import ObjectPath

_FIELD = "spec.sink.files"
_OBJECTS = "key STRING, folder INT, oldest BOOLEAN"
_MARKS = [pa.field(FOLDER, pa.int32()), pa.field(OLDEST, pa.bool_())]

_BLOCK_BYTES = 16 << 20
"""Bytes of CSV that are read at once, of which a record has fewer."""


def key_in(folder: str, name: str) -> str:
    """Return the key of a result in the folder of a partition, which is empty without partitions."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True)
class ObjectsReader:
    """Reads objects whose keys are rows; a function for Spark's ``mapInArrow``.

    Args:
        place: where the objects are.
        format: their format.
        schema: their columns: the types of Parquet; of CSV, texts; of JSON, only ``LINE``.
    """

    place: ObjectPath
    format: FileFormat
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all objects, with their folder and whether they are the oldest."""
        for batch in batches:
            for each in batch.to_pylist():
                path = self.place / each["key"]
                try:
                    for rows in self._rows(path):
                        marks = [pa.repeat(pa.scalar(each[name], kind.type), len(rows))
                                 for name, kind in zip(("folder", "oldest"), _MARKS, strict=True)]  # fmt: skip
                        yield pa.RecordBatch.from_arrays([*rows.columns, *marks], schema=with_marks(self.schema))
                except OSError as error:
                    raise lakehouse_error(error, f"reading {path}", _FIELD) from error

    def _rows(self, path: ObjectPath) -> Iterator[pa.RecordBatch]:
        if self.format is FileFormat.JSON:
            lines = path.read_bytes().decode().split("\n")
            yield pa.RecordBatch.from_arrays([pa.array(lines[:-1], pa.string())], schema=self.schema)
        elif self.format is FileFormat.CSV:
            parse = pc.ParseOptions(double_quote=True, newlines_in_values=True)
            convert = pc.ConvertOptions(
                column_types=self.schema,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            with path.open() as content:
                options = pc.ReadOptions(block_size=_BLOCK_BYTES)
                for rows in pc.open_csv(content, options, parse, convert):
                    yield self._checked(rows, path)
        else:
            with path.open() as content:
                for rows in pq.ParquetFile(content).iter_batches():
                    yield self._checked(rows, path)

    def _checked(self, rows: pa.RecordBatch, path: ObjectPath) -> pa.RecordBatch:
        if rows.schema.names != self.schema.names:
            names = ", ".join(rows.schema.names)
            raise ValueError(f"{path} has other columns than the result: {names}")
        return rows.cast(self.schema)


def with_marks(schema: pa.Schema) -> pa.Schema:
    """Return the columns of objects with those that say where a row was."""
    return pa.schema([*schema, *_MARKS])


@dataclass(frozen=True)
class ObjectMerging:
    """Merges objects of a changelog.

    Args:
        place: where they are.
        staged: where merged objects are written before they are published.
        spec: the sink.
        schema: the columns of the objects.
        parquet: the same as Parquet's types; None for another format.
    """

    place: ObjectPath
    staged: ObjectPath
    spec: FilesSinkSpec
    schema: StructType
    parquet: pa.Schema | None

    def merged(self, merges: Sequence[Merge], spark: SparkSession) -> tuple[Publication, dict[Merge, dict[str, int]]]:
        """Write merged objects; return how they are published, and the names and sizes that replace those of each."""
        key = [name for name in self.spec.key if name not in self.spec.partition_by]
        rows = newest_rows(self._rows(merges, spark), self.schema, key, self.spec.format)
        written: dict[int, list[WrittenObject]] = {}
        for each in write_objects(*self._prepared(rows)):
            written.setdefault(int(each.folder.rpartition("=")[2]), []).append(each)
        files: dict[str, str] = {}
        replacing: dict[str, str] = {}
        removed: list[str] = []
        sizes: dict[Merge, dict[str, int]] = {}
        for number, objects in written.items():
            merge = merges[number]
            names = list(self._names(merge, len(objects)))
            keys = {each.name: key_in(merge.folder, name) for each, name in zip(objects, names, strict=True)}
            replacing[objects[0].name] = keys.pop(objects[0].name)
            files |= keys
            removed += [key_in(merge.folder, name) for name in merge.removed]
            sizes[merge] = {name: each.size for each, name in zip(objects, names, strict=True)}
        return Publication(files, replacing, tuple(removed)), sizes

    def _names(self, merge: Merge, count: int) -> Iterator[str]:
        """Yield the names of merged objects: that of the newest one, and those behind it."""
        newest = RESULT.fullmatch(merge.target)
        assert newest is not None, "objects of batches are merged"
        yield from (result_file(int(newest[1]), int(newest[2]) + place, self.spec.format) for place in range(count))

    def _rows(self, merges: Sequence[Merge], spark: SparkSession) -> DataFrame:
        stays = set(self.spec.partition_by) <= set(self.spec.key)
        objects = [
            (key_in(merge.folder, name), number, stays and merge.has_oldest and place == 0)
            for number, merge in enumerate(merges)
            for place, name in enumerate(merge.names)
        ]
        reader = ObjectsReader(self.place, self.spec.format, self._read)
        tasks = min(len(objects), spark.sparkContext.defaultParallelism)
        keys = spark.createDataFrame(objects, _OBJECTS).repartition(tasks)
        return keys.mapInArrow(reader, from_arrow_schema(with_marks(self._read)))

    @property
    def _read(self) -> pa.Schema:
        """The columns of objects as they are read."""
        if self.parquet is not None:
            return self.parquet
        names = [LINE] if self.spec.format is FileFormat.JSON else self.schema.names
        return pa.schema([(name, pa.string()) for name in names])

    def _prepared(self, rows: DataFrame) -> tuple[DataFrame, ObjectsWriter]:
        names, header = self._read.names, b""
        columns = [named(name) for name in names]
        if self.spec.format is FileFormat.CSV:
            columns = [F.to_csv(F.struct(*columns), dict(csv_options(names))).alias(LINE)]
            header = csv_header(names)
        part = f"{PART}0"
        found = rows.repartition(named(FOLDER)).select(*columns, named(FOLDER).cast("string").alias(part))
        writer = ObjectsWriter(self.staged, (FOLDER,), self.parquet, header, _FIELD)
        return found.sortWithinPartitions(part), writer
