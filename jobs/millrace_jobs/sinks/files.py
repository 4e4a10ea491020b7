"""Results as files in a folder, each batch exactly once.

A batch is written beside the folder's files, in ``_staging``, and then renamed into place under names that its
number determines. A crash before, between or after the renames makes Spark run the batch again, which first
takes away what was there under these names: the same results come to the same place. Programs that read the
folder pass over names which begin with an underscore.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from millrace_api.errors import MillraceError, Problem

BATCH_ID = "_batch_id"
"""Column that tells the updates of a key apart: the row with the highest is the answer."""


class FilesSink:
    """Appends each batch as files of one format; ``updates`` adds the column ``_batch_id``."""

    def __init__(self, path: str, format: str, *, updates: bool) -> None:
        self._folder = Path(path).absolute()
        self._staging = self._folder / "_staging"
        self._format = format
        self._updates = updates

    @property
    def place(self) -> str:
        """The folder, with the pattern of its files."""
        return f"{self._folder}/*.{self._format}"

    def prepare(self) -> None:
        """Make the folder, and clear what a crashed run left half written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir()
        except OSError as error:
            hint = "write a folder that this user may write to"
            raise MillraceError(
                Problem(
                    f"results cannot be written to {self._folder}: {error.strerror}",
                    hint,
                    field="spec.sink.files.path",
                )
            ) from None

    def write(self, results: DataFrame, batch: int) -> int:
        """Write a batch; its files appear when all of them are complete."""
        if self._updates:
            results = results.withColumn(BATCH_ID, F.lit(batch).cast("bigint"))
        counted = Observation()
        staged = self._staging / str(batch)
        writer = results.observe(counted, F.count(F.lit(1)).alias("rows")).write.mode("overwrite")
        writer.option("header", True).option("compression", "snappy" if self._format == "parquet" else "none").format(
            self._format
        ).save(str(staged))
        self._publish(staged, batch)
        return int(counted.get["rows"])

    def _publish(self, staged: Path, batch: int) -> None:
        for old in self._folder.glob(f"batch-{batch:010d}-*"):
            old.unlink()
        files = sorted(part for part in staged.glob("part-*") if self._has_rows(part))
        for index, part in enumerate(files):
            part.rename(self._folder / f"batch-{batch:010d}-{index:04d}.{self._format}")
        shutil.rmtree(staged)

    def _has_rows(self, part: Path) -> bool:
        """Spark writes a file without rows where it would otherwise write none."""
        if self._format == "parquet":
            return bool(pq.read_metadata(part).num_rows)
        with part.open("rb") as lines:
            return sum(1 for _ in zip(lines, range(2), strict=False)) > (self._format == "csv")
