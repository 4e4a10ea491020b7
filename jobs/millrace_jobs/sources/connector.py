"""Connectors for sources: what checks and opens the sources of one kind, found by the kinds of a query's sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from millrace_api.model.base import Model
from millrace_api.model.sources import SourceSpec
from millrace_api.sql.schema_ddl import is_nested_time
from millrace_jobs.connectors import connector
from millrace_jobs.disk import absolute_path
from millrace_jobs.places import Place
from millrace_jobs.sources.base import CorruptRecords, Source
from millrace_jobs.sources.formats.column_types import declared_schema, with_time_formats
from millrace_jobs.sources.formats.format_reader import with_event_time

if TYPE_CHECKING:  # which loads Parquet's reader
    from millrace_jobs.sources.static_tables import WholeTable

_Kind = TypeVar("_Kind", bound=Model, contravariant=True)

SOURCES = "millrace.sources"
"""Entry points of connectors for sources, by the field of ``spec.sources.NAME``."""


@dataclass(frozen=True)
class SourceContext:
    """What a source is opened for."""

    name: str  # the name of the source in the query
    source: SourceSpec  # its settings, whatever its kind
    state: Place  # place for the state that the source keeps besides its position; stored with the checkpoint
    cache: Path  # folder for data that the source can recreate

    @property
    def corrupt(self) -> CorruptRecords:
        """What to do with records that do not decode."""
        wanted = self.source.corrupt_records
        folder = str(absolute_path(wanted.path)) if wanted.path else ""  # tasks may run in another folder
        return CorruptRecords(wanted.policy.value, folder, wanted.topic or "")


class SourceConnector(Protocol[_Kind]):
    """What checks and opens the sources of one kind; the type argument is the model of the kind.

    Its module is imported before Spark starts, so it imports within ``open`` what takes long to load.
    """

    def schema(self, source: SourceSpec) -> pa.Schema:
        """Return the Arrow schema of the records of a source.

        Raises MillraceError if the schema does not parse, or a type in it cannot be read from records.
        """
        assert source.schema_text is not None
        return completed_schema(declared_schema(source.schema_text), source)

    def check(self, spec: _Kind, context: SourceContext) -> None:
        """Check the files of a source, without reading records, or the columns of a table, without asking for it.

        Raises MillraceError if files do not exist, or the columns of the first one do not match the schema.
        """
        return

    def open(self, spec: _Kind, context: SourceContext) -> Source:
        """Return the source as a stream, or as files that are read once as a table.

        Raises MillraceError if the data of the source does not exist, or its schema cannot be read.
        """
        raise NotImplementedError(f"source {context.name} is not a stream")

    def open_table(self, spec: _Kind, context: SourceContext) -> WholeTable:
        """Return the source as a static table that can be read again and again.

        Raises MillraceError if the files of the table do not exist, or its columns cannot be read.
        """
        raise NotImplementedError(f"source {context.name} is not a table")


def completed_schema(columns: pa.Schema, source: SourceSpec) -> pa.Schema:
    """Return columns with the formats of their times, and one for an event time that is a field of a struct."""
    return with_event_time_of(with_time_formats(columns, source.time_formats), source)


def with_event_time_of(columns: pa.Schema, source: SourceSpec) -> pa.Schema:
    """Return columns with one for the event time of a source, if that is a field of a struct."""
    watermark = source.watermark
    nested = watermark is not None and is_nested_time(watermark.column)
    return with_event_time(columns, watermark.column) if watermark is not None and nested else columns


def open_source(name: str, spec: SourceSpec, state: Place, cache: Path) -> Source:
    """Return the source that a spec describes: see ``SourceConnector.open`` and ``SourceContext``."""
    return _connector(spec).open(spec.given, SourceContext(name, spec, state, cache))


def open_table(name: str, spec: SourceSpec, workspace: Path) -> WholeTable:
    """Return a static table, see ``SourceConnector.open_table``; ``workspace`` is for what it needs while it reads."""
    return _connector(spec).open_table(spec.given, SourceContext(name, spec, workspace / "static" / name, workspace))


def check_input(name: str, spec: SourceSpec, state: Path) -> None:
    """Check what a source reads without reading it, see ``SourceConnector.check``."""
    _connector(spec).check(spec.given, SourceContext(name, spec, state, state))


def schema_of(spec: SourceSpec) -> pa.Schema:
    """Return the Arrow schema of a source's records, see ``SourceConnector.schema``."""
    return _connector(spec).schema(spec)


def _connector(spec: SourceSpec) -> SourceConnector[Any]:
    found: SourceConnector[Any] = connector(SOURCES, spec.kind)
    return found
