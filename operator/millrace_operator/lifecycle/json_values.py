"""Number of values in JSON, found without decoding it: see ``values_in``."""

from __future__ import annotations

import numpy as np

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


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
