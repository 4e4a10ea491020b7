"""HyperLogLog: an estimate of the number of distinct keys in a fixed 4 KiB (paper 000, section 3.2.2).

Source: Flajolet, Fusy, Gandouet, Meunier: HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm
(AofA 2007). There are m = 4096 registers of at most 31, as in paper 000, section 5.1: 5 bits each, stored in a byte for
speed. The relative standard error is about 1.04 / sqrt(m) = 1.6 %. Keys have 64-bit hashes, so the correction for
collisions of 32-bit hashes is left out.

Paper 000 says that a register depends on the left-most zero of the bits that select it. This module follows the work
that the paper cites: a register depends on the left-most one of the other bits.

Several sketches are stored side by side, one per worker. Results must never change, like those of ``mixing``: a batch
that is repeated after an upgrade must be routed the same way again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.mixing import seeded_hash

REGISTERS = 4096
"""Number of registers of a sketch, m."""

LARGEST = 31
"""Largest value of a register, which has 5 bits."""

_SALT = np.uint64(0x68797065726C6F67)  # "hyperlog": a hash independent of those that choose workers
_INDEX_BITS = 12
_REST_BITS = 64 - _INDEX_BITS
_REST = np.uint64((1 << _REST_BITS) - 1)
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
_UNIT = 1 << LARGEST  # sums are counted in units of 2**-31, so that they are exact


class HyperLogLogs(NamedTuple):
    """Sketches side by side, changed in place; sums, zeros and estimates are kept up to date with the registers."""

    registers: NDArray[np.uint8]
    """Registers of each sketch, shape ``(sketches, 4096)``."""
    sums: NDArray[np.int64]
    """Sum of ``2**-register`` over the registers, times ``2**31``; shape ``(sketches,)``."""
    zeros: NDArray[np.int64]
    """Number of registers that are 0, shape ``(sketches,)``."""
    estimates: NDArray[np.float64]
    """Estimated number of distinct keys, shape ``(sketches,)``."""


def from_registers(registers: NDArray[np.uint8]) -> HyperLogLogs:
    """Return the sketches with these registers, shape ``(sketches, 4096)``, which updates change in place.

    The union of two sketches has the larger of each two registers. Registers of 0 are an empty sketch.
    """
    sums = (_UNIT >> registers.astype(np.int64)).sum(axis=1)
    zeros = REGISTERS - np.count_nonzero(registers, axis=1)
    estimates = [estimate(*state) for state in zip(sums.tolist(), zeros.tolist(), strict=True)]
    return HyperLogLogs(registers, sums, zeros, np.array(estimates, np.float64))


@inlined
def hashed(key: np.uint64) -> np.uint64:
    """Return the hash of ``key`` that ``contains`` and ``update`` take."""
    return seeded_hash(key, _SALT)


@kernel
def estimate(power_sum: int, zeros: int) -> float:
    """Estimate the number of distinct keys.

    While some registers are 0 and the raw estimate is at most 5m/2, the estimate is that of linear counting, which
    depends only on how many registers are 0.

    Args:
        power_sum: sum of ``2**-register``, times ``2**31``.
        zeros: number of registers that are 0.
    """
    raw = _ALPHA * REGISTERS * REGISTERS * _UNIT / power_sum
    if zeros > 0 and raw <= 2.5 * REGISTERS:
        return REGISTERS * math.log(REGISTERS / zeros)
    return raw


@inlined
def contains(sketches: HyperLogLogs, sketch: int, key_hash: np.uint64) -> bool:
    """Whether a trial update of the sketch leaves its estimate unchanged (paper 000, section 3.2.2).

    True for every key that updated the sketch. Also true for keys whose register is already as large and, during
    linear counting, for all keys whose register is not 0.
    """
    old = sketches.registers[sketch, _register(key_hash)]
    new = _raised(old, key_hash)
    if new == old:
        return True
    power_sum = sketches.sums[sketch] + _difference(old, new)
    zeros = sketches.zeros[sketch] - (old == 0)
    return bool(estimate(power_sum, zeros) == sketches.estimates[sketch])


@inlined
def update(sketches: HyperLogLogs, sketch: int, key_hash: np.uint64) -> None:
    """Count a key in one sketch."""
    register = _register(key_hash)
    old = sketches.registers[sketch, register]
    new = _raised(old, key_hash)
    if new != old:
        sketches.registers[sketch, register] = new
        sketches.sums[sketch] += _difference(old, new)
        sketches.zeros[sketch] -= old == 0
        sketches.estimates[sketch] = estimate(sketches.sums[sketch], sketches.zeros[sketch])


@inlined
def _register(key_hash: np.uint64) -> int:
    """Return the register that the key counts in: the first 12 bits of its hash."""
    return int(key_hash >> np.uint64(_REST_BITS))


@inlined
def _raised(register: int, key_hash: np.uint64) -> int:
    """Return the larger of ``register`` and the position, from 1, of the left-most one in the rest of the hash."""
    rest = key_hash & _REST
    raised = np.int64(register)
    while raised < LARGEST and rest >> np.uint64(_REST_BITS - raised) == 0:
        raised += 1
    return int(raised)


@inlined
def _difference(old: int, new: int) -> int:
    """Return what raising a register from ``old`` to ``new`` adds to the sum."""
    return int((_UNIT >> np.int64(new)) - (_UNIT >> np.int64(old)))
