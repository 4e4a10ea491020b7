"""Where a calibration run reads and writes: the query's sources, in turns, and a sink that drops the results."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.calibration.turns import TurnSource, first_time, next_end
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.pending import PendingCall
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sources.base import Source
from millrace_jobs.stores.objects import ObjectPath

_Found = TypeVar("_Found")

_FILES = ("files", "replay", "rate", "nexmark", "python")
"""Kinds of source that need no server, unless their files are in an object store."""

_OWN_SECONDS = 30.0
"""Seconds that the user's own class may take for its first records."""

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

    table_patience = 10.0
    """Seconds for static tables; other sources are asked once, since who waits for the command can repeat it."""

    def sources(self, spec: Spec, checkpoint: Checkpoint, workspace: Path) -> Mapping[str, Source]:
        """Open the sources; the streams that the query reads wait for their turns."""
        _ask_stores(spec)
        try:
            opened = super().sources(spec, checkpoint, workspace)
        except TransientError as error:
            raise with_sample_hint(spec, error) from None
        for name, source in opened.items():
            if spec.sources[name].kind not in _FILES:
                _check_server(spec, name, source)
        streams = {name: opened[name] for name in self.streams if name in opened}
        known = self._first_look(spec, streams)
        total = sum(count or 0 for count in known.values())
        if total < _LEAST_RECORDS and None not in known.values():
            records = "1 record" if total == 1 else f"{total} records"
            raise _too_few(spec, list(known), f"{records}, too few to know what a record costs")
        found: dict[str, Source] = dict(opened)
        for name, source in streams.items():
            share = (known[name] or 0) / total if all(known.values()) and total else 1 / len(streams)
            found[name] = TurnSource(source, self.turn, share, again=_can_read_again(spec, name, source))
        return found

    def _first_look(self, spec: Spec, streams: Mapping[str, Source]) -> dict[str, int | None]:
        """Require that each stream has records, note the time of the first ones, and return how many there are.

        Their number is None where that is not known.
        """
        known: dict[str, int | None] = {}
        times: list[int] = []
        for name, source in streams.items():
            look = partial(_first_records, spec, name, source)
            own = spec.sources[name].python
            known[name], first = look() if own is None else _in_time(spec, name, own.read, look)
            times += [] if first is None else [first]
        if times:
            self.found_first_time(min(times))
        return known

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


def _first_records(spec: Spec, name: str, source: Source) -> tuple[int | None, int | None]:
    """Return how many records a stream has, and the event time of the first ones, each None if it is not known.

    Raises MillraceError if it has none.
    """
    start = source.initial()
    if next_end(source, start, 1, 1) == start:
        raise _too_few(spec, [name], "no record yet, and a calibration run reads those that are there")
    watermark, first = spec.sources[name].watermark, None
    if watermark is not None and _can_read_again(spec, name, source):
        try:
            first = first_time(source, watermark.column)
        except TransientError as error:
            raise _hinted(error, spec, name, field=f"spec.sources.{name}") from None
    return _records_of(source), first


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


def _in_time(spec: Spec, name: str, read: str, look: Callable[[], _Found]) -> _Found:
    """Return what a first look at a source finds that is read by the user's own class, in a thread.

    Raises MillraceError if the class does not return: all other sources have time limits of their own.
    """
    found: Future[_Found] = Future()

    def run() -> None:
        try:
            found.set_result(look())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name=f"first look at {name}", daemon=True).start()
    try:
        return found.result(_OWN_SECONDS)
    except TimeoutError:
        if found.done():  # raised by the class
            raise
        message = f"the class {read} has not given its first records within {_OWN_SECONDS:.0f} s"
        hint = f"look for what it waits for, or {_sample_of(spec, name)}"
        raise MillraceError(Problem(message, hint, field=f"spec.sources.{name}.python.read")) from None


def _can_read_again(spec: Spec, name: str, source: Source) -> bool:
    """Return whether a source can be read again: without a watermark, or if that is of a column of its own."""
    watermark = spec.sources[name].watermark
    if watermark is None:
        return True
    columns = {field.name.lower(): field for field in source.schema}
    column = columns.get(watermark.column.lower())
    return column is not None and pa.types.is_timestamp(column.type)


def _ask_stores(spec: Spec) -> None:
    """Ask the object stores of Delta tables for a name: the tables' library waits for a minute for each answer.

    Raises TransientError if a store does not answer; what else is wrong is left to those who read the table.
    """
    for name, source in spec.sources.items():
        if source.delta is None or source.delta.is_local:
            continue
        try:
            ObjectPath.of(source.delta.path).is_dir()
        except OSError as error:
            doing = f"reading the Delta table {source.delta.path} of source {name}"
            found = lakehouse_error(error, doing, f"spec.sources.{name}.delta")
            if isinstance(found, TransientError):
                raise _hinted(found, spec, name) from None


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


def away_error(spec: Spec, call: PendingCall) -> TransientError:
    """Return the error for a server that a run has waited for."""
    lengths = {name: _named_by(call, name, source) for name, source in spec.sources.items()}
    longest = max(lengths.values())
    asked = [name for name, length in lengths.items() if length == longest > 0]
    field = f"spec.sources.{asked[0]}.{spec.sources[asked[0]].kind}" if len(asked) == 1 else ""
    hint = call.hint or "check that it and the network are healthy"
    return TransientError(Problem(f"gave up: {call.reason}", f"{hint}, then run this again", field=field))


def _named_by(call: PendingCall, name: str, source: SourceSpec) -> int:
    """Return the length of what the reason of a call has of a source: its name, brokers and topic, or place."""

    def length(text: str) -> int:
        is_whole = re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w-])", call.reason) is not None
        return len(text) if is_whole else 0

    found = length(f"source {name}")
    if source.kafka is not None and (brokers := length(source.kafka.bootstrap_servers)):
        found += brokers + length(f"topic {source.kafka.topic}")
    files = source.files or source.delta
    return found if files is None else found + length(files.path.rstrip("/"))


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
