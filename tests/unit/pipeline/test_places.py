import pytest

from millrace_jobs.pipeline.places import places

MASK = 0xFFFFFFFF


def rotate(value, bits):
    return ((value << bits) | (value >> (32 - bits))) & MASK


def murmur3(value, seed=42):
    """MurmurHash3 x86 32 of four bytes, one step at a time; signed, as Spark's ``hash``."""
    k = rotate((value & MASK) * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    h = (rotate(seed ^ k, 13) * 5 + 0xE6546B64) & MASK
    h ^= 4
    for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ (h >> shift)) * multiplier & MASK
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


def test_the_oracle_is_spark_s_hash():
    """``SELECT hash(0), hash(1), hash(-1), hash(42)`` in Spark."""
    assert [murmur3(value) for value in (0, 1, -1, 42)] == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize("n", [*range(1, 66), 100, 127, 128, 255, 256, 257, 999, 1000])
def test_worker_w_is_shuffled_to_partition_w(n):
    assert [murmur3(place) % n for place in places(n).tolist()] == list(range(n))
