"""How the sources of a query are read: as streaming DataFrames, with their watermarks and the notes of their tasks.

``pipeline.reader`` reads them, batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.model.streamquery import Spec
from millrace_jobs.pipeline.blocks import OBSERVED
from millrace_jobs.pipeline.incomplete import required_columns
from millrace_jobs.pipeline.reader import ReaderConfig, SourceTask, data_source
from millrace_jobs.pipeline.route import CONTROL
from millrace_jobs.places import Place
from millrace_jobs.sources.base import Source

SLICE_RECORDS = 1024
"""Least number of records of a slice where a query reads several sources, which are slices of a batch already.

A slice costs as much as a thousand records and more, whatever it has.
"""


@dataclass(frozen=True)
class RunContext:
    """Environment that a query runs in: its sources, and the files it shares with them.

    ``sources`` are those that stream. A static table is a view of the session, with the source's name.
    ``everything``: the run reads what its sources have when it starts, and then ends. ``followed``: see
    ``ReaderConfig``.
    """

    spark: SparkSession
    sources: Mapping[str, Source]
    control: Path
    checkpoint: Place
    policies: Place
    everything: bool
    followed: Place | None = None


def observe_notes(df: DataFrame, source: str, notes: str, watermark: tuple[str, str] | None) -> DataFrame:
    """Copy the notes into the query's progress, declare the watermark, and drop the rows that carry notes.

    Args:
        df: rows, some of which carry a note instead of data.
        source: name of the source that the rows come from.
        notes: name of the column with the notes.
        watermark: column and delay of the watermark.

    The rows with notes have to pass the watermark operator, because the last one of a bounded input moves the
    watermark. Spark pushes a filter below that operator unless the filter reads event time. It pushes the query's own
    filters below this one unless this one is non-deterministic. The filter is therefore both.
    """
    df = df.observe(OBSERVED + source, F.collect_list(F.col(notes)).alias("notes"))
    wanted = F.col(notes).isNull()
    if watermark is not None:
        df = df.withWatermark(*watermark)
        never = F.unix_micros(F.col(f"`{watermark[0]}`")) % 2 > F.rand(0) + 2
        wanted = wanted | never
    return df.where(wanted).drop(notes)


def records(
    name: str, spec: Spec, context: RunContext, *, has_watermark: bool = True, since_epoch: bool = False
) -> DataFrame:
    """Return a source as a table with its watermark, if wanted; its control rows are observed and dropped.

    ``since_epoch``: records before 1970 are late, as they are for Spark's own operators.
    """
    watermark = watermark_of(spec, name) if has_watermark else None
    return observe_notes(rows_of(name, spec, context, since_epoch=since_epoch), name, CONTROL, watermark)


def rows_of(
    name: str, spec: Spec, context: RunContext, *, own_watermark: bool = False, since_epoch: bool = False
) -> DataFrame:
    """Return the rows of a source with its control rows; see ``SourceTask``."""
    watermark = spec.sources[name].watermark
    time_column = watermark.column if watermark else None
    required, least = required_columns(spec, name), SLICE_RECORDS if len(context.sources) > 1 else 0
    task = SourceTask("rows", time_column, None, None, own_watermark, since_epoch, required, least)
    schema = context.sources[name].schema.append(pa.field(CONTROL, pa.string()))
    return read(name, task, schema, context)


def watermark_of(spec: Spec, name: str, column: str | None = None) -> tuple[str, str] | None:
    """Return the column and the delay of a source's watermark, which is on ``column`` if that is given."""
    watermark = spec.sources[name].watermark
    if watermark is None:
        return None
    return column or watermark.column, f"{watermark.delay.microseconds} microseconds"


def read(name: str, task: SourceTask, schema: pa.Schema, context: RunContext) -> DataFrame:
    """Return what the tasks of a source make of its records, with this schema."""
    config = ReaderConfig(
        name=name,
        source=context.sources[name],
        task=task,
        spark_schema=from_arrow_schema(schema),
        control=context.control,
        checkpoint=context.checkpoint,
        policies=context.policies,
        everything=context.everything,
        followed=context.followed,
    )
    registered = data_source(config)
    context.spark.dataSource.register(registered)
    return context.spark.readStream.format(registered.name()).load()
