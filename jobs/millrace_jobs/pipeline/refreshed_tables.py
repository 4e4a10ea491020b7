"""Static tables whose content changes between batches, as Spark's tables.

Spark plans a stream once and keeps the static tables in the plan, so the plan has no rows of them: a task of each batch
reads the content that the driver has announced for the batch, from the checkpoint.
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
from millrace_jobs.sources.table_contents import TableContents

_CONTENTS = "millrace.tables"
"""Local property of Spark's jobs with the content of each table in their batch."""

_BATCH_ROWS = 1 << 16
"""Rows that are handed to Spark at once."""

_REMEMBERED_BYTES = 32 << 20
"""Largest content that a worker process keeps for the next batch, in bytes of memory: each of them has a copy."""


def announce_contents(contents: Mapping[str, str], context: SparkContext) -> None:
    """Let the tasks of the jobs that this thread runs know which content each table has in their batch."""
    context.setLocalProperty(_CONTENTS, json.dumps(dict(contents)))


def refreshed_table(spark: SparkSession, name: str, schema: pa.Schema, place: Place, size: int) -> DataFrame:
    """Return a table whose rows are those of the content that is announced for a batch.

    Args:
        spark: the session.
        name: name of the source.
        schema: the columns of the table.
        place: where its contents are.
        size: size of a content in memory, in bytes, by which Spark sends the table to all tasks or shuffles it.
    """
    rows = spark.range(0, 1, 1, 1).mapInArrow(_ContentReader(name, schema, place), from_arrow_schema(schema))
    threshold = int(spark._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold())
    # Spark estimates the size by that of the one row that is mapped
    return rows if size <= threshold else rows.hint("merge")


@dataclass(frozen=True)
class _ContentReader:
    """A task that reads the content of its batch."""

    name: str
    schema: pa.Schema
    place: Place
    remembered: ClassVar[dict[tuple[str, str], tuple[str, pa.Table]]] = {}
    """The last small content of each table in this process."""

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if batch.num_rows:
                yield from self._content(self._announced()).to_batches(_BATCH_ROWS)

    def _announced(self) -> str:
        context = TaskContext.get()
        text = context.getLocalProperty(_CONTENTS) if context is not None else None
        assert text is not None, "no contents were announced for the batch"
        name: str = json.loads(text)[self.name]
        return name

    def _content(self, name: str) -> pa.Table:
        key = (str(self.place), self.name)
        known = self.remembered.get(key)
        if known is not None and known[0] == name:
            return known[1]
        try:
            table = TableContents(self.place).load(name)
        except FileNotFoundError:
            message = f"source {self.name}: the content {name} of the table is gone from {self.place}"
            hint = f"put back a copy of the whole checkpoint, or start over with {ANOTHER_CHECKPOINT}"
            raise MillraceError(Problem(message, hint, field="spec.checkpoint")) from None
        table = table.select(self.schema.names).cast(self.schema)
        if table.nbytes <= _REMEMBERED_BYTES:
            self.remembered[key] = name, table
        return table
