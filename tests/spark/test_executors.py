"""As many executors as a plan wants, on a Spark whose executors are processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.in_turn, pytest.mark.spark, pytest.mark.timeout(300)]


def test_executors_come_when_they_are_wanted_and_go_when_they_are_not(tmp_path: Path) -> None:
    """In a process of its own, since there is one Spark in a process, and the tests' has no executors."""
    script = Path(__file__).with_name("steer_executors.py")
    environment = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["ready 3", "ready 1", "gone 2", "ready 2", "rows 1000", "tasks 2"]
