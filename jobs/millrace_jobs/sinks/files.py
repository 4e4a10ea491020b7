"""Results as files in a folder, each batch exactly once.

A batch is written beside the folder's files, in a folder of this run in ``_staging``, and then renamed into place
under names that its number determines. A crash before, between or after the renames makes Spark run the batch again,
which first takes away what was there under these names: the same results come to the same place. Such leftovers are
looked for once, when a run begins, so that a batch costs the same however many files the folder has.

That holds for the batches of one checkpoint. The empty file ``_checkpoint-ID`` says of which one a folder's files
are; a run on another checkpoint is refused. Programs that read the folder pass over names which begin with an
underscore.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import make_folder, remove_folders, sync
from millrace_jobs.sinks.base import TIMES_AS_TEXT, LastBatch, ResultBatch

BATCH_ID = "_batch_id"
"""Column that tells the updates of a key apart: the row with the highest is the answer."""

_UNMARKED = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""No file that tells of success: what is complete is renamed."""

_OWNER = "_checkpoint-"
_RESULTS = re.compile(r"batch-(\d+)-\d+\.\w+")


class FilesSink:
    """Appends each batch as files of one format; ``updates`` adds the column ``_batch_id``."""

    def __init__(self, path: str, format: str, checkpoint_id: str, *, updates: bool) -> None:
        self._folder = Path(path).absolute()
        self._staging = self._folder / "_staging"
        self._run = uuid.uuid4().hex
        self._format = format
        self._owner = self._folder / f"{_OWNER}{checkpoint_id}"
        self._updates = updates
        self._made: list[Path] = []
        self._has_taken = False
        self._leftovers: dict[int, list[Path]] = {}
        """Files of batches that may not be committed: these batches replace them when they are written again."""

    @property
    def place(self) -> str:
        """The folder, with the pattern of its files."""
        return f"{self._folder}/*.{self._format}"

    def prepare(self, last: LastBatch) -> None:
        """Take the folder for this checkpoint, make it where there is none, and clear what a crash left half written.

        Raises:
            MillraceError: it cannot be written, or has results that are not of this checkpoint as it is now.
        """
        try:
            self._made = make_folder(self._folder) or self._made
            leftovers = self._results(last.next)
            self._require_no_later_batch(last, max(leftovers, default=-1))
            self._take()
            self._leftovers = leftovers
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(exist_ok=True)  # a task that is being cancelled may write there yet
            sync(self._folder)
            sync(self._folder.parent)
        except OSError as error:
            raise _unwritable(self._folder, error) from None

    def shape(self, results: DataFrame) -> DataFrame:
        """As they are."""
        return results

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write a batch; its files appear when all of them are complete."""
        if self._updates:
            results = results.withColumn(BATCH_ID, F.lit(batch.number).cast("bigint"))
        counted = Observation()
        staged = self._staging / f"{batch.number}-{self._run}"
        _stage(staged)
        writer = results.observe(counted, F.count(F.lit(1)).alias("rows")).write.mode("append")
        compression = "snappy" if self._format == "parquet" else "none"
        writer = writer.options(header=True, compression=compression, **TIMES_AS_TEXT, **_UNMARKED)
        writer.format(self._format).save(str(staged))
        batch.require_lease()  # writing may have taken long, and another driver may have published the batch meanwhile
        self._publish(staged, batch.number)
        return int(counted.get["rows"])

    def withdraw(self) -> None:
        """Take back the mark of the checkpoint and the folder, where this run has made them."""
        if self._has_taken:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._owner.unlink(missing_ok=True)
        remove_folders(self._made)

    def close(self) -> None:
        """Nothing is held."""

    def _results(self, first: int) -> dict[int, list[Path]]:
        """The files of the batches from ``first`` on that have results in the folder."""
        found: defaultdict[int, list[Path]] = defaultdict(list)
        for file in self._folder.iterdir():
            result = _RESULTS.fullmatch(file.name)
            if result and int(result[1]) >= first:
                found[int(result[1])].append(file)
        return found

    def _require_no_later_batch(self, last: LastBatch, newest: int) -> None:
        """Results of batches that the checkpoint has yet to begin would stay beside, or be taken for, those to come."""
        if last.begun is None and newest >= 0:
            raise self._not_ours("has results of an earlier run, which began with another checkpoint")
        if last.begun is not None and newest > last.begun and not self._others():
            message = f"has results up to batch {newest}, but the checkpoint knows of no batch after {last.begun}"
            hint = f"put the newest copy of the checkpoint back, or remove the files of the batches after {last.begun}"
            raise self._not_ours(message, hint)

    def _take(self) -> None:
        """Mark the folder as this checkpoint's; two queries that begin at once do not both get it."""
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
        self, why: str, hint: str = "remove the folder to begin anew, or write another path"
    ) -> MillraceError:
        return _problem(f"the folder {self._folder} {why}", hint)

    def _publish(self, staged: Path, batch: int) -> None:
        """Put the files of a batch in place; they are on the disk when this returns, and Spark commits the batch."""
        for old in self._leftovers.get(batch, []):
            old.unlink(missing_ok=True)
        files = sorted(part for part in staged.glob("part-*") if self._has_rows(part))
        placed = [self._folder / f"batch-{batch:010d}-{index:04d}.{self._format}" for index in range(len(files))]
        self._leftovers = {batch: placed}  # this process may be given the batch again
        for part, place in zip(files, placed, strict=True):
            sync(part)
            part.rename(place)
        sync(self._folder)
        shutil.rmtree(staged, ignore_errors=True)

    def _has_rows(self, part: Path) -> bool:
        """Spark writes a file without rows where it would otherwise write none."""
        if self._format == "parquet":
            return bool(pq.read_metadata(part).num_rows)
        with part.open("rb") as lines:
            return sum(1 for _ in zip(lines, range(2), strict=False)) > (self._format == "csv")


def require_folder(path: Path) -> None:
    """Make sure that a folder can be made, and files in it; leave nothing behind.

    Raises:
        MillraceError: they cannot.
    """
    try:
        made = make_folder(path)
        with tempfile.TemporaryDirectory(prefix="_", dir=path):
            pass
        remove_folders(made)
    except OSError as error:
        raise _unwritable(path.absolute(), error) from None


def _stage(folder: Path) -> None:
    """Make an empty folder for the files of a batch, and in it those that Hadoop's committer would make.

    Hadoop starts a child process for the permissions of each folder that it makes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder, "_temporary", "0", "_temporary").mkdir(parents=True)


def _unwritable(folder: Path, error: OSError) -> MillraceError:
    hint = "write a folder that this user may write to"
    return _problem(f"results cannot be written to {folder}: {error.strerror}", hint)


def _problem(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="spec.sink.files.path"))
