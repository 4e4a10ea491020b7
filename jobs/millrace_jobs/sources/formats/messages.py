"""Decoding of Kafka message values to records: each message is one record, except messages without a value.

A decoder takes the values of many messages at once and builds whole columns from them. Where messages name the schema
of their writer, they are grouped by it, and their records are put in the order of the messages again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.sources.formats.csv_parser import CsvParser
from millrace_jobs.sources.formats.decoding import BadRecord, Layout, Parser, decode
from millrace_jobs.sources.formats.json_parser import JsonParser

RejectAt = Callable[[int, str], None]
"""Handler that leaves out the message at an index, for a reason, or raises, as the policy requires."""

RAW = pa.schema([("value", pa.binary())])
"""The schema of the format ``raw``."""

Part = tuple[pa.RecordBatch, list[int]]
"""Records, and the index of the message of each."""

FRAME = 5
"""Bytes before the payload in a schema registry's framing: a zero, and the schema id as four big-endian bytes."""

_Item = TypeVar("_Item")


class MessageDecoder(Protocol):
    """A decoder of message values; picklable."""

    schema: pa.Schema
    """The schema of the records."""

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode values to records in order; bad messages go to ``reject``.

        Returns:
            The records, and for each record the index of its message. Shape ``(records,)``.
        """


class RawDecoder:
    """A decoder that passes each value on unchanged, NULL included."""

    schema = RAW

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return one record per message."""
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=RAW), np.arange(len(values))


class TextDecoder:
    """A decoder of JSON objects or CSV records, which are joined to one text that Arrow parses all at once.

    The fields of a CSV record are the schema's columns in order, and it may end with a line break. Line breaks in a
    JSON object are white space.
    """

    def __init__(self, format: Literal["csv", "json"], schema: pa.Schema, timestamp_format: str) -> None:
        self.schema = schema
        self._is_json = format == "json"
        self._parser: Parser = (
            JsonParser(schema, timestamp_format)
            if format == "json"
            else CsvParser(schema, schema.names, ",", timestamp_format)
        )

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode a record from every message that has a value."""
        indexes = np.arange(len(values))
        if None in values:
            indexes = np.array([index for index, value in enumerate(values) if value is not None], np.int64)
        messages = [value for value in values if value is not None]
        bad: dict[int, str] = {}
        layout = self._joined(messages)
        if layout.faults or not _are_records(messages, layout):
            messages = [self._alone(message, index, bad) for index, message in enumerate(messages)]
            layout = self._joined(messages)
        refused: list[BadRecord] = []
        records = decode(self._parser, self.schema, layout, refused.append)
        if refused:
            lines = np.cumsum([1, *(message.count(b"\n") + 1 for message in messages)])
            bad |= {int(np.searchsorted(lines, record.line, "right")) - 1: record.reason for record in refused}
        if records.num_rows + len(bad) < len(messages):
            empty = (index for index, message in enumerate(messages) if not message or message.isspace())
            bad = dict.fromkeys(empty, "the message is empty") | bad
        for index in sorted(bad):
            reject(int(indexes[index]), bad[index])
        return records, np.delete(indexes, list(bad)) if bad else indexes

    def _joined(self, messages: list[bytes]) -> Layout:
        """Return the messages as one text, each of them ended by a line break."""
        text = b"\n".join([*messages, b""])
        if self._is_json and text.count(b"\n") != len(messages):
            # Between the parts of an object a carriage return is white space as well, and as bad within a text.
            messages[:] = [message.replace(b"\n", b"\r") for message in messages]
            text = b"\n".join([*messages, b""])
        return self._parser.layout(text)

    def _alone(self, message: bytes, index: int, bad: dict[int, str]) -> bytes:
        """Return the text of a message's record; if it is none, put the reason into ``bad`` and return no text."""
        layout = self._parser.layout(message.removesuffix(b"\n"))
        if len(layout.ends) < 2 and not layout.faults:
            return layout.text
        bad[index] = next(iter(layout.faults.values()), "there is a line break inside the record")
        return b""


def _are_records(messages: list[bytes], layout: Layout) -> bool:
    """Return whether the records of the joined messages are the messages."""
    if len(messages) == len(layout.ends) == len(layout.newlines):
        return True
    return np.array_equal(layout.ends + 1, np.cumsum([len(message) + 1 for message in messages]))


def grouped_by_schema_id(values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Yield the payloads of framed messages by index, grouped by the id of their schema."""
    framed: dict[bytes, dict[int, bytes]] = {}
    for index, value in values.items():
        if len(value) < FRAME or value[0] != 0:
            bad[index] = "it does not begin with the framing of a schema registry"
        else:
            framed.setdefault(value[1:FRAME], {})[index] = value[FRAME:]
    for number, messages in framed.items():
        yield int.from_bytes(number, "big"), messages


def converted_records(
    convert: Callable[[Sequence[_Item]], pa.RecordBatch],
    items: Sequence[_Item],
    indexes: list[int],
    bad: dict[int, str],
) -> Iterator[Part]:
    """Convert items to records; bisection finds those with a value that does not fit."""
    if not items:
        return
    try:
        yield convert(items), indexes
        return
    except (ValueError, pa.ArrowNotImplementedError) as error:
        if len(items) == 1:
            bad[indexes[0]] = str(error)
            return
    middle = len(items) // 2
    yield from converted_records(convert, items[:middle], indexes[:middle], bad)
    yield from converted_records(convert, items[middle:], indexes[middle:], bad)


class GroupedDecoder(ABC):
    """A decoder of messages that name the schema of their writer, by which it reads them in groups."""

    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode a record from every message that has a value, in the order of the messages.

        Messages with a schema of which a type does not fit a column are bad: who may write to the topic may not end
        the query, unless its policy says so. Raises MillraceError if the registry does not answer.
        """
        bad: dict[int, str] = {}
        parts = list(self._parts({index: value for index, value in enumerate(values) if value is not None}, bad))
        for index in sorted(bad):
            reject(index, bad[index])
        if not parts:
            return pa.RecordBatch.from_pylist([], self.schema), np.empty(0, np.int64)
        origins = np.concatenate([np.array(indexes, np.int64) for _, indexes in parts])
        records = pa.concat_batches([batch for batch, _ in parts])
        if len(parts) == 1:
            return records, origins
        order = np.argsort(origins, kind="stable")
        return records.take(pa.array(order)), origins[order]

    @abstractmethod
    def _parts(self, values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[Part]:
        """Yield the records of messages by their indexes, and put the reasons into ``bad`` why others have none."""
