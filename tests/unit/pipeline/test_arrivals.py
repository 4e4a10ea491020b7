"""RecordLatencies from the histograms of slices: weighed by records, and rounded by a share of the age only."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.pipeline.arrivals import Arrivals, RecordLatencies
from millrace_jobs.sources.base import MOST_TIMES, sampled

AT = 1_769_860_800.0


def arrivals(*ages):
    """The note of a slice with one record of each age in seconds."""
    slice_ = Arrivals(AT)
    slice_.add(np.array([round((AT - age) * 1e6) for age in ages], np.int64), np.ones(len(ages), np.int64))
    return json.loads(json.dumps(slice_.note()))


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e3))
def test_a_latency_is_the_age_and_the_time_to_the_commit(age, later):
    latencies = RecordLatencies.of([arrivals(age)], AT + later)
    assert latencies.records.tolist() == [1]
    assert latencies.seconds[0] == pytest.approx(age + later, rel=0.1, abs=0.002)


def test_slices_are_added_up_each_with_its_own_time():
    other = Arrivals(AT + 5)
    other.add(np.array([round(AT * 1e6)]), np.array([7]))
    latencies = RecordLatencies.of([arrivals(1.0, 1.0, 1.0), {}, other.note()], AT + 6)
    assert latencies.records.tolist() == [3, 7]
    assert latencies.seconds == pytest.approx([7.0, 6.0], rel=0.1)


def test_what_seems_to_arrive_after_its_commit_has_no_latency_below_zero():
    assert RecordLatencies.of([arrivals(-100.0)], AT - 50).seconds.tolist() == [0.0]


def test_a_note_is_small_however_many_records_there_are():
    slice_ = Arrivals(AT)
    ages = np.random.default_rng(1).exponential(30.0, 1_000_000)
    slice_.add(np.round((AT - ages) * 1e6).astype(np.int64), np.ones(len(ages), np.int64))
    assert len(json.dumps(slice_.note())) < 2000
    latencies = RecordLatencies.of([slice_.note()], AT + 1)
    assert latencies.records.sum() == len(ages)
    assert np.average(latencies.seconds, weights=latencies.records) == pytest.approx(31.0, rel=0.02)


def test_without_arrivals_there_is_nothing_in_the_note():
    assert Arrivals(AT).note() == {}
    assert not len(RecordLatencies.of([{}], AT).records)


@given(st.integers(1, 100_000))
def test_a_sample_stands_for_every_record(records):
    indexes, weights = sampled(records)
    assert weights.sum() == records
    assert len(indexes) == len(weights) <= MOST_TIMES
    assert indexes[-1] < records
