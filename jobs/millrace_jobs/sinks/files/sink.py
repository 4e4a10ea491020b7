"""The sink that writes results as files in a folder, each batch exactly once.

A batch is first written to a folder of this run in ``_staging``. Its files are then renamed into place, to names that
the batch number determines. After a crash before, between or after the renames, Spark runs the batch again. The batch
then first removes its earlier files, so the same results end up in the same place. Such leftovers are searched for
once, at the start of a run, so the cost of a batch does not grow with the number of files in the folder.

This holds for the batches of one checkpoint. The empty file ``_checkpoint-ID`` names the checkpoint that a folder's
files belong to; a run on another checkpoint is refused. Programs that read the folder skip names that begin with an
underscore.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import BATCH_ID, result_file
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path, make_folder, remove_folders, sync
from millrace_jobs.sinks.base import TIMES_AS_TEXT, LastBatch, ResultBatch, ResultKeys, Sink, named
from millrace_jobs.sinks.connector import unwritable
from millrace_jobs.sinks.files.changelog import changelog
from millrace_jobs.sinks.files.folder_compaction import (
    RESULT,
    UNMARKED,
    FolderCompaction,
    files_below,
    finish_compaction,
    is_before,
    make_spark_folder,
    newest_merged,
)
from millrace_jobs.sinks.files.formats import csv_columns, csv_options, require_few_files, spread
from millrace_jobs.sinks.sink_clock import SINK_CLOCK

FIELD = "spec.sink.files.path"
"""Field of the folder."""

_OWNER = "_checkpoint-"


class FilesSink(Sink):
    """A sink that adds each batch as files of one format; ``updates`` adds the column ``_batch_id``.

    With ``keys``, the files are the changelog of a table with this key; see ``files.changelog``. It is compacted after
    every ``compact_every`` batches, or never if that is 0; see ``files.compaction``.

    ``files`` is the maximum number of files that a batch adds to each folder of ``partition_by``; see
    ``formats.spread``.
    """

    def __init__(
        self,
        path: str,
        format: str,
        checkpoint_id: str,
        *,
        updates: bool,
        keys: ResultKeys | None = None,
        partition_by: Sequence[str] = (),
        files: int | None = None,
        compact_every: int = 0,
    ) -> None:
        self._parts, self._most = list(partition_by), files
        self._folder = absolute_path(path)
        self._staging = self._folder / "_staging"
        self._run = uuid.uuid4().hex
        self._format = format
        self._owner = self._folder / f"{_OWNER}{checkpoint_id}"
        self._updates, self._keys = updates, keys
        staged = self._staging / f"compacted-{self._run}"
        self._compaction = (
            FolderCompaction(self._folder, staged, FileFormat(format), keys, self._parts, compact_every)
            if keys is not None
            else None
        )
        self._made: list[Path] = []
        self._has_taken = False
        self._leftovers: dict[int, list[Path]] = {}
        """Files of batches that may not be committed, by batch; writing such a batch again replaces its files."""

    @property
    def place(self) -> str:
        """Folder of the results, with the pattern of their file names."""
        return f"{self._folder}/{'**/' if self._parts else ''}*.{self._format}"

    def prepare(self, last: LastBatch) -> None:
        """Claim the folder for this checkpoint, create it if missing, and clear what a crash left half-written.

        Raises MillraceError if the folder cannot be written, or has results that do not match this checkpoint's state.
        """
        try:
            self._made = make_folder(self._folder) or self._made
            leftovers: defaultdict[int, list[Path]] = defaultdict(list)
            for file in files_below(self._folder):
                result = RESULT.fullmatch(file.name)
                if result and int(result[1]) >= last.next:
                    leftovers[int(result[1])].append(file)
            self._require_no_later_batch(last, max(leftovers, default=-1))
            self._take()
            finish_compaction(self._folder)
            if self._compaction is not None:
                self._compaction.begin(file for file in files_below(self._folder) if is_before(file, last.next))
            self._leftovers = leftovers
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(exist_ok=True)  # exists if a task that is being cancelled still writes there
            sync(self._folder)
            sync(self._folder.parent)
        except OSError as error:
            raise unwritable(self._folder, error, FIELD) from None

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write a batch and return its number of rows; its files appear once all of them are complete."""
        if self._keys is not None:
            results = changelog(results, self._keys)
        if self._updates:
            results = results.withColumn(BATCH_ID, F.lit(batch.number).cast("bigint"))
        is_csv = self._format == "csv"
        schema = StructType([column for column in results.schema if column.name not in self._parts])
        spark = results.sparkSession
        results = spread(results, self._parts, self._most)
        kept = [name for name in results.columns if name not in self._parts]
        if is_csv:
            results = results.select(*csv_columns(results, kept), *map(named, self._parts))
        counted = Observation()
        staged = self._staging / f"{batch.number}-{self._run}"
        require_data(staged)  # what is written could follow a link in the place of a folder above it
        shutil.rmtree(staged, ignore_errors=True)
        make_spark_folder(staged)
        writer = results.observe(counted, F.count(F.lit(1)).alias("rows")).write.mode("append")
        compression = "snappy" if self._format == "parquet" else "none"
        writer = writer.options(header=True, compression=compression, **TIMES_AS_TEXT, **UNMARKED)
        writer = writer.options(**(csv_options(kept) if is_csv else {}))
        if self._parts:
            writer = writer.partitionBy(*self._parts)
        writer.format(self._format).save(str(staged))
        batch.require_lease()  # writing may have taken long, and another driver may have published the batch meanwhile
        with SINK_CLOCK.running():
            self._publish(staged, batch.number)
        if self._compaction is not None:
            self._compaction.after(batch, self._leftovers[batch.number], spark, schema)
        return int(counted.get["rows"])

    def withdraw(self) -> None:
        """Remove the checkpoint's marker file and the folders, if this run created them."""
        if self._has_taken:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._owner.unlink(missing_ok=True)
        remove_folders(self._made)

    def _require_no_later_batch(self, last: LastBatch, newest: int) -> None:
        """Refuse a folder with batches that the checkpoint has not begun: they would be mixed with new results."""
        if last.begun is None and newest >= 0:
            raise self._not_ours("has results of an earlier run, which began with another checkpoint")
        if self._others():
            return
        merged = newest_merged(self._folder)
        if merged >= last.next:  # a batch that is written again first removes its files, which have rows of others
            message = (
                f"has merged the files of batches up to {merged}, but the checkpoint would write batch {last.next}"
            )
            raise self._not_ours(message, "restore the newest copy of the checkpoint, or write another path")
        if last.begun is not None and newest > last.begun:
            message = f"has results up to batch {newest}, but the checkpoint knows of no batch after {last.begun}"
            hint = f"restore the newest copy of the checkpoint, or remove the files of the batches after {last.begun}"
            raise self._not_ours(message, hint)

    def _take(self) -> None:
        """Mark the folder as this checkpoint's; of two queries that start at once, at most one gets it."""
        if self._others():
            raise self._not_ours("belongs to another checkpoint")
        if self._owner.exists():
            return
        self._owner.touch()
        if self._others():
            self._owner.unlink()
            raise self._not_ours("is being taken by another query")
        self._has_taken = True

    def _others(self) -> bool:
        return any(file != self._owner for file in self._folder.glob(f"{_OWNER}*"))

    def _not_ours(
        self, why: str, hint: str = "remove the folder to start over, or write another path"
    ) -> MillraceError:
        return MillraceError(Problem(f"the folder {self._folder} {why}", hint, field=FIELD))

    def _publish(self, staged: Path, batch: int) -> None:
        """Rename the files of a batch into place; they are flushed to disk before Spark commits the batch."""
        for old in self._leftovers.get(batch, []):
            old.unlink(missing_ok=True)
        files = sorted(part for part in staged.rglob("part-*") if self._has_rows(part))
        require_few_files(len(files), batch, "spec.sink.files")
        folders = [self._folder / part.parent.relative_to(staged) for part in files]
        placed = [place / result_file(batch, index, self._format) for index, place in enumerate(folders)]
        self._leftovers = {batch: placed}  # Spark may run the batch again in this process
        for folder in dict.fromkeys(folders):
            require_data(folder)
            make_folder(folder)
        for part, place in zip(files, placed, strict=True):
            sync(part)
            part.rename(place)
        for folder in dict.fromkeys([*folders, self._folder]):
            sync(folder)
        shutil.rmtree(staged, ignore_errors=True)

    def _has_rows(self, part: Path) -> bool:
        """Return whether a file has rows: Spark writes one file without rows if it would otherwise write none."""
        if self._format == "parquet":
            return bool(pq.read_metadata(part).num_rows)
        with part.open("rb") as lines:
            return sum(1 for _ in zip(lines, range(2), strict=False)) > (self._format == "csv")
