"""Scripts with a Spark of their own, whose executors are processes: a process has one Spark, and the tests' has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark


def run_script(name: str, *arguments: str | Path, **environment: str) -> list[str]:
    """Run a script of this folder to its end, which must be well, and return the lines that it prints."""
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(name), *arguments],
        env=os.environ | spark | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
