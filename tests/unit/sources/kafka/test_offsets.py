"""Admission and slices over partitions of any skew, and positions."""

import json

from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka.backlog import admit
from millrace_jobs.sources.kafka.offsets import OffsetRange, cut_ranges, of_position, to_position

PARTITIONS = st.builds(Partition, st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 40))
WAITING = st.dictionaries(PARTITIONS, st.integers(0, 10**9) | st.integers(0, 5), max_size=30)


@given(WAITING, st.integers(1, 10**9), st.integers(0, 10**6))
def test_a_batch_takes_as_much_as_is_admitted_and_from_nobody_more_than_it_has(waiting, most, turn):
    admitted = admit(waiting, most, turn)
    assert sum(admitted.values()) == min(most, sum(waiting.values()))
    assert all(0 < offsets <= waiting[partition] for partition, offsets in admitted.items())


@given(WAITING, st.integers(1, 10**9))
def test_shares_are_in_proportion(waiting, most):
    some = {partition: records for partition, records in waiting.items() if records}
    if most < len(some) or most >= sum(some.values()):
        return
    admitted = admit(waiting, most, 0)
    spare = sum(some.values()) - len(some)
    for partition, records in some.items():
        exact = 1 + (records - 1) * (most - len(some)) / spare if spare else 1
        assert abs(admitted[partition] - exact) < 1 + 1e-6 * exact


@given(st.integers(1, 12), st.integers(1, 11))
def test_with_more_partitions_than_records_admitted_all_have_their_turn(partitions, most):
    waiting = {Partition("t", number): 10**6 for number in range(partitions)}
    seen, turn = set(), 0
    for _ in range(-(-partitions // most)):
        seen |= admit(waiting, most, turn).keys()
        turn += most
    assert seen == waiting.keys()


def test_a_small_partition_does_not_starve_beside_a_large_one():
    large, small = Partition("t", 0), Partition("t", 1)
    waiting = {large: 10**9, small: 3}
    for _ in range(3):
        for partition, offsets in admit(waiting, 1000, 0).items():
            waiting[partition] -= offsets
    assert waiting[small] == 0


RANGES = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 2**60), st.integers(1, 10**6) | st.just(10**12)))


@given(RANGES, st.integers(1, 50))
def test_slices_differ_by_one_offset_and_cover_every_range_once(drawn, replicas):
    ranges = [OffsetRange(p, begin, begin + length) for p, (begin, length) in sorted(drawn.items())]
    slices = cut_ranges(ranges, replicas)
    lengths = [sum(map(len, piece.ranges)) for piece in slices]
    assert len(slices) == min(replicas, sum(map(len, ranges)))
    assert not lengths or max(lengths) - min(lengths) <= 1
    merged = []
    for part in (part for piece in slices for part in piece.ranges):
        assert part.begin < part.end
        if merged and merged[-1].partition == part.partition:
            assert merged[-1].end == part.begin
            merged[-1] = OffsetRange(part.partition, merged[-1].begin, part.end)
        else:
            merged.append(part)
    assert merged == ranges
    assert cut_ranges(ranges, replicas) == slices


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**62)))
def test_positions_survive_json_and_are_always_written_alike(offsets):
    position = to_position(offsets)
    assert of_position(json.loads(json.dumps(position))) == offsets
    assert json.dumps(position) == json.dumps(to_position(dict(reversed(offsets.items()))))
    assert all(set(number) <= set("0123456789") for numbers in position.values() for number in numbers)
