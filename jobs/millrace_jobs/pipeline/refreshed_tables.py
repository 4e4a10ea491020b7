"""Static tables whose content changes between batches, as Spark's tables.

Spark plans a stream once and keeps the static tables in the plan, so the plan has no rows of them: a task of each batch
reads the content that the batch's offsets name, from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.places import Place
from millrace_jobs.plan.control import contents_in
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.sources.static_tables import TableContents

_CONTENTS = "millrace.tables"
"""Local property of Spark's jobs with a batch and the content of each table in it."""

_BATCH = "streaming.sql.batchId"

_BATCH_ROWS = 1 << 16
"""Rows that are handed to Spark at once."""

_REMEMBERED_BYTES = 32 << 20
"""Largest content that a worker process keeps for the next batch, in bytes of memory: each of them has a copy."""


def announce_contents(batch: int, contents: Mapping[str, str], context: SparkContext) -> None:
    """Let the tasks of the jobs that this thread runs from now on know which content each table has in their batch."""
    context.setLocalProperty(_CONTENTS, json.dumps({"batch": batch, "contents": dict(contents)}))


def refreshed_table(
    spark: SparkSession, name: str, schema: pa.Schema, place: Place, log: Place, size: int
) -> DataFrame:
    """Return a table whose rows are those of the content that a batch has in Spark's offset log.

    Args:
        spark: the session.
        name: name of the source.
        schema: the columns of the table.
        place: where its contents are.
        log: Spark's part of the checkpoint.
        size: size of a content in memory, in bytes, by which Spark sends the table to all tasks or shuffles it.
    """
    rows = spark.range(0, 1, 1, 1).mapInArrow(_ContentReader(name, schema, place, log), from_arrow_schema(schema))
    threshold = int(spark._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold())
    # Spark estimates the size by that of the one row that is mapped
    return rows if size <= threshold else rows.hint("merge")


@dataclass(frozen=True)
class _ContentReader:
    """A task that reads the content of its batch."""

    name: str
    schema: pa.Schema
    place: Place
    log: Place
    remembered: ClassVar[dict[tuple[str, str], tuple[str, pa.Table]]] = {}
    """The last small content of each table in this process."""

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if batch.num_rows:
                yield from self._content(self._name()).to_batches(_BATCH_ROWS)

    def _name(self) -> str | None:
        """Return the content that the task's batch has; None if its offsets name none."""
        context = TaskContext.get()
        assert context is not None
        batch, text = int(context.getLocalProperty(_BATCH) or 0), context.getLocalProperty(_CONTENTS)
        announced = json.loads(text) if text else {}
        if announced.get("batch") == batch:
            name: str = announced["contents"][self.name]
            return name
        # Spark begins with a small table before it hands the batch to the driver's code
        return contents_in(LogEntries(self.log).text("offsets", batch)).get(self.name)

    def _content(self, name: str | None) -> pa.Table:
        """Return the rows of a content, or of the newest one if the batch has none, or one with other columns."""
        key = (str(self.place), self.name)
        known = self.remembered.get(key)
        if known is not None and known[0] == name:
            return known[1]
        table = None if name is None else self._loaded(name)
        if name is None or table is None or not table.schema.equals(self.schema):
            newest = TableContents(self.place).newest()
            assert newest is not None, f"table {self.name} has no content"
            name, table = newest.name, self._loaded(newest.name)
        if table.nbytes <= _REMEMBERED_BYTES:
            self.remembered[key] = name, table
        return table

    def _loaded(self, name: str) -> pa.Table:
        try:
            return TableContents(self.place).load(name)
        except FileNotFoundError:
            message = f"source {self.name}: the content {name} of the table is gone from {self.place}"
            hint = f"put back a copy of the whole checkpoint, or start over with {ANOTHER_CHECKPOINT}"
            raise MillraceError(Problem(message, hint, field="spec.checkpoint")) from None
