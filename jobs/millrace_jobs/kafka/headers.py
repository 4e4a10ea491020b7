"""Headers of messages that one query writes and another reads."""

from __future__ import annotations

from typing import Final

WATERMARK: Final = "millrace-watermark"
"""Header of a tombstone with the watermark of the query that wrote it, in milliseconds since 1970."""

VALID_FROM: Final = "millrace-valid-from"
"""Header of a row of a table that has a history: the event time from which it is valid, in microseconds since 1970."""

VALID_TO: Final = "millrace-valid-to"
"""Header of an earlier version of a row: the event time from which it is no longer valid, in the same unit."""
