"""Arrow schemas of sources, for tests that write columns as pairs."""

from collections.abc import Sequence

import pyarrow as pa

from millrace_jobs.sources.formats.column_types import declared_schema


def a_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of (name, Spark type) pairs."""
    return declared_schema(", ".join(f"`{name}` {kind}" for name, kind in columns))
