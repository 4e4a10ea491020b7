"""Decoding of Kafka message values to records: each message is one record, except messages without a value.

A decoder takes the values of many messages at once and builds whole columns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.formats.decoding import BadRecord, Parser, decode
from millrace_jobs.sources.formats.text_parsers import CsvParser, JsonParser

RejectAt = Callable[[int, str], None]
"""Handler that leaves out the message at an index, for a reason, or raises, as the policy requires."""

RAW = pa.schema([("value", pa.binary())])
"""The schema of the format ``raw``."""


class MessageDecoder(Protocol):
    """A decoder of message values; picklable."""

    schema: pa.Schema
    """The schema of the records."""

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode values to records in order; bad messages go to ``reject``.

        Returns:
            The records, and for each record the index of its message. Shape ``(records,)``.
        """
        ...


class RawDecoder:
    """A decoder that passes each value on unchanged, NULL included."""

    schema = RAW

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return one record per message."""
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=RAW), np.arange(len(values))


class TextDecoder:
    """A decoder of JSON objects or CSV lines, which are joined to one text that Arrow parses all at once.

    The fields of a CSV line are the schema's columns in order, and the line may end with a line break. Line breaks
    inside a JSON object count as white space.
    """

    def __init__(self, format: Literal["csv", "json"], schema: pa.Schema, timestamp_format: str) -> None:
        self.schema = schema
        self._joins_lines = format == "json"
        self._parser: Parser = (
            JsonParser(schema, timestamp_format)
            if format == "json"
            else CsvParser(schema, schema.names, ",", timestamp_format)
        )

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode a record from every message that has a value."""
        bad: dict[int, str] = {}

        def refuse(record: BadRecord) -> None:
            bad[record.line - 1] = record.reason

        indexes = np.arange(len(values))
        if None in values:
            indexes = np.array([index for index, value in enumerate(values) if value is not None], np.int64)
        present = [value for value in values if value is not None]
        lines, text = self._as_lines(present, bad)
        records = decode(self._parser, self.schema, text, refuse)
        if records.num_rows + len(bad) < len(lines):
            bad = {i: "the message is empty" for i, line in enumerate(lines) if not line or line.isspace()} | bad
        for index in sorted(bad):
            reject(int(indexes[index]), bad[index])
        return records, np.delete(indexes, list(bad)) if bad else indexes

    def _as_lines(self, values: list[bytes], bad: dict[int, str]) -> tuple[list[bytes], bytes]:
        """Put each message on its own line; one with a line break inside goes to ``bad`` and leaves a blank line."""
        text = b"\n".join(values)
        if text.count(b"\n") == max(len(values) - 1, 0):
            return values, text
        if self._joins_lines:
            lines = [value.replace(b"\n", b" ") for value in values]
        else:
            lines = [value.removesuffix(b"\n") for value in values]
            for index, line in enumerate(lines):
                if b"\n" in line:
                    bad[index] = "there is a line break inside the record"
                    lines[index] = b""
        return lines, b"\n".join(lines)
