import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.answers import ESSENTIAL, AnswerReader
from millrace_operator.scaling.observation import COUNTERS, SERIES, Observation

from .recorded_job import EPOCH, Job, check_truth

JOBS = st.builds(
    Job,
    interval=st.sampled_from([1.0, 2.0, 10.0]),
    rate=st.sampled_from([0.0, 3.0, 1000.0]),
    seconds=st.sampled_from([0.1, 0.8, 1.9, 4.0, 35.0]),
)


def low(names, share):
    """Counters at a share of what they were before."""
    return lambda before, answer: replace(
        answer, **{name: share * getattr(before[-1], name) for name in names if getattr(answer, name) is not None}
    )


def with_value(make, names):
    return st.sampled_from(names).map(lambda name: lambda before, answer: replace(answer, **{name: make(answer, name)}))


ONE_FAULT = st.one_of(
    st.just(lambda before, answer: None),
    with_value(lambda answer, name: math.nan, SERIES),
    with_value(lambda answer, name: -math.inf, SERIES),
    with_value(lambda answer, name: None, ESSENTIAL),
    with_value(lambda answer, name: -getattr(answer, name) - 1, ESSENTIAL),
    st.builds(low, st.just(COUNTERS), st.floats(0.0, 0.9)),
    st.builds(low, st.sampled_from(COUNTERS).map(lambda name: (name,)), st.floats(0.0, 0.9)),
    st.just(lambda before, answer: before[-1]),
    st.just(lambda before, answer: before[0]),
    st.just(lambda before, answer: replace(before[-1], time=answer.time)),
    st.just(lambda before, answer: replace(answer, time=before[-1].time)),
    st.just(lambda before, answer: replace(answer, time=before[0].time - 1)),
    st.just(lambda before, answer: replace(answer, time=answer.time + 1000)),
    st.just(lambda before, answer: replace(answer, epoch=0.0)),
    st.just(lambda before, answer: replace(answer, executors=0.0)),
    st.just(lambda before, answer: replace(answer, processing_seconds_total=answer.processing_seconds_total + 1e4)),
)
"""Changes of an answer, given those before it."""


@settings(max_examples=300, deadline=None)
@given(job=JOBS, fault=ONE_FAULT, at=st.integers(9, 29), lost=st.sets(st.integers(9, 29)), delay=st.floats(0, 50))
def test_one_fault_anywhere_never_makes_an_observation_that_is_not_true(job, fault, at, lost, delay):
    """Whatever one answer says, and however many are lost: the numbers are those of batches that really ran."""
    job.run(max(150.0, 8 * job.seconds))  # enough batches for an observation that the fault does not touch
    reading, given, found = AnswerReader(), [], []
    for number, answer in enumerate(job.answers):
        if number == at:
            found.append(reading.step(fault(given, answer), answer.time + delay, EPOCH))
        elif number not in lost:
            given.append(answer)
            found.append(reading.step(answer, answer.time + delay, EPOCH))
        if isinstance(found[-1], Observation):
            check_truth(job, found[-1])
            assert found[-1].until >= given[-1].time - 5
    assert lost or any(isinstance(one, Observation) for one in found)


@settings(max_examples=100, deadline=None)
@given(job=JOBS, changes=st.lists(st.tuples(st.floats(5, 60), st.integers(1, 9), st.booleans()), max_size=4))
def test_no_change_of_the_plan_makes_an_observation_that_is_not_true(job, changes):
    """Executors come and go, with or without a new plan, at any time: observations are of batches under one plan."""
    reading, done = AnswerReader(), 0
    for passed, executors, new_plan in [*changes, (60, 3, False)]:
        job.run((job.answers[-1].time if job.answers else 0.0) + passed)
        for answer in job.answers[done:]:
            found = reading.step(answer, answer.time, job.epoch)
            if isinstance(found, Observation):
                check_truth(job, found)
                assert found.plan.parallelism == job.parallelism
        done = len(job.answers)
        job.executors = executors
        if new_plan:
            job.epoch, job.parallelism = job.epoch + 1, job.parallelism + 1
