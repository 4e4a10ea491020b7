"""A real local Spark session for the tests in this folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace_jobs.session import local_session

_HERE = Path(__file__).parent

# Spark's Python workers import aggregators from these; they get the environment that the JVM was started with.
_MODULES = [str(_HERE.parents[1]), str(_HERE.parent), str(_HERE.parents[1] / "examples")]
os.environ["PYTHONPATH"] = os.pathsep.join([*_MODULES, *filter(None, [os.environ.get("PYTHONPATH")])])
sys.path.extend(_MODULES)

_SETTINGS = {"spark.master": "local[*, 2]", "spark.default.parallelism": "2"}
"""A task may fail once: tests about retries need it, and no other notices."""


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for Spark's temporary files."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture
def spark(workspace: Path) -> SparkSession:
    """The session of all tests, started again if a test has stopped it."""
    return local_session("tests", 2, _SETTINGS, workspace, quiet=True)
