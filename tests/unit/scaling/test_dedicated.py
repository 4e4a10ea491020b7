"""Partitioner replicas in pods of their own: they are sized by their load, and the job behind them by its batches."""

from dataclasses import replace

from millrace_arena.simulation.job import JobProfile, StageCost
from millrace_arena.simulation.traces import step
from millrace_operator.scaling.shape import Shape
from unit.scaling.deciding import BOUNDS, run, scenario

DEDICATED = replace(BOUNDS, replica_cores=1.0)
# a pod routes 100,000 records a second
JOB = JobProfile(route=StageCost(task=0.0, row=1e-5))


def test_pods_and_executors_follow_the_load_together():
    load = step(80e3, 450e3, 300, 900)
    result, _ = run(scenario(load, Shape(1, 4, 1), DEDICATED, job=JOB))
    last = result.rescales[-1].after
    assert 5 <= last.replicas <= 8
    assert last.executors > 1
    assert len([rescale for rescale in result.rescales if rescale.time > 300]) <= 3
    assert result.batches[-1].backlog < 2 * 450e3 * 2


def test_pods_that_are_idle_are_given_back():
    load = step(450e3, 80e3, 300, 1500)
    result, _ = run(scenario(load, Shape(4, 16, 6), DEDICATED, job=JOB))
    assert result.rescales[-1].after.replicas <= 2
    assert result.rescales[-1].after.executors < 4


def test_pods_that_are_busy_are_no_reason_for_executors():
    # 90,000 records a second are 0.9 of a pod, and little for three executors
    result, _ = run(scenario(step(60e3, 92e3, 300, 900), Shape(3, 12, 1), DEDICATED, job=JOB))
    assert result.rescales[-1].after.replicas >= 2
    assert max(rescale.after.executors for rescale in result.rescales) <= 3
