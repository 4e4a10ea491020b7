"""Values of results and keys as they are shown, in the terminal and in messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace_jobs.time_texts import time_text


def shown_value(value: pa.Scalar) -> Any:
    """Return a value to be shown, in which times and dates are text."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: shown_value(each) for name, each in value.items()}
    if isinstance(value, pa.ListScalar):
        return [shown_value(each) for each in value]
    if isinstance(value, pa.TimestampScalar):
        micros = value.cast(pa.timestamp("us", value.type.tz)).value
        return time_text(micros, zoned=value.type.tz is not None)
    if isinstance(value, pa.Date32Scalar):
        return time_text(value.value * 86_400_000_000).partition("T")[0]
    return value.as_py()
