"""``millrace prepare``: the archive of classes that it writes is one that Spark's JVM uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .cli import MILLRACE

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

_START = """
from pathlib import Path
from millrace_jobs.process import jvm

def maps(process):
    try:
        return (process / "maps").read_text()
    except OSError:  # it has ended, or is not ours
        return ""

started = jvm.start({}, quiet=True)
with started.announced():
    print(sum("CLASSES" in maps(each) for each in Path("/proc").glob("[0-9]*")))
started.finish()
"""


_FORGETS = """#!/bin/bash
for option do
    shift
    case $option in -XX:ArchiveClassesAtExit=*) ;; *) set -- "$@" "$option" ;; esac
done
exec {java} "$@"
"""
"""A Java that writes no archive."""


def _run(*command: str, classes: Path, **variables: str) -> str:
    # without the archive that the options of the other tests name
    ours = {"MILLRACE_SPARK_CLASSES": str(classes), "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run(command, env=os.environ | ours | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


def test_a_java_that_writes_no_archive_is_reported(tmp_path: Path) -> None:
    home = Path(os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "").resolve().parents[1])
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_FORGETS.format(java=home / "bin" / "java"), encoding="utf-8")
    java.chmod(0o755)
    classes = tmp_path / "classes.jsa"
    said = _run(MILLRACE, "prepare", classes=classes, JAVA_HOME=str(tmp_path / "java"))
    assert said.splitlines()[-1] == "this Java writes no archive of classes: runs start without one"
    assert not classes.exists()
