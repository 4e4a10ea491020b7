"""Kernels that hash keys: words by SplitMix64, bytes by XXH64 with seed 0. They need no Arrow.

Source: Collet, "XXH64 algorithm description", in the xxHash specification; comments give its step numbers. Words are
read as little-endian on every machine, eight bytes at a time: LLVM joins ``_word`` into one load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import GOLDEN, splitmix64

from .base import Hashes

NULL = np.uint64(0x6E756C6C6E756C6C)
"""Hash of a null; any fixed value serves."""


@kernel
def combine(hashes: Hashes, column: Hashes) -> None:
    """Fold the next column of a composite key into ``hashes``, in place; the product makes order matter."""
    for row in range(len(hashes)):
        hashes[row] = splitmix64(hashes[row] * GOLDEN + column[row])


@kernel
def hash_words(words: NDArray[np.uint64]) -> Hashes:
    """Return the SplitMix64 of each word, shape ``(rows,)``."""
    out = np.empty(len(words), np.uint64)
    for row in range(len(words)):
        out[row] = splitmix64(words[row])
    return out


_U = np.uint64
_P1 = _U(0x9E3779B185EBCA87)
_P2 = _U(0xC2B2AE3D27D4EB4F)
_P3 = _U(0x165667B19E3779F9)
_P4 = _U(0x85EBCA77C2B2AE63)
_P5 = _U(0x27D4EB2F165667C5)


@kernel
def hash_bytes(data: NDArray[np.uint8], offsets: NDArray[Any]) -> Hashes:
    """Return the XXH64 of each ``data[offsets[row]:offsets[row + 1]]``, shape ``(rows,)``."""
    out = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(out)):
        out[row] = _xxh64(data, _U(offsets[row]), _U(offsets[row + 1]))
    return out


# Positions are unsigned throughout: Numba would otherwise test each for Python's negative indices.
@kernel
def _xxh64(data: NDArray[np.uint8], at: np.uint64, end: np.uint64) -> np.uint64:
    length = end - at
    if length < _U(32):  # step 1, special case
        acc = _P5
    else:
        acc, at = _stripes(data, at, end)
    acc += length  # step 4
    while end - at >= _U(8):  # step 5
        acc = _rotl(acc ^ _round(_U(0), _word(data, at)), 27) * _P1 + _P4
        at += _U(8)
    if end - at >= _U(4):
        acc = _rotl(acc ^ (_half_word(data, at) * _P1), 23) * _P2 + _P3
        at += _U(4)
    while at < end:
        acc = _rotl(acc ^ (_U(data[at]) * _P5), 11) * _P1
        at += _U(1)
    acc = (acc ^ (acc >> _U(33))) * _P2  # step 6
    acc = (acc ^ (acc >> _U(29))) * _P3
    return acc ^ (acc >> _U(32))


@kernel
def _stripes(data: NDArray[np.uint8], at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Run steps 1 to 3 on the whole 32-byte stripes; return the converged accumulator and where the rest begins."""
    a, b, c, d = _P1 + _P2, _P2, _U(0), _U(0) - _P1
    while end - at >= _U(32):
        a = _round(a, _word(data, at))
        b = _round(b, _word(data, at + _U(8)))
        c = _round(c, _word(data, at + _U(16)))
        d = _round(d, _word(data, at + _U(24)))
        at += _U(32)
    acc = _rotl(a, 1) + _rotl(b, 7) + _rotl(c, 12) + _rotl(d, 18)
    for lane in (a, b, c, d):
        acc = (acc ^ _round(_U(0), lane)) * _P1 + _P4
    return acc, at


@kernel
def _round(acc: np.uint64, lane: np.uint64) -> np.uint64:
    return _rotl(acc + lane * _P2, 31) * _P1


@kernel
def _rotl(x: np.uint64, bits: int) -> np.uint64:
    return (x << _U(bits)) | (x >> _U(64 - bits))


@kernel
def _word(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    return _half_word(data, at) | (_half_word(data, at + _U(4)) << _U(32))


@kernel
def _half_word(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    low = _U(data[at]) | (_U(data[at + _U(1)]) << _U(8))
    high = _U(data[at + _U(2)]) | (_U(data[at + _U(3)]) << _U(8))
    return low | (high << _U(16))
