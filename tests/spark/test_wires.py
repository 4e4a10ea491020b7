"""Executors without the driver's secret or encryption are refused, and nothing that others send can be read."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab import exchanging_executors
from lab.exchanging_executors import WIRES, record_markers, task_marker

from .loopback import watched

pytestmark = pytest.mark.timeout(900)

PROGRAM = Path(__file__).with_name("authenticating_driver.py")
EXCHANGING = Path(exchanging_executors.__file__)


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """The errors with which executors end, by what they have."""
    command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("wires"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


ANSWER = "Cannot find endpoint"
"""What a local driver says to an executor that it lets in: it takes none."""


@pytest.mark.in_turn
def test_with_the_secret_an_executor_is_answered(ends):
    assert ANSWER in ends["right"]


@pytest.mark.parametrize(
    ("executor", "refusal"),
    [("wrong", "Authentication failed"), ("none", "Unknown challenge"), ("weaker", "Unknown challenge")],
)
def test_an_executor_without_the_secret_or_encryption_is_refused(ends, executor, refusal):
    assert refusal in ends[executor]
    assert ANSWER not in ends[executor]


def readable(folder, wires):
    """What can be read in the connections of a driver and two executors: ``tasks``, ``records``, both or nothing."""
    salt = uuid.uuid4().hex
    task, records = task_marker(salt), record_markers(salt)
    command = [sys.executable, str(EXCHANGING), str(folder), salt, wires]
    with watched([task, *records]) as seen:
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    driver, *blocks = map(int, done.stdout.split())
    found = {"tasks"} if driver in seen[task] else set()
    return found | ({"records"} if any(seen[each].intersection(blocks) for each in records) else set())


@pytest.mark.in_turn
def test_tasks_and_records_can_be_read_on_the_wire_without_encryption_and_not_with_it(tmp_path):
    found = {wires: readable(tmp_path, wires) for wires in WIRES}
    assert found == {"open": {"tasks", "records"}, "encrypted": set()}
