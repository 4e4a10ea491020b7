"""Rows as the content of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .answers import with_zones


def table_of(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return the rows as a table."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def parquet(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Return the rows as a Parquet file. Times without a zone are in UTC."""
    file = io.BytesIO()
    pq.write_table(with_zones(table_of(schema, rows)), file)
    return file.getvalue()
