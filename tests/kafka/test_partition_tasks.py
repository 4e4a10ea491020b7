"""Each partition once from tasks on executors: retried, twice at a time, killed after their commit, and cut off before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.kafka import Broker
from lab.processes import signal_all
from lab.standalone_spark import standalone_spark
from lab.topics import committed, open_transactions
from lab.waiting import wait_until

from .partition_attempts import (
    ATTEMPT,
    COMMITTED,
    CUT_OFF,
    CUT_OFFS,
    GOES_ON,
    HANGS,
    OTHERS,
    REFUSED,
    WRITTEN,
    outlast_alone,
)
from .write_from_tasks import BATCHES, RESUMED, ROWS, TASKS, marks_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow(minutes=1.5), pytest.mark.timeout(900)]

Done = Future[subprocess.CompletedProcess[str]]


def test_each_partition_is_written_once_whatever_happens_to_attempts(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    with standalone_spark(tmp_path) as master, ThreadPoolExecutor(1) as beside:
        given = {"folder": str(tmp_path), "master": master, "brokers": broker.bootstrap, "topic": topic}
        program = beside.submit(run, given)
        for number, fault in enumerate(BATCHES):
            if fault in {each.__name__ for each in CUT_OFFS}:
                cut_off(broker, topic, marks_of(tmp_path, number), program, alone=fault == outlast_alone.__name__)
        done = program.result()
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split("|") for line in done.stdout.splitlines()]
    assert said == [[fault, str(ROWS)] for fault in BATCHES]
    marks = [{mark.name for mark in marks_of(tmp_path, number).iterdir()} for number in range(len(BATCHES))]
    attempts = [sum(mark.startswith(ATTEMPT) for mark in found) for found in marks]
    assert all((count > 1) == (fault != "none") for count, fault in zip(attempts, BATCHES, strict=True)), attempts
    assert CUT_OFF in marks[BATCHES.index("outlive")]
    by_batch: dict[int, list[int]] = {}
    for message in committed(broker, topic):
        number = int(message.headers["millrace-batch"] or b"")
        by_batch.setdefault(number, []).append(json.loads(message.value or b"")["n"])
    assert sorted(by_batch) == list(range(len(BATCHES)))
    for number, found in by_batch.items():
        twice = [n for n, count in Counter(found).items() if count > 1]
        assert not twice, (BATCHES[number], twice[:3])
        assert sorted(found) == list(range(number * ROWS, (number + 1) * ROWS)), BATCHES[number]
    assert open_transactions(broker, topic) == {}


def cut_off(broker: Broker, topic: str, marks: Path, program: Done, *, alone: bool) -> None:
    """Stop an executor with a transaction that is open, until the brokers have ended it; then let it go on.

    It goes on when another attempt has written the partition, or ``alone``: before that one begins.
    """

    def wait_for(holds: Callable[[], bool], what: str) -> None:
        wait_until(lambda: program.done() or holds(), what)
        assert not program.done(), program.result().stderr

    wait_for(lambda: (marks / HANGS).exists() or (marks / REFUSED).exists(), "an attempt hangs")
    task, executor = map(int, (marks / HANGS).read_text().split())
    try:
        # the other executor has finished all other tasks when it takes the other attempt: this transaction alone is open
        wait_for(lambda: len(list(marks.glob(f"{ATTEMPT}*"))) > 1, "another attempt has been started")
        sent = 1 if alone else ROWS // TASKS
        wait_for(lambda: sum(open_transactions(broker, topic).values()) >= sent, f"the brokers have {sent} of its rows")
        signal_all((executor, task), signal.SIGSTOP)
        wait_for(lambda: not open_transactions(broker, topic), "the brokers have ended its transaction")
        if not alone:
            (marks / OTHERS).touch()
            wait_for((marks / WRITTEN).exists, "another attempt has written")
        (marks / GOES_ON).touch()
        signal_all((task,), signal.SIGCONT)
        wait_for(lambda: (marks / REFUSED).exists() or (marks / COMMITTED).exists(), "it has ended")
        assert (marks / REFUSED).exists(), "it has committed after its transaction had ended"
    finally:  # the program goes on to its end
        for mark in (GOES_ON, OTHERS, RESUMED):
            (marks / mark).touch()
        signal_all((task, executor), signal.SIGCONT)


def run(given: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the program that writes the batches."""
    return subprocess.run(
        [sys.executable, "-m", "kafka.write_from_tasks", json.dumps(given)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
