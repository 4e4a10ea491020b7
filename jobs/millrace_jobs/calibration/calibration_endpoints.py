"""Where a calibration run reads and writes: the query's sources, in turns, and a sink that drops the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.calibration.turns import TurnSource, first_time, next_end
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sources.base import Source

_FILES = ("files", "replay", "rate", "nexmark", "python")
"""Kinds of source that need no server, unless their files are in an object store."""

_LEAST_RECORDS = 500
"""Records that sources have at least, where their number is known, so that small and large batches differ."""


class _DroppedResults(Sink):
    """A sink that has results computed, and drops them."""

    @property
    def place(self) -> str:
        """What users would see of it."""
        return "nowhere"

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute the results of a batch."""
        results.write.format("noop").mode("overwrite").save()
        return 0


@dataclass
class CalibrationEndpoints(Endpoints):
    """The sources of the query, in turns, and the sink that drops results."""

    turn: Path
    streams: Collection[str]
    """The sources that are read in turns."""

    found_first_time: Callable[[int], None]
    """Takes the event time of the first records, in microseconds since 1970."""

    has_lookups = False

    def sources(self, spec: Spec, checkpoint: Checkpoint, workspace: Path) -> Mapping[str, Source]:
        """Open the sources; the streams that the query reads wait for their turns."""
        try:
            opened = super().sources(spec, checkpoint, workspace)
        except TransientError as error:
            raise with_sample_hint(spec, error) from None
        for name, source in opened.items():
            if spec.sources[name].kind not in _FILES:
                _check_server(spec, name, source)
        streams = {name: opened[name] for name in self.streams if name in opened}
        self._require_records(spec, streams)
        known = {name: _records_of(source) for name, source in streams.items()}
        total = sum(count or 0 for count in known.values())
        if total < _LEAST_RECORDS and None not in known.values():
            records = "1 record" if total == 1 else f"{total} records"
            raise _too_few(spec, list(known), f"{records}, too few to know what a record costs")
        found: dict[str, Source] = dict(opened)
        for name, source in streams.items():
            share = (known[name] or 0) / total if all(known.values()) and total else 1 / len(streams)
            found[name] = TurnSource(source, self.turn, share, again=_can_read_again(spec, name, source))
        return found

    def _require_records(self, spec: Spec, streams: Mapping[str, Source]) -> None:
        """Require that each stream has records, and note the time of its first ones."""
        times: list[int] = []
        for name, source in streams.items():
            start = source.initial()
            if next_end(source, start, 1, 1) == start:
                raise _too_few(spec, [name], "no record yet, and a calibration run reads those that are there")
            watermark = spec.sources[name].watermark
            if watermark is not None and _can_read_again(spec, name, source):
                try:
                    found = first_time(source, watermark.column)
                except TransientError as error:
                    raise _hinted(error, spec, name, field=f"spec.sources.{name}") from None
                times += [] if found is None else [found]
        if times:
            self.found_first_time(min(times))

    def check_sinks(self, spec: Spec) -> None:
        """Check nothing: the sinks of the query are not used."""

    def server_checks(self, spec: Spec) -> Iterator[Callable[[], None]]:
        """Return no checks: the sinks of the query are not used."""
        return iter(())

    def sink(self, compiled: CompiledQuery, keys: Mapping[str, ResultKeys], context: SinkContext) -> Sink:
        """Return the sink that drops results."""
        return _DroppedResults()


def streams_of(spec: Spec) -> list[str]:
    """Return the sources that a query reads in turns: its streams, or tables that change if there is no stream.

    A spec may have sources that its query does not read.
    """
    python = spec.query.python
    if python is not None:
        read = [name for name in spec.sources if python.source in (None, name)]
    else:
        tables = parsed_sql(spec).tables
        read = [name for name in spec.sources if name.lower() in tables]
    streams = [name for name in read if spec.sources[name].table is None]
    return streams or [name for name in read if spec.sources[name].is_evolving]


def _records_of(source: Source) -> int | None:
    """Return how many records a source has; None if that is not known, or it never ends."""
    start = source.initial()
    most = 1 << 40
    ahead = source.ahead(start, most)
    if ahead is not None:
        rows = int(ahead["row"]) - int(start["row"])
        return rows if rows < most else None
    end = source.latest(start, everything=True)
    return None if source.most_records(start, end) is None else source.lag(start)  # batches may have a limit


def _can_read_again(spec: Spec, name: str, source: Source) -> bool:
    """Return whether a source can be read again: without a watermark, or if that is of a column of its own."""
    watermark = spec.sources[name].watermark
    if watermark is None:
        return True
    columns = {field.name.lower(): field for field in source.schema}
    column = columns.get(watermark.column.lower())
    return column is not None and pa.types.is_timestamp(column.type)


def _check_server(spec: Spec, name: str, source: Source) -> None:
    """Ask the server of a source. Raises MillraceError, with what to write instead of what this machine cannot read."""
    try:
        source.check_server()
    except MissingInputError:
        raise
    except MillraceError as error:
        raise _hinted(error, spec, name, field=f"spec.sources.{name}.{spec.sources[name].kind}") from None


def with_sample_hint(spec: Spec, error: MillraceError) -> MillraceError:
    """Return an error of a server's source with what to write instead; other errors stay as they are."""
    remote = {name: source.kind for name, source in spec.sources.items() if source.kind not in _FILES}
    named = [name for name in remote if name in str(error)]
    if not named and len(remote) < len(spec.sources):  # it may be about another source
        return error
    return _hinted(error, spec, next(iter(named or remote)))


def _sample_of(spec: Spec, name: str) -> str:
    return (
        "write some thousands of its records to a file, and in a copy of the query, in place of "
        f"{spec.sources[name].kind} of source {name}: files: {{path: sample.jsonl, format: json}}"
    )


def _too_few(spec: Spec, names: Sequence[str], has: str) -> MillraceError:
    """Return the error for sources that have too few records all together."""
    name, hint = names[0], "let some thousands arrive"
    if spec.sources[name].kind not in _FILES:
        hint = f"{hint}, or {_sample_of(spec, name)}"
    said = f"source {name} has {has}" if len(names) == 1 else f"sources {' and '.join(names)} have {has}"
    return MillraceError(Problem(said, hint, field=f"spec.sources.{name}.{spec.sources[name].kind}"))


def _hinted(error: MillraceError, spec: Spec, name: str, field: str = "") -> MillraceError:
    """Return an error of a source with one hint more, and with the source's field if it names none."""
    hint = f"where this machine does not reach it, {_sample_of(spec, name)}"
    problems = (
        replace(each, hint=f"{each.hint}; {hint}" if each.hint else hint, field=each.field or field)
        for each in error.problems
    )
    found = type(error)(*problems)
    found.failure = error.failure
    return found
