"""Records of messages that are grouped by the schema of their writer, in the order of the messages again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Part = tuple[pa.RecordBatch, list[int]]
"""Records, and the index of the message of each."""

FRAME = 5
"""Bytes before the payload in a schema registry's framing: a zero, and the schema id as four big-endian bytes."""

_Item = TypeVar("_Item")


def by_framing(values: Mapping[int, bytes], bad: dict[int, str]) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Yield the payloads of framed messages by index, grouped by the id of their schema."""
    framed: dict[bytes, dict[int, bytes]] = {}
    for index, value in values.items():
        if len(value) < FRAME or value[0] != 0:
            bad[index] = "it does not begin with the framing of a schema registry"
        else:
            framed.setdefault(value[1:FRAME], {})[index] = value[FRAME:]
    for number, messages in framed.items():
        yield int.from_bytes(number, "big"), messages


def convertible(
    convert: Callable[[list[_Item]], pa.RecordBatch], items: list[_Item], indexes: list[int], bad: dict[int, str]
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
    yield from convertible(convert, items[:middle], indexes[:middle], bad)
    yield from convertible(convert, items[middle:], indexes[middle:], bad)


def in_order(parts: Sequence[Part], schema: pa.Schema) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Return the records of all parts in the order of their messages, and the index of the message of each."""
    if not parts:
        return pa.RecordBatch.from_pylist([], schema), np.empty(0, np.int64)
    origins = np.concatenate([np.array(indexes, np.int64) for _, indexes in parts])
    records = pa.concat_batches([batch for batch, _ in parts])
    if len(parts) == 1:
        return records, origins
    order = np.argsort(origins, kind="stable")  # the messages were grouped by schema
    return records.take(pa.array(order)), origins[order]
