"""``millrace run`` of one query, repeatedly on one checkpoint, each time in new processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.processes import Process
from spark.cli import split_progress

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TESTS = Path(__file__).parents[2]
PATIENCE = 480.0
"""Seconds to wait for anything during a run on a busy machine."""

_ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "PYTHONFAULTHANDLER": "1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # runs are short: compile little
}

_BATCH = re.compile(r"^batch=\d+ rows=[1-9]", re.MULTILINE)


class Job:
    """Runs of the query file ``NAME.yaml``. Run N logs to ``NAME-N.out`` and ``NAME-N.err``."""

    def __init__(
        self, query: Path, environment: Mapping[str, str] | None = None, before: Sequence[str | Path] = ()
    ) -> None:
        """Prepare to run ``query``. ``before`` is a prefix of the command, such as one that enters a namespace."""
        self.query = query
        self.processes: list[Process] = []
        self._before = before
        self._environment = _ENVIRONMENT | dict(environment or {})

    @classmethod
    def like(cls, other: Job, name: str) -> Job:
        """Return another driver of the same query, which runs a copy of the query file."""
        query = other.query.with_name(f"{name}.yaml")
        query.write_text(other.query.read_text(encoding="utf-8"), encoding="utf-8")
        return cls(query, other._environment, other._before)

    @property
    def process(self) -> Process:
        """The process of the newest run."""
        return self.processes[-1]

    @property
    def said(self) -> str:
        """The progress and the standard output of the newest run so far."""
        return split_progress(self._errors)[0] + self.process.said

    @property
    def complained(self) -> str:
        """The standard error of the newest run so far, without its progress."""
        return split_progress(self._errors)[1]

    @property
    def _errors(self) -> str:
        return self.process.log.with_suffix(".err").read_text(encoding="utf-8")

    def start(self, *options: str, cores: int | None = None) -> None:
        """Start a run, on all cores or on so many."""
        chosen = sorted(os.sched_getaffinity(0))[:cores]
        log = self.query.with_name(f"{self.query.stem}-{len(self.processes) + 1}.out")
        self.processes.append(
            Process(
                [
                    *self._before,
                    "taskset",
                    "--cpu-list",
                    ",".join(map(str, chosen)),
                    MILLRACE,
                    "run",
                    self.query,
                    *options,
                ],
                log,
                errors=log.with_suffix(".err"),
                folder=self.query.parent,
                environment=self._environment,
            )
        )

    def batches(self) -> int:
        """Return the number of batches with records that the newest run has finished."""
        return len(_BATCH.findall(self.said))

    def wait_for_batches(self, more: int = 1) -> bool:
        """Wait for ``more`` further batches with records. Return False if the run ends first."""
        wanted = self.batches() + more
        return self.wait_for(lambda: self.batches() >= wanted, f"{more} further batches")

    def wait_for(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until the condition holds. Return False if the run ends first."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.status is not None:
                return condition()
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE} s: {self.report()}"
            time.sleep(0.05)
        return True

    def run_to_the_end(self) -> None:
        """Process all records in the topic, and end."""
        self.start("--once")
        assert self.wait() == 0, self.report()

    def repartition(self, partitions: int) -> None:
        """Divide the state of the query, which does not run, among another number of partitions."""
        command = [*self._before, MILLRACE, "state", "repartition", self.query, "--partitions", str(partitions)]
        log = self.query.with_name(f"{self.query.stem}-to-{partitions}.out")
        process = Process(command, log, folder=self.query.parent, environment=self._environment)
        try:
            assert process.wait(PATIENCE) == 0, process.said
            assert process.said.splitlines()[-1].endswith(f" -> {partitions}"), process.said
        finally:
            process.kill()

    def wait(self) -> int:
        """Wait for the run to end, kill what is left of it, and return its exit status."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end in {PATIENCE} s: {self.report()}") from None
        self.process.kill()
        return status

    def drain(self) -> None:
        """Send SIGTERM, and check that the run ends cleanly after its running batch."""
        assert self.process.end(PATIENCE) == 0, self.report()

    def assert_failed(self, said: str = "") -> None:
        """Check for status 1, and for a single error message, in the last line, that contains ``said``."""
        assert self.wait() == 1, self.report()
        *_, last = self.complained.splitlines() or [""]
        assert last.startswith("error: "), self.report()
        assert said in last, self.report()
        assert self.complained.count("error: ") == 1, self.report()
        assert "this should not have happened" not in last, self.report()

    def assert_refused(self) -> None:
        """Check that the run failed with an error message and without a traceback."""
        self.assert_failed()
        assert "Traceback" not in self.said + self.complained, self.report()

    def close(self) -> None:
        """Kill what is left of all runs."""
        for process in self.processes:
            process.kill()

    def report(self) -> str:
        """Return the state and the output of the newest run, for a failed assertion."""
        return (
            f"run {len(self.processes)}, status {self.process.status}: {self.said[-2000:]}\n{self.complained[-3000:]}"
        )
