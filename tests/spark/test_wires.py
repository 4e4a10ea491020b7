"""Executors that do not have the driver's secret, or would send anything unencrypted, are refused."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)

PROGRAM = Path(__file__).with_name("authenticating_driver.py")


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """The errors with which executors end, by what they have."""
    command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("wires"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


ANSWER = "Cannot find endpoint"
"""What a local driver says to an executor that it lets in: it takes none."""


def test_with_the_secret_an_executor_is_answered(ends):
    assert ANSWER in ends["right"]


@pytest.mark.parametrize(
    ("executor", "refusal"),
    [("wrong", "Authentication failed"), ("none", "Unknown challenge"), ("weaker", "Unknown challenge")],
)
def test_without_it_or_without_encryption_it_is_refused(ends, executor, refusal):
    assert refusal in ends[executor]
    assert ANSWER not in ends[executor]
