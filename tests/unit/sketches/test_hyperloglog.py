import math

import numpy as np
import pytest
from hypothesis import given, settings

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.sketches.hyperloglog import REGISTERS, contains, estimate, from_registers, hashed, update
from unit.partitioners.oracles_cardinality import HyperLogLog
from unit.partitioners.streams import keys

ERROR = 1.04 / math.sqrt(REGISTERS)


def empty(sketches=1):
    return from_registers(np.zeros((sketches, REGISTERS), np.uint8))


@kernel
def add(sketches, sketch, stream):
    for key in stream:
        update(sketches, sketch, hashed(key))


@given(keys)
@settings(max_examples=30)
def test_agrees_with_the_oracle_key_by_key(stream):
    sketches, oracle = empty(2), HyperLogLog()
    for key in stream[:60]:
        key_hash = np.uint64(hashed(key))
        assert contains(sketches, 1, key_hash) == oracle.contains(int(key))
        update(sketches, 1, key_hash)
        oracle.update(int(key))
        assert sketches.registers[1].tolist() == list(oracle.registers)
        assert sketches.estimates.tolist() == [0.0, oracle.estimate()]
        assert contains(sketches, 1, key_hash)


@pytest.mark.parametrize("distinct", [10, 1000, 10_000, 20_000, 100_000, 1_000_000])
def test_the_error_is_as_flajolet_says(distinct):
    """Over 12 streams, the root of the mean squared error, and no bias; most keys come twice."""
    errors = []
    for run in range(12):
        sketches = empty()
        stream = np.arange(run * 10_000_000, run * 10_000_000 + distinct, dtype=np.uint64)
        add(sketches, 0, stream)
        add(sketches, 0, stream[: distinct // 2])
        errors.append(sketches.estimates[0] / distinct - 1)
    # The raw estimate is known to be about 1 % too large where it takes over from linear counting.
    assert math.sqrt(np.mean(np.square(errors))) < 1.6 * ERROR
    assert abs(np.mean(errors)) < ERROR


def test_what_is_kept_up_to_date_is_what_the_registers_say():
    sketches = empty(3)
    for sketch, distinct in enumerate((0, 3000, 300_000)):
        add(sketches, sketch, np.arange(distinct, dtype=np.uint64))
    again = from_registers(sketches.registers)
    assert again.sums.tolist() == sketches.sums.tolist()
    assert again.zeros.tolist() == sketches.zeros.tolist()
    assert again.estimates.tolist() == sketches.estimates.tolist()


@given(keys, keys)
@settings(max_examples=30)
def test_the_larger_registers_are_those_of_the_union(one, two):
    sketches = empty(3)
    add(sketches, 0, one)
    add(sketches, 1, two)
    add(sketches, 2, np.concatenate([one, two]))
    assert np.maximum(*sketches.registers[:2]).tolist() == sketches.registers[2].tolist()


def with_register(value, zeros):
    """A sketch with ``zeros`` registers of 0, the first one of ``value``, and the rest of 3."""
    registers = np.full((1, REGISTERS), 3, np.uint8)
    registers[0, REGISTERS - zeros :] = 0
    registers[0, 0] = value
    return from_registers(registers)


# Hashes whose register is the first one. Their other 52 bits begin with 9 zeros, or with none.
RARE, COMMON = np.uint64(1 << 42), np.uint64(1 << 51)


def test_in_linear_counting_any_register_but_0_passes_for_the_key():
    sketches = with_register(1, zeros=2000)
    assert estimate(int(sketches.sums[0]), 2000) == pytest.approx(REGISTERS * math.log(REGISTERS / 2000))
    assert contains(sketches, 0, RARE)
    assert not contains(with_register(0, zeros=2000), 0, COMMON)


def test_beyond_linear_counting_only_a_register_as_large_passes():
    assert contains(with_register(10, zeros=0), 0, RARE)
    assert not contains(with_register(9, zeros=0), 0, RARE)
    assert contains(with_register(1, zeros=0), 0, COMMON)


def test_a_register_stays_within_5_bits():
    sketches = empty()
    update(sketches, 0, np.uint64(0))
    assert sketches.registers[0, 0] == 31
    assert contains(sketches, 0, np.uint64(0))
