"""Construction of the sources of a StreamQuery from their specs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError
from millrace_api.model.sources import ReplaySourceSpec as ReplaySpec
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import FailureClass
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.sources.base import CorruptRecords, Source
from millrace_jobs.sources.files import FilesSource
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.schema import arrow_schema
from millrace_jobs.sources.kafka.opening import open_kafka
from millrace_jobs.sources.pacing import RatePace, read_rate_trace
from millrace_jobs.sources.rate import RateSource
from millrace_jobs.sources.replay import ReplaySource, require_file


def open_source(name: str, spec: SourceSpec, state: Path, cache: Path) -> Source:
    """Return the source that a spec describes.

    Args:
        name: the name of the source in the query.
        spec: the settings of the source.
        state: folder for the state that the source keeps besides its position; stored with the checkpoint.
        cache: folder for data that the source can recreate.

    Raises:
        MillraceError: the data of the source does not exist, or its schema cannot be read.
    """
    if spec.rate is not None:
        rate = spec.rate
        return RateSource(
            name,
            rate.records_per_second,
            keys=rate.keys,
            skew=rate.skew,
            drift=rate.drift.seconds if rate.drift else None,
            seed=rate.seed,
        )
    if spec.nexmark is not None:
        from millrace_jobs.sources.nexmark import NexmarkSource  # building its text tables takes half a second

        site = spec.nexmark
        return NexmarkSource(
            name,
            schema_of(name, spec),
            site.stream.value,
            site.records_per_second,
            skew=site.skew,
            drift=site.drift.seconds if site.drift else None,
            seed=site.seed,
        )
    wanted = spec.corrupt_records
    corrupt = CorruptRecords(wanted.policy.value, wanted.path or "", wanted.topic or "")
    if spec.kafka is not None:
        return open_kafka(name, spec, state, corrupt)
    if spec.files is not None:
        files = FilesSource(
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
        try:
            files.check()
        except MillraceError as error:
            error.failure = FailureClass.SOURCE  # the class that the batch reading the file would report
            raise
        return files
    replay = spec.replay
    assert replay is not None
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


def check_input(name: str, spec: SourceSpec, state: Path) -> None:
    """Check the files of a source without reading records; do nothing for sources without files.

    Args:
        name, spec, state: as for ``open_source``.

    Raises:
        MillraceError: the files do not exist, or the columns of the first one do not match the schema.
    """
    if spec.files is not None:
        open_source(name, spec, state, state)
    elif spec.replay is not None:
        replay = spec.replay
        require_file(name, replay.path)
        file_format(replay.format.value, schema_of(name, spec), header=replay.header, delimiter=replay.delimiter).check(
            replay.path
        )
        _pace(replay)


def schema_of(name: str, spec: SourceSpec) -> pa.Schema:
    """Return the Arrow schema of a source's records.

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
