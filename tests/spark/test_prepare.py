"""``millrace prepare``: the archive of classes that it writes is one that Spark's JVM uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .cli import MILLRACE

pytestmark = pytest.mark.spark

_START = """
from pathlib import Path
from millrace_jobs import jvm
started = jvm.start({}, quiet=True)
with started.announced():
    processes = Path("/proc").glob("[0-9]*")
    maps = [file.read_text() for file in (each / "maps" for each in processes) if file.exists()]
started.finish()
print(sum("CLASSES" in each for each in maps))
"""


def _run(*command: str, classes: Path, java: str = "-XX:TieredStopAtLevel=1") -> str:
    # Java is not to be told of the archive that the other tests use.
    environment = os.environ | {"MILLRACE_SPARK_CLASSES": str(classes), "SPARK_SUBMIT_OPTS": java}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_jvm_maps_the_archive_that_was_made_once(tmp_path: Path) -> None:
    classes = tmp_path / "classes.jsa"
    program = _START.replace("CLASSES", str(classes))
    assert _run(sys.executable, "-c", program, classes=classes) == "0\n"
    assert "running small queries" in _run(MILLRACE, "prepare", classes=classes)
    assert _run(sys.executable, "-c", program, classes=classes) == "1\n"
    written = classes.stat().st_mtime_ns
    assert "running small queries" not in _run(MILLRACE, "prepare", classes=classes)
    assert classes.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [classes]


def test_a_java_that_writes_no_archive_is_told_of(tmp_path: Path) -> None:
    said = _run(MILLRACE, "prepare", classes=tmp_path / "classes.jsa", java="-XX:TieredStopAtLevel=1 -Xshare:off")
    assert said.splitlines()[-1] == "this Java writes no archive of classes: runs start without one"
    assert list(tmp_path.iterdir()) == []
