"""Settings of a query that are allowed, and have no effect beside its other settings.

They stay allowed: a stored query keeps them, and changing another setting can give them their effect back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace_api.errors import Problem
from millrace_api.model.dedicated import dedicated_obstacle
from millrace_api.model.deployment import PlacementSetting, ScalingMode
from millrace_api.model.files import FileFormat, FilesSourceSpec, ReplaySourceSpec
from millrace_api.model.kafka import KafkaSourceSpec
from millrace_api.model.python_query import PythonQuery
from millrace_api.model.sources import CorruptPolicy, RecordFormat, SourceSpec, TimestampFormat
from millrace_api.model.streamquery import Spec

_LEAVE = "leave it out"


def unused_settings(spec: Spec) -> list[Problem]:
    """Return a note, with its field, for each setting without an effect that can be seen without Spark."""
    notes = [note for name, source in spec.sources.items() for note in _of_source(f"spec.sources.{name}", source)]
    if spec.query.python is not None:
        notes += _of_watermarks(spec.query.python, spec.sources)
    return [*notes, *_of_placement(spec), *_of_spark(spec.spark_conf)]


def _of_source(at: str, source: SourceSpec) -> Iterator[Problem]:
    files = source.files or source.replay
    if files is not None and files.format is FileFormat.PARQUET:
        if source.corrupt_records.policy is not CorruptPolicy.FAIL:
            message = "has no effect on parquet: a value that does not fit fails the query"
            yield Problem(message, "leave it out, and correct the files or the schema", field=f"{at}.corruptRecords")
    elif files is None and source.record_format in (None, RecordFormat.RAW):
        kind = "format raw" if source.kafka is not None else source.kind
        if source.corrupt_records.policy is not CorruptPolicy.FAIL:
            yield Problem(f"has no effect: all records of {kind} decode", _LEAVE, field=f"{at}.corruptRecords")
        if source.timestamp_format is not TimestampFormat.ISO:
            yield Problem(f"has no effect: {kind} has no times in text", _LEAVE, field=f"{at}.timestampFormat")
    if files is not None:
        yield from _of_files(f"{at}.{source.kind}", files)
    if source.kafka is not None:
        yield from _of_offsets(f"{at}.kafka", source.kafka)


def _of_files(at: str, files: FilesSourceSpec | ReplaySourceSpec) -> Iterator[Problem]:
    """Yield notes on what only csv has."""
    if files.format is FileFormat.CSV:
        return
    for name, is_given in (("header", not files.header), ("delimiter", files.delimiter != ",")):
        if is_given:
            yield Problem(f"has no effect on {files.format}", _LEAVE, field=f"{at}.{name}")


def _of_offsets(at: str, kafka: KafkaSourceSpec) -> Iterator[Problem]:
    """Yield notes on a place to start from, or to stop at, that no partition uses."""
    chosen = kafka.partitions or ()
    begins = all(each.starting_offset is not None for each in chosen)
    ends = all(each.ending_offset is not None for each in chosen)
    unused = {
        "startingOffsets": ("startingOffset", begins and kafka.starting_offsets is not None),
        "startingTimestamp": ("startingOffset", begins and kafka.starting_timestamp is not None),
        "endingOffsets": ("endingOffset", ends and kafka.ending_offsets is not None),
    }
    for name, (own, is_unused) in unused.items():
        if chosen and is_unused:
            yield Problem(f"has no effect: every partition has its own {own}", _LEAVE, field=f"{at}.{name}")


def _of_watermarks(python: PythonQuery, sources: Mapping[str, SourceSpec]) -> Iterator[Problem]:
    """Yield a note on the watermark of an aggregator's source, if it closes no window."""
    name = python.source or next(iter(sources))
    watermark, window = sources[name].watermark, python.window
    if watermark is None or (window is not None and window.column.lower() == watermark.column.lower()):
        return
    why = "the aggregator has no window" if window is None else f"the window is over {window.column}"
    hint = "give the aggregator a window over its column, or leave it out: without one, all state is kept forever"
    yield Problem(f"has no effect: {why}", hint, field=f"spec.sources.{name}.watermark")


def _of_placement(spec: Spec) -> Iterator[Problem]:
    """Yield a note on a placement that is never weighed."""
    if spec.partitioner.placement is not PlacementSetting.AUTO:
        return
    field, obstacle = "spec.partitioner.placement", dedicated_obstacle(spec)
    if obstacle is not None:
        yield Problem(f"Auto has the effect of Inline: {obstacle}", "write placement: Inline", field=field)
    elif spec.scaling.mode is not ScalingMode.ACTIVE:
        message = f"Auto has the effect of Inline from the start while scaling.mode is {spec.scaling.mode}"
        yield Problem(message, "write placement: Inline, or scaling.mode: Active", field=field)


def _of_spark(settings: Mapping[str, str]) -> Iterator[Problem]:
    name = "spark.sql.shuffle.partitions"
    if name in settings:
        message = "sets only the number of state partitions of a new checkpoint: the number of tasks follows the plan"
        yield Problem(message, "leave it out, and write spec.parallelism", field=f"spec.sparkConf[{name}]")
