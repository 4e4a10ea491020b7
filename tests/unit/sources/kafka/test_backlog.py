"""Backlogs of partitions that hold much and little, old and new: read to the same time in all of them."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka.backlog import ENOUGH, BacklogCutter

NOW = 1_700_000_000.0


class Log:
    """Partitions as Kafka looks them up: by offset, with a timestamp for each record."""

    def __init__(self, times):
        self.times = {Partition("t", number): times for number, times in enumerate(times)}
        self.asked = 0

    def at(self, moment, partitions):
        self.asked += 1
        return {
            p: next((offset for offset, time in enumerate(self.times[p]) if time is not None and time >= moment), None)
            for p in partitions
        }


def drained(log, most, timeline=None):
    """The batches of a backlog, each as what it takes: offsets by partition."""
    timeline = timeline or BacklogCutter(log.at, lambda: NOW)
    at = dict.fromkeys(log.times, 0)
    for turn in itertools.count():
        begins = {p: offset for p, offset in at.items() if offset < len(log.times[p])}
        ends = {p: len(log.times[p]) for p in begins}
        if sum(ends.values()) - sum(begins.values()) <= most:
            yield {p: (begins[p], ends[p]) for p in begins}
            return
        cut = timeline.cut(begins, ends, most, turn * most)
        assert all(begins[p] <= end <= ends[p] for p, end in cut.items())
        assert 0 < sum(end - begins[p] for p, end in cut.items()) <= most
        yield {p: (begins[p], end) for p, end in cut.items()}
        at |= cut


def newest_read_and_oldest_left(log, batches):
    """After each batch."""
    at = dict.fromkeys(log.times, 0)
    newest = 0
    for batch in batches:
        for partition, (begin, end) in batch.items():
            newest = max([newest, *log.times[partition][begin:end]])
            at[partition] = end
        left = [log.times[partition][offset] for partition, offset in at.items() if offset < len(log.times[partition])]
        yield newest, min(left, default=newest)


TIMES = st.lists(st.integers(0, 10**6).map(lambda ms: int(NOW * 1000) - ms), max_size=60).map(sorted)


@given(st.lists(TIMES, min_size=1, max_size=6), st.integers(1, 50))
def test_no_batch_is_ahead_in_one_partition_of_what_it_leaves_in_another(times, most):
    log = Log(times)
    for newest, oldest_left in newest_read_and_oldest_left(log, drained(log, most)):
        assert newest <= oldest_left + 1


def test_a_small_and_a_new_partition_are_read_to_the_same_time_as_a_large_one():
    chance = random.Random(5)
    begin = int(NOW * 1000) - 300_000

    def spread(records, since=0):
        return sorted(begin + chance.randint(since, 299_000) for _ in range(records))

    log = Log([spread(3000), spread(500), spread(40), spread(3), spread(1), spread(200, since=250_000)])
    batches = list(drained(log, 130))
    for newest, oldest_left in newest_read_and_oldest_left(log, batches):
        assert newest <= oldest_left + 1
    sizes = [sum(end - begin for begin, end in batch.values()) for batch in batches]
    assert min(sizes[:-1]) >= ENOUGH * 130
    assert log.asked < 12 * len(batches)


@pytest.mark.parametrize(
    "odd",
    [
        [None] * 500,  # no timestamps at all
        [int(NOW * 1000) + 10**9] * 500,  # from a clock that is ahead
        [int(NOW * 1000) + 10**9, *range(499)],  # only its first record
        [0] * 500,
        [int(NOW * 1000) - 5] * 500,
    ],
    ids=["none", "to come", "the first to come", "all as old as can be", "all the same"],
)
def test_times_that_tell_nothing_stop_nobody(odd):
    usual = [int(NOW * 1000) - 10**6 + 100 * number for number in range(2000)]
    for times in ([odd], [odd, usual], [odd, odd, usual, []]):
        log = Log(times)
        taken = dict.fromkeys(log.times, 0)
        batches = list(drained(log, 100))
        for batch in batches:
            for partition, (begin, end) in batch.items():
                assert begin == taken[partition]
                taken[partition] = end
        assert taken == {p: len(times) for p, times in log.times.items()}
        assert len(batches) < 3 * sum(map(len, times)) / 100 + 5


def test_a_backlog_is_cut_again_from_an_older_position():
    log = Log([[int(NOW * 1000) - 10**6 + number for number in range(1000)] for _ in range(3)])
    timeline = BacklogCutter(log.at, lambda: NOW)
    first = list(drained(log, 100, timeline))
    again = list(drained(log, 100, timeline))  # as after a restart of the query, from an older position
    for batches in (first, again):
        for newest, oldest_left in newest_read_and_oldest_left(log, batches):
            assert newest <= oldest_left + 1
