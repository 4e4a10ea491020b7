"""Partitioner replicas in pods of their own: they are sized by their load, and the job behind them by its batches."""

import json
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.job import JobProfile, StageCost
from millrace_research.arena.simulation.run import simulate
from millrace_research.arena.simulation.traces import step
from unit.scaling.deciding import BOUNDS, Recorder, run, scenario

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


class Waiting(Recorder):
    """A scaler of pods that need a processor for a third of their work, and wait for the broker in the rest."""

    def step(self, answer, situation):
        if answer is not None and answer.dedicated_busy_seconds_total is not None:
            answer = replace(answer, dedicated_busy_seconds_total=answer.dedicated_busy_seconds_total / 3)
        return super().step(answer, situation)


def test_pods_that_wait_for_the_broker_are_too_few_when_records_wait_for_them():
    scene = scenario(step(60e3, 250e3, 300, 1200), Shape(4, 16, 1), DEDICATED, job=JOB)
    result = simulate(scene, Waiting(scene), 1)
    assert 3 <= result.rescales[-1].after.replicas <= 5
    assert result.batches[-1].backlog < 2 * 250e3 * 2


def test_what_was_learned_under_another_placement_is_not_used():
    dedicated, inline = (Scaler(Settings(), bounds, 8) for bounds in (DEDICATED, BOUNDS))
    saved = json.loads(json.dumps(dedicated.save()))
    Scaler(Settings(), DEDICATED, 8).restore(saved)
    with pytest.raises(ValueError, match="another placement"):
        inline.restore(saved)
    before = inline.save()
    del before["dedicated"]  # by a version that had one placement alone
    Scaler(Settings(), BOUNDS, 8).restore(json.loads(json.dumps(before)))
