"""Functions that queries of tests call, sound and broken."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def same(value: pa.Array) -> pa.Array:
    return value


def halved(value: pa.Array) -> pa.Array:
    return pc.divide(value, 2.0)


def initial(text: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, 1)


def known(value: pa.Array) -> pa.Array:
    return pc.is_valid(value)


def joined(text: pa.Array, times: pa.Array) -> pa.Array:
    pairs = zip(text.to_pylist(), times.to_pylist(), strict=True)
    return pa.array([None if None in pair else f"{pair[0]}{pair[1]}" for pair in pairs], pa.string())


def halts_at_three(value: pa.Array) -> pa.Array:
    if 3 in value.to_pylist():
        raise ValueError("three is\none too many")
    return value
