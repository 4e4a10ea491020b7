"""The program that an image's containers start with, by what it passes on for an executor."""

import os
import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[3] / "images" / "jobs" / "entrypoint"
SPARKS = (
    "EXECUTOR_MEMORY",
    "HOME",
    "DRIVER_URL",
    "EXECUTOR_ID",
    "EXECUTOR_CORES",
    "APPLICATION_ID",
    "EXECUTOR_POD_NAME",
)


@pytest.fixture
def run(tmp_path):
    """Runs it with a tini that prints its arguments."""
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    tini.chmod(0o755)
    own = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
        "JAVA_HOME": "/java",
    }
    sparks = {f"SPARK_{name}": "x" for name in SPARKS}

    def run(command, **environment):
        variables = own | sparks | {"MILLRACE_SPARK_CLASSES": "x", "SPARK_RESOURCE_PROFILE_ID": "0"} | environment
        done = subprocess.run([ENTRYPOINT, command], env=variables, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(("address", "host"), [("10.1.2.3", "10.1.2.3"), ("fd00::1:2", "[fd00::1:2]")])
def test_an_executor_gets_its_address_as_spark_reads_it(run, address, host):
    arguments = run("executor", SPARK_EXECUTOR_POD_IP=address)
    assert arguments[arguments.index("--hostname") + 1] == host


def test_any_other_command_needs_no_address(run):
    assert run("millrace") == ["-s", "--", "millrace"]
