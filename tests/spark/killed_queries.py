"""A query in a process that is killed, and what it is to come to."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lab.processes import Mark
from millrace_jobs.partitioners.registry import ALGORITHMS

from .questions import Hop, Question
from .streams import plan

RECORDS = 200_000
RATE = 2_500
"""Records per second: the stream lasts longer than all runs together that are killed."""
START = datetime(2024, 3, 1)
PER_MINUTE = 5_000
"""Records in a minute of event time."""
QUESTION = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)", "last": "max(moment)"},
    window=Hop("moment", size=300, slide=120),
)

MAINTAINED = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}
"""Settings under which Spark removes old versions of the state all the time."""


def recording(seed: int) -> pa.Table:
    """Skewed keys; event times that go forth with jitter of a minute."""
    chance = np.random.default_rng(seed)
    seconds = np.arange(RECORDS) * 60 / PER_MINUTE - chance.uniform(0, 60, RECORDS)
    times = np.datetime64(START, "us") + (seconds * 1e6).astype("timedelta64[us]")
    keys = np.minimum(chance.zipf(1.3, RECORDS), 500)
    return pa.table(
        {
            "moment": pa.array(times, pa.timestamp("us")),
            "key": pa.array(keys.astype(str)),
            "value": pa.array(chance.integers(-1000, 1000, RECORDS)),
        }
    )


def document(folder: Path, emit: str) -> dict[str, Any]:
    """The query over the recording."""
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "killed"},
        "spec": {
            "sources": {
                "events": {
                    "replay": {
                        "path": str(folder / "recording.parquet"),
                        "format": "parquet",
                        "timeColumn": "moment",
                        "rate": RATE,
                    },
                    "schema": "moment TIMESTAMP, key STRING, value BIGINT",
                    "watermark": {"column": "moment", "delay": "90s"},
                }
            },
            "query": {"sql": QUESTION.spark},
            "sink": {"files": {"path": str(folder / "results")}},
            "emit": emit,
            "batchInterval": "2s",
            "parallelism": {"max": 16},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        },
    }


class Process:
    """``millrace run`` in a session of its own. Spark's JVM has another, and ends by itself."""

    def __init__(self, *command: str, log: Path, mark: Mark) -> None:
        self._log = log
        self._process = subprocess.Popen(
            command,
            env=os.environ | mark.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_batch(self) -> None:
        """Until it says that it has finished a batch."""
        assert self.finishes_a_batch(), f"it ended by itself: {self.output}"

    def finishes_a_batch(self) -> bool:
        """Wait until it says that it has finished a batch; return False if it ends before."""
        while (line := self._lines.get()) is not None:
            if line.startswith("batch="):
                return True
        return False

    def batches(self) -> int:
        """How many batches it has said to have finished."""
        return sum(line.startswith("batch=") for line in self.output.splitlines())

    def kill(self) -> None:
        """End the process and the rest of its session at once."""
        while members := list(self._members()):
            for member in members:
                _kill(member)
            self._process.poll()
        self._process.wait()
        self._reader.join()

    def stop(self) -> None:
        """Ask it to end after its running batch, and wait until it has."""
        self._process.terminate()
        assert self.wait() == 0, self.output

    def wait(self) -> int:
        """Its exit status."""
        status = self._process.wait()
        self._reader.join()
        return status

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def sleep(self, seconds: float) -> None:
        """Let it run so long; it must not end by itself."""
        with pytest.raises(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self._log.read_text(encoding="utf-8")

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("w", encoding="utf-8", buffering=1) as log:
            for line in self._process.stdout:
                log.write(line)
                self._lines.put(line)
        self._lines.put(None)

    def _members(self) -> Iterator[int]:
        """Processes of its session that are not dead."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state, _, _, session = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(session) == self._process.pid and state != "Z":
                    yield int(entry.name)


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return  # it died with its parent


def choose_plan(file: Path, chance: random.Random, epoch: int) -> None:
    """Every run comes back under another plan."""
    placing = (chance.choice(ALGORITHMS), chance.choice([1, 2, 7, 16]), chance.choice([1, 3]))
    file.write_text(plan(epoch + 1, placing).to_json(), encoding="utf-8")
