"""SIGTERM to a job from Kafka to Kafka: the running batch ends, everything is committed, and the next run goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fault_settings import chance
from lab import topics
from lab.kafka import Broker

from .faults.job import PATIENCE, Job
from .faults.queries import PYTHON
from .faults.scene import SINK, Scene, scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]


def newest(stage: Scene, log: str) -> int:
    """Number of the last batch in one of Spark's logs."""
    return max(int(file.name) for file in (stage.checkpoint / "spark" / log).iterdir() if file.name.isdigit())


def test_a_job_that_is_told_to_end_finishes_its_batch_and_loses_nothing(own_broker: Broker, tmp_path: Path) -> None:
    with scene(PYTHON, own_broker, tmp_path, chance("drain"), iter(())) as stage:
        assert stage.job.wait_for_batches(3), stage.job.report()

        second = Job.like(stage.job, "second")
        second.start()
        second.assert_refused()
        assert second.batches() == 0

        # in the middle of a transaction
        stage.proxy.hold_at("EndTxn")
        assert stage.proxy.wait_for_moment(PATIENCE), stage.job.report()
        running = newest(stage, "offsets")
        stage.job.process.send(signal.SIGTERM)
        stage.proxy.heal()
        drained(stage)
        committed = newest(stage, "commits")
        assert committed >= running

        # at any other moment
        stage.job.start()
        assert stage.job.wait_for_batches(2), stage.job.report()
        stage.job.process.send(signal.SIGTERM)
        drained(stage)
        assert newest(stage, "commits") > committed
        stage.end()


def drained(stage: Scene) -> None:
    """It has ended in good order: every batch that was begun is committed, and no transaction is left open."""
    assert stage.job.wait() == 0, stage.job.report()
    assert not stage.job.complained
    assert "drained=steady" in stage.job.said
    assert newest(stage, "offsets") == newest(stage, "commits")
    assert not topics.open_transactions(stage.broker, SINK)
    stage.check()
