import dataclasses

import numpy as np
import pytest

from millrace_operator.scaling.shape import Shape
from millrace_research.arena.figures import Settling, figures, oscillations, reversals, settling, step_changes
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.record import Rescale, SimulatedBatch, SimulatedRun

from .states import BOUNDS, INTERVAL

RATE = 100.0


def run_of(seconds, rescales=(), backlog=0, duration=None):
    """Batches every two seconds which take ``seconds``; rescales are (time, executors before, executors after)."""
    batches = tuple(
        SimulatedBatch(
            INTERVAL * number, took, 200, INTERVAL * (number - 1), INTERVAL * number, backlog, 10, 0, Shape(2, 8, 4), 2
        )
        for number, took in enumerate(seconds)
    )
    return SimulatedRun(
        policy="some",
        duration=duration or INTERVAL * len(batches),
        interval=INTERVAL,
        batches=batches,
        rescales=tuple(Rescale(time, Shape(low, 8, 4), Shape(high, 8, 4)) for time, low, high in rescales),
        core_seconds=7200.0,
        arrived=200 * len(batches),
        unfinished=0,
        unfinished_since=0.0,
    )


def test_a_run_has_figures_of_violations_latency_and_cost():
    found = figures(run_of([1.0] * 6 + [2.0, 3.0]), traces.constant(RATE, 16.0), BOUNDS, oracle_core_hours=1.6)
    assert found.over_interval == found.violations == 1 / 8
    assert (found.core_hours, found.over_oracle) == (2.0, 1.25)
    assert 1.0 < found.latency_p50 < 3.0 < found.latency_p99 < 5.0
    assert found.late == pytest.approx(0.5 / 8)  # of the longest batch, half of the records waited more than a second
    assert found.settling == ()


def test_a_batch_whose_records_waited_is_not_in_time():
    run = run_of([1.0] * 8)
    waited = [batch._replace(oldest=batch.oldest - 1.5 * (batch.planned > 8)) for batch in run.batches]
    found = figures(dataclasses.replace(run, batches=tuple(waited)), traces.constant(RATE, 16.0), BOUNDS)
    assert (found.over_interval, found.violations) == (0.0, 3 / 8)


def test_the_oracle_may_not_have_run():
    assert figures(run_of([1.0] * 8), traces.constant(RATE, 16.0), BOUNDS).over_oracle is None


def test_step_changes_are_jumps_between_flat_parts():
    assert step_changes(traces.step(RATE, 2 * RATE, 1000.0, 3000.0)) == [1000.0]
    assert step_changes(traces.step(RATE, 1.1 * RATE, 1000.0, 3000.0)) == []
    assert step_changes(traces.steps([1, 2, 1], [0, 700, 1400], 2100)) == [700.0, 1400.0]
    assert step_changes(traces.spike(RATE, 2 * RATE, 1000.0, 60.0, 3000.0)) == []
    assert step_changes(traces.sawtooth(RATE, 2 * RATE, 900.0, 3600.0)) == []
    assert step_changes(traces.ramp(RATE, 2 * RATE, 900.0, 1000.0, 3600.0)) == []
    assert step_changes(traces.diurnal(RATE, 2 * RATE)) == []


def test_a_job_has_settled_with_ten_batches_within_the_interval_after_the_last_rescale():
    overloaded, calm = [2.5] * 10, [1.0] * 40
    assert settling(run_of(calm + overloaded + calm), [80.0]) == (Settling(80.0, 0, 20.0),)
    rescaled = run_of(calm + overloaded + calm, [(85.0, 1, 2), (111.0, 2, 3)])
    assert settling(rescaled, [80.0]) == (Settling(80.0, 2, 32.0),)


def test_a_long_batch_restarts_the_ten():
    assert settling(run_of([1.0] * 9 + [2.5] + [1.0] * 10), [0.0])[0].seconds == 20.0


def test_a_job_that_is_never_calm_has_not_settled():
    assert settling(run_of([1.0] * 9 + [2.5] * 30), [0.0]) == (Settling(0.0, 0, None),)
    assert settling(run_of([1.0] * 30, [(58.0, 1, 2)]), [0.0]) == (Settling(0.0, 1, None),)


def test_each_step_change_has_what_follows_until_the_next():
    found = settling(run_of([1.0] * 60, [(10.0, 1, 2), (70.0, 2, 1)]), [0.0, 60.0])
    assert [(step.time, step.rescales, step.seconds) for step in found] == [(0.0, 1, 10.0), (60.0, 1, 10.0)]


def swing(first, second, trace, backlog=0):
    run = run_of([1.0] * 1800, [(first, 2, 4), (second, 4, 2)], backlog)
    return oscillations(run, trace, BOUNDS)


def test_an_oscillation_is_taken_back_within_ten_minutes_for_no_reason():
    flat = traces.constant(RATE, 3600.0)
    assert swing(1000.0, 1600.0, flat) == 1
    assert swing(1000.0, 1601.0, flat) == 0


def test_a_change_of_the_load_explains_a_rescale():
    assert swing(1000.0, 1500.0, traces.step(RATE, 0.8 * RATE, 1200.0, 3600.0)) == 0
    assert swing(1000.0, 1500.0, traces.step(RATE, 1.2 * RATE, 1200.0, 3600.0)) == 1


def test_a_backlog_that_is_gone_explains_a_rescale():
    run = run_of([1.0] * 1800, [(1000.0, 2, 4), (1500.0, 4, 2)])
    drained = [batch._replace(backlog=6000 if batch.planned < 1200 else 0) for batch in run.batches]
    drained = dataclasses.replace(run, batches=tuple(drained))
    assert oscillations(drained, traces.constant(RATE, 3600.0), BOUNDS) == 0


def test_rescales_of_tasks_only_are_no_oscillation():
    run = run_of([1.0] * 1800, [(1000.0, 2, 4), (1200.0, 4, 2)])
    reshaped = tuple(
        Rescale(rescale.time, Shape(2, 8, 4), Shape(2, tasks, 4))
        for rescale, tasks in zip(run.rescales, (16, 8), strict=True)
    )
    assert oscillations(dataclasses.replace(run, rescales=reshaped), traces.constant(RATE, 3600.0), BOUNDS) == 0


def test_a_reversal_is_taken_back_within_a_quarter_of_an_hour_whatever_the_load_did():
    def count(*rescales):
        return reversals(run_of([1.0] * 1800, rescales), BOUNDS)

    assert count((1000.0, 2, 4), (1900.0, 4, 3)) == 1
    assert count((1000.0, 4, 2), (1900.0, 2, 4)) == 1
    assert count((1000.0, 2, 4), (1901.0, 4, 2)) == 0
    assert count((1000.0, 2, 4), (1100.0, 4, 6), (1200.0, 6, 3)) == 1


def test_noise_of_the_load_is_not_taken_for_a_change():
    noisy = traces.constant(RATE, 3600.0).noisy(0.05, 10.0, seed=1)
    assert np.ptp(noisy.rates) > 0.2 * RATE
    assert swing(1000.0, 1300.0, noisy) == 1
