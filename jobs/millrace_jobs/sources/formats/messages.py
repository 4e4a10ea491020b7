"""The values of Kafka messages as records: each message is a record, except those without a value.

A decoder takes the values of many messages at once and builds whole columns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.formats.csv_records import CsvParser
from millrace_jobs.sources.formats.decoding import BadRecord, Parser, decode
from millrace_jobs.sources.formats.json_records import JsonParser

RejectAt = Callable[[int, str], None]
"""Takes the message with this index out, for this reason; raises where the policy says so."""

RAW = pa.schema([("value", pa.binary())])
"""Column of the format ``raw``."""


class MessageDecoder(Protocol):
    """Decodes the values of messages; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """Of the records."""
        ...

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """The records in order, and the index of the message that each was made of; bad ones go to ``reject``."""
        ...


class RawDecoder:
    """The value itself, also where there is none."""

    schema = RAW

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """A record of every message."""
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=RAW), np.arange(len(values))


class TextDecoder:
    """Messages that are JSON objects or lines of CSV: joined to lines, which Arrow parses all at once."""

    def __init__(self, parser: Parser, schema: pa.Schema, *, joins_lines: bool) -> None:
        self.schema = schema
        self._parser = parser
        self._joins_lines = joins_lines

    @classmethod
    def json(cls, schema: pa.Schema, timestamp_format: str) -> TextDecoder:
        """One JSON object a message; line breaks in it are white space."""
        return cls(JsonParser(schema, timestamp_format), schema, joins_lines=True)

    @classmethod
    def csv(cls, schema: pa.Schema, timestamp_format: str) -> TextDecoder:
        """One line of CSV a message, perhaps with its line break; the fields are the schema's columns in order."""
        return cls(CsvParser(schema, schema.names, ",", timestamp_format), schema, joins_lines=False)

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """A record of every message that has a value."""
        bad: dict[int, str] = {}

        def refuse(record: BadRecord) -> None:
            bad[record.line - 1] = record.reason

        there = np.arange(len(values))
        if None in values:
            there = np.array([index for index, value in enumerate(values) if value is not None], np.int64)
        present = [value for value in values if value is not None]
        lines, text = self._as_lines(present, bad)
        records = decode(self._parser, self.schema, text, refuse)
        if records.num_rows + len(bad) < len(lines):
            bad = {i: "the message is empty" for i, line in enumerate(lines) if not line or line.isspace()} | bad
        for index in sorted(bad):
            reject(int(there[index]), bad[index])
        return records, np.delete(there, list(bad)) if bad else there

    def _as_lines(self, values: list[bytes], bad: dict[int, str]) -> tuple[list[bytes], bytes]:
        """Each message on a line of its own; one that cannot be goes to ``bad`` and leaves a blank line."""
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
