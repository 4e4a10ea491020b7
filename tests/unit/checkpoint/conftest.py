"""Checkpoints and logs of the tests of checkpoints."""

import pytest

from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.spark_folder import SparkLog

from .stored import Stored


@pytest.fixture
def open_checkpoint(tmp_path):
    opened = []

    def open_one(query):
        checkpoint = Checkpoint(tmp_path / "checkpoint")
        opened.append(checkpoint)
        checkpoint.open(query)
        return checkpoint

    yield open_one
    for checkpoint in opened:
        checkpoint.close()


@pytest.fixture
def log(tmp_path):
    return SparkLog(tmp_path / "spark")


@pytest.fixture
def stored(tmp_path):
    """A checkpoint of two batches with state, and a third one that has begun."""
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.upload, made.begin, made.commit, made.begin):
        step()
    return made
