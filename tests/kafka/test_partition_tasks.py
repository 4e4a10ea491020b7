"""Each partition once from tasks on executors: retried, twice at a time, killed after their commit, and cut off before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lab.kafka import Broker
from lab.standalone_spark import standalone_spark

from .partition_attempts import CUT_OFF
from .topics import committed, open_transactions
from .write_from_tasks import BATCHES, ROWS

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow(minutes=1), pytest.mark.timeout(900)]


def test_each_partition_is_written_once_whatever_happens_to_attempts(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    with standalone_spark(tmp_path) as master:
        given = {"folder": str(tmp_path), "master": master, "brokers": broker.bootstrap, "topic": topic}
        done = subprocess.run(
            [sys.executable, "-m", "kafka.write_from_tasks", json.dumps(given)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split("|") for line in done.stdout.splitlines()]
    assert [fault for fault, *_ in said] == list(BATCHES)
    assert [marks for fault, _, *marks in said if fault == "outlive"] == [[CUT_OFF]]
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
