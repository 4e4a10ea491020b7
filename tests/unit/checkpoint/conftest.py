"""Fixtures of the agent's tests."""

import pytest

from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.spark_folder import SparkLog


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
