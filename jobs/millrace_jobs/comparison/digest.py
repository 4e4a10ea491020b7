"""Digests of results: the same for equal rows in any order, to be compared with those of another comparison."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.hash_kernels import NULL, combine
from millrace_jobs.partitioners.key_hashes import hash_columns


def digest(rows: pa.Table) -> str:
    """Return the digest of rows, of their columns in alphabetical order: 16 hexadecimal digits.

    It is the sum of the rows' 64-bit hashes, so it says nothing against rows that are made to have the same one.
    """
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in sorted(rows.schema.names):
        combine(hashes, _hashes(rows.column(name).combine_chunks()))
    return f"{int(hashes.sum(dtype=np.uint64)):016x}"


def _hashes(values: pa.Array) -> Hashes:
    """Return the hash of each value; that of a nested one depends on the places of its parts."""
    kind = values.type
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    if pa.types.is_struct(kind):
        hashes = np.zeros(len(values), np.uint64)
        for part in values.flatten():
            combine(hashes, _hashes(part))
    elif pa.types.is_nested(values.type):
        lengths = pc.list_value_length(values).fill_null(0).to_numpy().astype(np.int64)
        parts = _hashes(values.flatten())
        begins = np.cumsum(lengths) - lengths
        place = np.arange(len(parts)) - np.repeat(begins, lengths)
        hashes = lengths.astype(np.uint64)
        np.add.at(hashes, np.repeat(np.arange(len(values)), lengths), parts * (2 * place + 1).astype(np.uint64))
    else:
        return hash_columns([values], len(values))
    hashes[values.is_null().to_numpy(zero_copy_only=False)] = NULL
    return hashes
