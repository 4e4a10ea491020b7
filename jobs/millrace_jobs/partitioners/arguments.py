"""Argument checks that all partitioners share."""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace_jobs.kernels.compiling import read_only

from .base import Hashes


def whole_number(name: str, value: Any, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``. Raises ValueError, which quotes it, if not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; write a whole number of at least {least}")
    return int(value)


def key_block(keys: Hashes) -> Hashes:
    """Return ``keys`` in the layout of the kernels. Raises TypeError unless it is one-dimensional and ``uint64``.

    Other arrays are not converted, because that would hide that replicas disagree on what a key's hash is.
    """
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise TypeError(f"a block of keys is a uint64 array of one dimension, not {keys.dtype} of {keys.ndim}")
    return read_only(keys)
