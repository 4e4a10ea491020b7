"""No fault of the metrics scales a job: whatever they say, nothing is done that would not be done without them."""

import pytest

from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.metrics import Fault, FaultyTime, MetricsProfile
from millrace_research.arena.simulation.traces import constant, step
from unit.scaling.deciding import run, scenario

SINCE, UNTIL, END = 300.0, 420.0, 480.0

SCENES = {
    "fits": (constant(180e3, END), Shape(1, 2, 2)),
    "grew before": (step(150e3, 400e3, 100, END), Shape(1, 4, 2)),
    "grows meanwhile": (step(150e3, 400e3, SINCE + 10, END), Shape(1, 4, 2)),
    "shrinks meanwhile": (step(400e3, 60e3, 200, END), Shape(3, 12, 6)),
}

WITHOUT_ANSWER = set(Fault) - {Fault.COUNTER_RESET}
"""Faults that last: a reset is over with the next scrape, after which metrics are right again."""


def scene(name, *faults):
    trace, plan = SCENES[name]
    return scenario(trace, plan, metrics=MetricsProfile(faults=faults))


@pytest.fixture(scope="module")
def sound():
    """Runs without any fault."""
    return {name: run(scene(name))[0] for name in SCENES}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("fault", Fault)
def test_no_scaling_follows_from_a_fault(fault, name, sound):
    result, policy = run(scene(name, FaultyTime(fault, SINCE, UNTIL)))
    before = [rescale for rescale in result.rescales if rescale.time < SINCE]
    assert before == [rescale for rescale in sound[name].rescales if rescale.time < SINCE]
    during = [rescale for rescale in result.rescales if SINCE + 5 <= rescale.time < UNTIL]
    if fault in WITHOUT_ANSWER:
        assert not during
        reported = {decision.reason for decision in policy.decisions if SINCE + 15 <= decision.time < UNTIL}
        assert reported == {Reason.NO_ANSWER} or (fault is Fault.FORMER_PLAN and len(before) == 0)
    else:
        assert {rescale.after for rescale in during} <= {rescale.after for rescale in sound[name].rescales}


ONE_SERIES = [
    (fault, series)
    for fault in (Fault.ABSENT, Fault.NEGATIVE, Fault.NOT_A_NUMBER)
    for series in ("batches_total", "processing_seconds_total", "executors", "parallelism", "lag_rows", "epoch")
    if fault is not Fault.NEGATIVE or series not in ("lag_rows", "epoch")  # these are 0 at times, which has no sign
]


@pytest.mark.parametrize(("fault", "series"), ONE_SERIES)
def test_one_series_that_is_wrong_is_enough_to_do_nothing(fault, series):
    result, policy = run(scene("grows meanwhile", FaultyTime(fault, SINCE, END, (series,))))
    assert not [rescale for rescale in result.rescales if rescale.time >= SINCE + 5]
    assert policy.reasons[-1] is Reason.NO_ANSWER


def test_after_a_fault_the_job_gets_what_it_needs():
    result, _ = run(scene("grows meanwhile", FaultyTime(Fault.ABSENT, SINCE, 380.0)))
    assert [rescale.time > 380 for rescale in result.rescales] == [True]
    assert result.rescales[0].after.executors >= 2
