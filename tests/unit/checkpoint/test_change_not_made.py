"""A copy of the state that was recorded and never came into force: its number means nothing later."""

from dataclasses import replace

import pytest

from builders import a_query
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import Marker, Renumbered
from millrace_jobs.checkpoint.spark_folder import make_copy

from .stored import Stored


@pytest.fixture
def batches(tmp_path):
    """A checkpoint with the batches 0 and 1."""
    stored = Stored(tmp_path / "checkpoint")
    for _ in range(2):
        stored.begin()
        stored.commit()
    return stored


def reopened(stored):
    checkpoint = Checkpoint(stored.root)
    checkpoint.open(a_query())
    return checkpoint


def test_a_driver_that_dies_before_the_copy_is_in_force_leaves_no_number(batches):
    """The next batch 2 is one with results, and the sink has it."""
    marker = Marker.read(batches.root)
    make_copy(batches.root / "spark")
    replace(marker, renumbered=Renumbered(2, 1)).write(batches.root)
    checkpoint = reopened(batches)
    batches.begin()
    batches.commit()
    assert checkpoint.last_batch().known == 2
    checkpoint.close()
    checkpoint = reopened(batches)
    assert checkpoint.last_batch().known == 2
    checkpoint.close()


def test_a_copy_that_is_gone_leaves_no_number(batches):
    checkpoint = reopened(batches)
    assert not checkpoint.adopt_spark(batches.root / "repartitioned" / "spark")
    batches.begin()
    batches.commit()
    assert checkpoint.last_batch().known == 2
    checkpoint.close()


def changed(batches):
    """A checkpoint whose last batch, 2, is a change of its state."""
    checkpoint = reopened(batches)
    assert checkpoint.adopt_spark(make_copy(batches.root / "spark"))
    for name in ("offsets", "commits"):
        log = checkpoint.spark / name
        (log / "2").write_bytes((log / "1").read_bytes())
    checkpoint.close()


def test_the_number_of_a_copy_in_force_is_kept(batches):
    changed(batches)
    checkpoint = reopened(batches)
    assert checkpoint.last_batch().known == 1, "the sink has no results of the change"
    checkpoint.close()


def test_a_second_change_that_is_not_made_leaves_the_number_of_the_first(batches):
    changed(batches)
    marker = Marker.read(batches.root)
    replace(marker, renumbered=Renumbered(3, 1)).write(batches.root)
    checkpoint = reopened(batches)
    assert (checkpoint.last_batch().committed, checkpoint.last_batch().known) == (2, 1)
    checkpoint.close()
