from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.run import simulate
from millrace_research.arena.simulation.source import TwoIntervals

from .scenes import EASY, Patient, rates, scene


def test_everything_is_let_in_before_a_batch_has_told_anything():
    assert TwoIntervals(2.0).limit(0) is None


def test_the_batch_that_allows_most_of_three_counts_and_empty_ones_do_not():
    admission = TwoIntervals(2.0)
    admission.finished(1000, 1.0, 1.0, None)
    assert admission.limit(0) == 4000
    for rows, seconds in ((1000, 2.0), (0, 0.05), (1000, 2.0)):
        admission.finished(rows, seconds, seconds, None)
        assert admission.limit(0) == 4000
    admission.finished(1000, 2.0, 2.0, None)
    assert admission.limit(0) == 2000


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0.01, 1e4)), min_size=1))
def test_no_batch_makes_the_next_one_smaller(batches):
    admission = TwoIntervals(2.0)
    for rows, seconds in batches:
        admission.finished(rows, seconds, seconds, None)
        assert admission.limit(0) >= rows


def test_the_fixed_cap_holds_as_well():
    job = replace(EASY, admission=TwoIntervals, max_rows=300)
    run = simulate(scene(rates((0, 1000), (60, 1000)), job=job), Patient(), 1)
    assert {batch.rows for batch in run.batches if batch.planned > 2} == {300}


@given(fixed=st.floats(0, 3.0), record=st.floats(1e-6, 1e-2))
def test_full_batches_come_to_take_two_intervals(fixed, record):
    admission, rows = TwoIntervals(2.0), 1
    for _ in range(200):
        admission.finished(rows, fixed + rows * record, rows * record, None)
        rows = admission.limit(0)
    assert fixed + rows * record == pytest.approx(4.0, rel=0.01, abs=2 * record)


def test_a_backlog_is_worked_off_in_batches_of_two_intervals():
    job = replace(EASY, admission=TwoIntervals)
    # 1 ms a record and 0.3 s besides: 3700 in 4 s; 20,000 come at once after 10 s of 500 a second
    arrivals = rates((0, 500), (10, 500), (10, 200_000), (10.1, 200_000), (10.1, 500), (120, 500))
    run = simulate(scene(arrivals, job=job), Patient(), 1)
    late = [batch for batch in run.batches if batch.planned > 10]
    assert 3.9 < max(batch.seconds for batch in late) < 4.1
    assert late[-1].backlog <= 1000
    assert sum(batch.rows for batch in run.batches) + run.unfinished == run.arrived
