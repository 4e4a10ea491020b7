"""How much of an object of a tenant's namespace the operator keeps, by the bytes of its JSON and its values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from millrace_api.model.streamquery import CANARY_LABEL

from ...resources.names import Owner

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

LARGEST_QUERY, LARGEST_OBJECT = 128 << 10, 384 << 10
"""Bytes of JSON of a query and of another object that are kept, without the fields that are dropped.

A query's own objects repeat it: the largest of them quotes its spec as a text.
"""

MOST_VALUES_OF_QUERY, MOST_VALUES = 5_000, 10_000
"""Values of a query and of another object that are kept: members of lists and of objects at all levels.

Each of an empty list or object takes 3 bytes of JSON, and 70 of memory once it is decoded.
"""

BYTES_OF_VALUE = 24
"""Bytes that each value counts at least, so that what is decoded takes about five times what is counted."""

OUR_LABELS = frozenset({*Owner("", "", "").labels("role"), CANARY_LABEL})
"""Labels that the operator reads; there may be any number of others, also with the operator's own prefix."""

TOO_MANY_VALUES = "tooManyValues"
"""Field with the number of values, in the place of most others, of an object that has too many."""

TOO_LARGE = "tooLarge"
"""Field with the number of bytes, in the place of most others, of an object that is too large."""

NAMESPACE_BYTES = 64 << 20
"""Bytes of JSON that are kept of the queries and objects of one namespace, by default."""


def values_in(text: bytes, few: int = 200) -> int:
    """Return the number of values in a JSON document: of members of its lists and objects, at all levels.

    An empty list or object counts as if it had a member. Commas and brackets within texts count only if there are at
    most ``few`` of all kinds together: then they do not matter to the caller, and the count is fast.
    """
    at_most = sum(map(text.count, (b",", b"[", b"{")))
    if at_most <= few:
        return at_most
    data = np.frombuffer(text, np.uint8)
    begins_value = (data == ord(",")) | (data == ord("[")) | (data == ord("{"))
    return int(np.count_nonzero(begins_value & ~within_texts(data)))


def mapping_in(text: str) -> dict[str, Any]:
    """Return a saved mapping; raise ValueError for one that is larger than a query can be, before it is read."""
    data = text.encode()
    if len(data) > LARGEST_QUERY or values_in(data) > MOST_VALUES_OF_QUERY:
        raise ValueError("too large")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("no mapping")
    return found


def within_texts(data: Bytes) -> Mask:
    """Return of each byte of a JSON document whether it is in a text."""
    place = np.arange(len(data), dtype=np.int32)
    is_slash = data == ord("\\")
    last_other = np.maximum.accumulate(np.where(is_slash, -1, place))
    run = np.where(place > 0, place - 1 - np.roll(last_other, 1), 0)
    run[:1] = 0
    is_quote = (data == ord('"')) & (run % 2 == 0)
    within: Mask = np.cumsum(is_quote, dtype=np.int32) % 2 == 1
    return within
