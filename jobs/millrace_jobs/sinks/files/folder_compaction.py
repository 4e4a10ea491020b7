"""Compaction of a changelog in a folder; see ``files.compaction``.

The file ``_compaction`` is written before a merged file gets its name. It says up to which batch files were merged:
such a batch cannot be written again, as its files have rows of others, too. So the folder is refused to a checkpoint
that would do so. It also says what each merged file replaces, so that the next start removes what a crash has left,
once the merged file has its name: it is known by its inode.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StringType, StructType

from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import result_file
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import sync
from millrace_jobs.sinks.base import NO_BATCH, ResultBatch, ResultKeys, named
from millrace_jobs.sinks.files.compaction import FOLDER, LINE, OLDEST, CompactionPlan, Merge, literal_path, newest_rows
from millrace_jobs.sinks.files.formats import csv_options

RESULT = re.compile(r"batch-(\d+)-(\d+)\.\w+")
"""Names of files with results."""

UNMARKED = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""Option that suppresses Hadoop's ``_SUCCESS`` file: complete files are renamed instead."""

_RECORD = "_compaction"
_DEEPEST = 8
"""Folders of partitions within each other, at most."""

_log = logging.getLogger(__name__)


class FolderCompaction:
    """The compaction of the changelog in a folder.

    Args:
        folder: the folder.
        staged: where files are written before they get their names.
        format: format of the files.
        keys: the key of their rows.
        parts: columns of which the folders of partitions have the values, and the files do not.
        every: batches between two compactions; 0 for none.
    """

    def __init__(
        self, folder: Path, staged: Path, format: FileFormat, keys: ResultKeys, parts: Sequence[str], every: int
    ) -> None:
        self._folder, self._staged, self._format = folder, staged, format
        columns = keys.columns or ()
        self._key = [name for name in columns if name not in parts]
        self._moves = not set(parts) <= set(columns)
        self._plan = CompactionPlan(every, keys, parts)

    @property
    def every(self) -> int:
        """Number of batches between two compactions; 0 for none."""
        return self._plan.every

    def begin(self, files: Iterable[Path]) -> None:
        """Begin with these files in the folder, of finished batches."""
        self._plan.begin(self._sized(files))

    def after(self, batch: ResultBatch, written: Iterable[Path], spark: SparkSession, schema: StructType) -> None:
        """Add the files of a batch, and compact those of earlier ones if it is time to.

        An error is logged: what is not compacted now, is the next time.

        Args:
            batch: the batch.
            written: its files.
            spark: the session of its results.
            schema: the columns of its files.
        """
        self._plan.add(self._sized(written))
        merges = self._plan.due(batch, result_file(batch.number, 0, self._format))
        if not merges:
            return
        try:
            self._compact(merges, batch, spark, schema)
        except (OSError, ValueError, PySparkException, Py4JJavaError) as error:
            _log.warning("compacting the changelog in %s after batch %d: %s", self._folder, batch.number, error)
            self.begin(path for path in files_below(self._folder) if is_before(path, batch.number + 1))
        finally:
            shutil.rmtree(self._staged, ignore_errors=True)

    def _compact(self, merges: Sequence[Merge], batch: ResultBatch, spark: SparkSession, schema: StructType) -> None:
        require_data(self._staged)  # what is written could follow a link in the place of a folder above it
        shutil.rmtree(self._staged, ignore_errors=True)
        make_spark_folder(self._staged)
        rows = reduce(DataFrame.union, self._rows(merges, spark, schema))
        newest = newest_rows(rows, schema, self._key, self._format).drop(OLDEST).repartition(named(FOLDER))
        options = dict(csv_options(schema.names)) if self._format is FileFormat.CSV else {}
        compression = "snappy" if self._format is FileFormat.PARQUET else "none"
        writer = newest.write.mode("append").options(header=True, compression=compression, **options, **UNMARKED)
        kind = "text" if self._format is FileFormat.JSON else self._format.value
        writer.partitionBy(FOLDER).format(kind).save(str(self._staged))
        found = {
            merge: list((self._staged / f"{FOLDER}={number}").glob("part-*")) for number, merge in enumerate(merges)
        }
        merged = [(merge, parts[0]) for merge, parts in found.items() if len(parts) == 1]
        for _, part in merged:
            sync(part)
        batch.require_lease()  # merging may have taken long, and another driver may have taken over meanwhile
        self._write_record(merged)
        for merge, part in merged:
            folder = self._folder / merge.folder
            require_data(folder)
            part.rename(folder / merge.target)
            sync(folder)
            _remove(folder, merge.removed)
            self._plan.replace(merge, {merge.target: (folder / merge.target).stat().st_size})

    def _write_record(self, merged: Iterable[tuple[Merge, Path]]) -> None:
        batch, replaced = newest_merged(self._folder), []
        for merge, part in merged:
            result = RESULT.fullmatch(merge.target)
            assert result is not None, "files of batches are merged"
            batch = max(batch, int(result[1]))
            inode = part.stat().st_ino
            replaced.append(
                {"folder": merge.folder, "target": merge.target, "inode": inode, "removed": list(merge.removed)}
            )
        new = self._staged / _RECORD
        new.write_text(json.dumps({"batch": batch, "merged": replaced}), encoding="utf-8")
        sync(new)
        new.rename(self._folder / _RECORD)
        sync(self._folder)

    def _rows(self, merges: Sequence[Merge], spark: SparkSession, schema: StructType) -> Iterator[DataFrame]:
        for number, merge in enumerate(merges):
            # the rows of the other files can be in the oldest one, too
            oldest = int(merge.has_oldest and not self._moves)
            for names in (merge.names[:oldest], merge.names[oldest:]):
                if names:
                    files = [self._folder / merge.folder / name for name in names]
                    rows = self._read(files, spark, schema)
                    is_oldest = F.lit(oldest == 1 and names == merge.names[:oldest])
                    yield rows.withColumn(FOLDER, F.lit(number)).withColumn(OLDEST, is_oldest)

    def _read(self, paths: list[Path], spark: SparkSession, schema: StructType) -> DataFrame:
        files = [literal_path(str(path)) for path in paths]
        if self._format is FileFormat.PARQUET:
            for file in paths:
                if more := set(pq.read_schema(file).names) - set(schema.names):
                    raise ValueError(f"{file} has columns that the result does not have: {', '.join(sorted(more))}")
            return spark.read.schema(schema).parquet(*files)
        if self._format is FileFormat.JSON:
            return spark.read.text(files, lineSep="\n").withColumnRenamed("value", LINE)
        texts = StructType()
        for name in schema.names:
            texts = texts.add(name, StringType())
        no_text = uuid.uuid4().hex  # else, Spark reads the empty string as NULL, too
        return spark.read.schema(texts).csv(
            files, header=True, multiLine=True, escape='"', enforceSchema=False, nullValue=no_text
        )

    def _sized(self, files: Iterable[Path]) -> Iterator[tuple[str, str, int]]:
        for path in files:
            yield str(path.parent.relative_to(self._folder)), path.name, path.stat().st_size


def files_below(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the files in a folder, and in the folders of partitions below it; links are not followed."""
    for entry in folder.iterdir():
        if depth < _DEEPEST and "=" in entry.name and entry.is_dir() and not entry.is_symlink():
            yield from files_below(entry, depth + 1)
        else:
            yield entry


def is_before(path: Path, batch: int) -> bool:
    """Return whether a file has results of an earlier batch than this one, and of no later one."""
    result = RESULT.fullmatch(path.name)
    return result is not None and int(result[1]) < batch


def make_spark_folder(folder: Path) -> None:
    """Create a folder for Spark's writer.

    It has Hadoop's own folders, too: Hadoop would start a child process to set the permissions of each.
    """
    Path(folder, "_temporary", "0", "_temporary").mkdir(parents=True)


def newest_merged(folder: Path) -> int:
    """Return the number of the last batch whose files were merged with others; NO_BATCH if none were."""
    return int(_record(folder).get("batch", NO_BATCH))


def finish_compaction(folder: Path) -> None:
    """Remove the files that merged ones have replaced, where a crash has left them."""
    for each in _record(folder).get("merged", ()):
        place = folder / each["folder"]
        with suppress(FileNotFoundError):
            if (place / each["target"]).stat().st_ino == each["inode"]:
                _remove(place, each["removed"])


def _record(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
    sync(folder)
