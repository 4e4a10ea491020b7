"""Hashes of keys in arrays of any library. NumPy arrays and lists need NumPy alone; the hashes are those of a job."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kernels.compiling import read_only
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.hash_kernels import NULL, hash_bytes, hash_words

_ARROW = ("pyarrow", "pandas", "polars")
_HINT = "pass a NumPy array or a list of numbers or texts, a pandas or Polars column, or an Arrow array or table"


def hashes_of(keys: Any) -> Hashes:
    """Return the 64-bit hash of each key, shape ``(rows,)``: the same as that of the key's column in a job.

    Args:
        keys: a NumPy array or a list of integers, floats, booleans, texts or bytes, in which None is a key of its own;
            a pandas or Polars Series, or an Arrow array. A pandas or Polars DataFrame or an Arrow table has a composite
            key, of all its columns.

    Raises:
        MillraceError: the keys are of another kind.
    """
    if type(keys).__module__.split(".")[0] in _ARROW:
        return _hash_arrow(keys)
    array = np.fromiter(keys, object, len(keys)) if isinstance(keys, list | tuple) else np.asarray(keys)
    if array.ndim != 1:
        raise MillraceError(Problem(f"keys have {array.ndim} dimensions", _HINT, field="keys"))
    match array.dtype.kind:
        case "b" | "i" | "u":
            return hash_words(read_only(array.astype(np.int64, copy=False).view(np.uint64)))
        case "f":
            return _hash_floats(array.astype(np.float64))
        case "U" | "S" | "O" | "T":
            return _hash_objects(array)
    raise MillraceError(Problem(f"keys of type {array.dtype} cannot be hashed", _HINT, field="keys"))


def _hash_floats(values: NDArray[np.float64]) -> Hashes:
    values[np.isnan(values)] = np.nan
    values += 0.0  # makes -0.0 positive
    return hash_words(read_only(values.view(np.uint64)))


def _hash_objects(array: NDArray[Any]) -> Hashes:
    """Hash texts, bytes and None; of other objects, all have to be numbers."""
    values = array.tolist()
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int | float | np.number | np.bool_) for value in known):
        filled = np.asarray([0 if value is None else value for value in values])
        if filled.dtype.kind == "O":
            raise MillraceError(Problem("keys have integers beyond 64 bits", "pass them as texts", field="keys"))
        hashes = hashes_of(filled)
    else:
        hashes = _hash_texts([b"" if value is None else _bytes(value) for value in values])
    hashes[[value is None for value in values]] = NULL
    return hashes


def _hash_texts(texts: list[bytes]) -> Hashes:
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
    return hash_bytes(read_only(data), read_only(offsets))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, int | float | np.number | np.bool_):
        message = f"the key {value!r:.60} is a number, and others are not"
        raise MillraceError(Problem(message, "pass all of them as texts", field="keys"))
    raise MillraceError(Problem(f"a key is of type {type(value).__name__}: {value!r:.60}", _HINT, field="keys"))


def _hash_arrow(keys: Any) -> Hashes:
    import pyarrow as pa

    from millrace_jobs.partitioners.key_hashes import hash_columns

    try:
        columns = _columns(keys, pa)
        return hash_columns(columns, len(columns[0]) if columns else 0)
    except (TypeError, pa.ArrowException) as error:
        raise MillraceError(Problem(f"keys cannot be hashed: {error}", _HINT, field="keys")) from None


def _columns(keys: Any, pa: Any) -> list[Any]:
    """Return the columns of the key as Arrow arrays."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return [keys]
    if isinstance(keys, pa.Table | pa.RecordBatch):
        return list(keys.columns)
    if type(keys).__module__.startswith("pandas"):
        if getattr(keys, "ndim", 1) == 2:
            return list(pa.Table.from_pandas(keys, preserve_index=False).columns)
        found = pa.Array.from_pandas(keys)
        return [found]
    found = keys.to_arrow()
    return list(found.columns) if isinstance(found, pa.Table) else [found]
