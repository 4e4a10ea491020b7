"""Sources of tests that stream the rows of tables of a lakehouse, without Spark, as a query drives them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.base import Position, Source
from millrace_jobs.sources.connector import open_source

COLUMNS = "id BIGINT, city STRING"


def opened(kind: str, table: Mapping[str, Any], /, state: Path, columns: str = COLUMNS, **more: Any) -> Source:
    """Return a source as Spark's process gets it: it was opened elsewhere, and sent there."""
    spec = SourceSpec.model_validate({kind: table, "schema": columns} | more)
    found: Source = pickle.loads(pickle.dumps(open_source("trips", spec, state, state)))
    return found


def rows(source: Source, start: Position, end: Position, replicas: int = 1) -> list[dict[str, Any]]:
    """Return the records of a batch, read twice to see that they are the same."""
    start, end = (json.loads(json.dumps(each)) for each in (start, end))
    found = _read(source, start, end, replicas)
    assert found == _read(source, start, end, replicas)
    return found


def next_rows(source: Source, at: dict[str, Any], replicas: int = 1, **how: Any) -> list[dict[str, Any]]:
    """Return the records of the next batch, and move the position ``at`` to its end."""
    end = source.latest(dict(at), everything=False, **how)
    found = rows(source, dict(at), end, replicas)
    at.clear()
    at.update(end)
    return found


def ids(found: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of records, in order."""
    return sorted(each["id"] for each in found)


def _read(source: Source, start: Position, end: Position, replicas: int) -> list[dict[str, Any]]:
    found = []
    for piece in source.slices(start, end, replicas):
        for batch in source.read(pickle.loads(pickle.dumps(piece)), "0-0"):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema.names == source.schema.names
            found += batch.to_pylist()
    return found
