"""Checking and opening the sources of a StreamQuery, by the connectors of their kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace_api.model.sources import SourceSpec
from millrace_jobs.connectors import connector
from millrace_jobs.places import Place
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.static_tables import WholeTable

SOURCES = "millrace.sources"
"""Entry points of connectors for sources, by the field of ``spec.sources.NAME``."""


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
