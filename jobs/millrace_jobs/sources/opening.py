"""The sources of a StreamQuery."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.schema_ddl import parse_schema
from millrace_api.sources import ReplaySource as ReplaySpec
from millrace_api.sources import Source as SourceSpec
from millrace_jobs.sources.base import CorruptRecords, Source
from millrace_jobs.sources.files import FilesSource
from millrace_jobs.sources.pacing import RatePace, read_rate_trace
from millrace_jobs.sources.rate import RateSource
from millrace_jobs.sources.replay import ReplaySource
from millrace_jobs.sources.schema import arrow_schema


def open_source(name: str, spec: SourceSpec, state: Path, cache: Path) -> Source:
    """Make the source that a spec asks for.

    Args:
        name: what the query calls it.
        spec: its settings.
        state: folder for what it has to remember beside its position; kept with the checkpoint.
        cache: folder for what it can make again.

    Raises:
        MillraceError: its data is not there, its schema cannot be read, or this version has no such source.
    """
    if spec.rate is not None:
        rate = spec.rate
        return RateSource(name, rate.records_per_second, keys=rate.keys, skew=rate.skew, seed=rate.seed)
    corrupt = CorruptRecords(spec.corrupt_records.policy.value, spec.corrupt_records.path or "")
    if spec.files is not None:
        return FilesSource(
            name,
            spec.files.path,
            spec.files.format.value,
            schema_of(name, spec),
            str(state),
            max_files_per_batch=spec.files.max_files_per_batch,
            header=spec.files.header,
            delimiter=spec.files.delimiter,
            timestamp_format=spec.timestamp_format.value,
            corrupt=corrupt,
        )
    if spec.replay is not None:
        replay = spec.replay
        return ReplaySource(
            name,
            replay.path,
            replay.format.value,
            schema_of(name, spec),
            replay.time_column,
            str(cache),
            speed=replay.speed or 1.0,
            rate=_pace(replay),
            header=replay.header,
            delimiter=replay.delimiter,
            timestamp_format=spec.timestamp_format.value,
            corrupt=corrupt,
        )
    hint = "write files, replay or rate"
    raise MillraceError(Problem(f"source {spec.kind} is not in this version", hint, field=f"spec.sources.{name}"))


def schema_of(name: str, spec: SourceSpec) -> pa.Schema:
    """The Arrow schema of a source's records.

    Raises:
        MillraceError: the schema does not parse, or a type in it cannot be read from records.
    """
    assert spec.schema_text is not None
    return arrow_schema([(column.name, column.type) for column in parse_schema(spec.schema_text)])


def _pace(replay: ReplaySpec) -> float | RatePace | None:
    if replay.rate_trace is None:
        return replay.rate
    trace = replay.rate_trace
    return read_rate_trace(trace.path, time_column=trace.time_column, rate_column=trace.rate_column, scale=trace.scale)
