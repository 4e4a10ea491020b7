"""Headers of messages that one query writes and another reads."""

from __future__ import annotations

from typing import Final

WATERMARK: Final = "millrace-watermark"
"""Header of a tombstone with the watermark of the query that wrote it, in milliseconds since 1970."""
