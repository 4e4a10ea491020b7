"""Two drivers on one checkpoint, against every lock: the older one can commit nothing more, and says why it ends.

The older one is stopped in the middle of a batch, as a machine does that hangs; its lock and its lease are taken away,
and another driver goes on. Then the older one wakes up where it was, and what it had sent last arrives at last.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fault_settings import FAULTS, chance
from lab.kafka import Broker

from .faults.job import PATIENCE, Job
from .faults.queries import BATCH, PARTITION, PYTHON, TABLE, by_tasks
from .faults.scene import Scene, scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow(minutes=1), pytest.mark.timeout(900)]


@pytest.fixture
def stage(request: pytest.FixtureRequest, own_broker: Broker, tmp_path: Path) -> Iterator[Scene]:
    """A job that has finished some batches."""
    with scene(request.param, own_broker, tmp_path, chance(request.node.name), iter(())) as made:
        assert made.job.wait_for_batches(made.chance.randint(2, 6)), made.job.report()
        yield made


def stop_at(stage: Scene, moment: str) -> Job:
    """Let the job hang when it sends a request of this kind, which does not arrive; returns it."""
    stage.proxy.hold_at(moment)
    assert stage.proxy.wait_for_moment(PATIENCE), f"no {moment} came: {stage.job.report()}"
    stage.job.process.pause()
    return stage.job


def unlock(checkpoint: Path) -> None:
    """Take away what keeps a second driver out."""
    (checkpoint / "lock").unlink()
    (checkpoint / "lease.json").unlink()


def assert_it_ends(zombie: Job) -> None:
    """It ends by itself, and the sentence says that there is another driver."""
    zombie.assert_refused()
    assert "taken over" in zombie.complained or "has results up to batch" in zombie.complained, zombie.report()


def wake_up(stage: Scene, zombie: Job) -> None:
    """Let the older driver go on: it ends, and the younger one does not notice."""
    stage.proxy.heal()
    zombie.process.resume()
    assert_it_ends(zombie)
    assert stage.job.wait_for_batches(2), stage.job.report()


MOMENTS = {
    BATCH: [
        pytest.param(PYTHON, "EndTxn", id="when it commits"),
        pytest.param(TABLE, "Produce", id="when it writes"),
        pytest.param(PYTHON, "Fetch", id="when it reads"),
    ],
    PARTITION: [
        pytest.param(by_tasks(PYTHON), "EndTxn", id="when a task commits"),
        pytest.param(by_tasks(PYTHON), "Produce", id="when a task writes"),
        pytest.param(by_tasks(PYTHON), "TxnOffsetCommit", id="when a task writes its number"),
    ],
}


@pytest.mark.parametrize(
    ("stage", "moment"),
    [each for moments in MOMENTS.values() for each in moments[: max(1, FAULTS - 1)]],
    indirect=["stage"],
)
def test_a_driver_that_wakes_up_commits_nothing_more(stage: Scene, moment: str) -> None:
    zombie = stop_at(stage, moment)
    unlock(stage.checkpoint)
    stage.job = Job.like(zombie, "younger")
    stage.job.start()
    assert stage.job.wait_for_batches(3), stage.job.report()
    stage.check()

    wake_up(stage, zombie)
    stage.end(by_itself=True)


@pytest.mark.parametrize("stage", [PYTHON, by_tasks(PYTHON)], indirect=True, ids=[BATCH, PARTITION])
def test_a_driver_on_a_copy_of_the_checkpoint_fences_the_older_one(stage: Scene) -> None:
    zombie = stop_at(stage, "EndTxn")
    original, copy = stage.checkpoint, stage.checkpoint.with_name("copy")
    shutil.copytree(original, copy)
    unlock(copy)
    stage.job = Job.like(zombie, "younger")
    document = yaml.safe_load(zombie.query.read_text(encoding="utf-8"))
    document["spec"]["checkpoint"]["uri"] = (
        document["spec"]["checkpoint"]["uri"].removesuffix(original.name) + copy.name
    )
    stage.job.query.write_text(yaml.safe_dump(document), encoding="utf-8")
    stage.job.start()
    assert stage.job.wait_for_batches(3), stage.job.report()

    wake_up(stage, zombie)

    zombie.start()  # on the original, which knows nothing of what the copy has done since
    zombie.assert_refused()
    stage.end(by_itself=True)


@pytest.mark.parametrize("stage", [PYTHON, by_tasks(PYTHON)], indirect=True, ids=[BATCH, PARTITION])
def test_state_is_repartitioned_while_an_older_driver_hangs(stage: Scene) -> None:
    zombie = stop_at(stage, "EndTxn")
    unlock(stage.checkpoint)
    stage.job = Job.like(zombie, "younger")
    stage.job.start()
    assert stage.job.wait_for_batches(2), stage.job.report()
    stage.job.drain()
    stage.job.repartition(8)
    stage.job.start()
    assert stage.job.wait_for_batches(2), stage.job.report()
    stage.check()

    wake_up(stage, zombie)
    stage.end(by_itself=True)
