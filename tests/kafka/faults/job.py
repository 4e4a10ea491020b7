"""``millrace run`` of one query, again and again on one checkpoint, each time in processes of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.processes import Process

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TESTS = Path(__file__).parents[2]
PATIENCE = 480.0
"""Seconds that a run may take on a busy machine for whatever a test waits for."""

_ENVIRONMENT = {
    "PYTHONPATH": str(TESTS),
    "PYTHONFAULTHANDLER": "1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # runs are short: compile little
}

_BATCH = re.compile(r"^batch=\d+ rows=[1-9]", re.MULTILINE)


class Job:
    """Runs a query file ``NAME.yaml``; every run has a log of its own, ``NAME-1.out`` and ``NAME-1.err``."""

    def __init__(
        self, query: Path, environment: Mapping[str, str] | None = None, before: Sequence[str | Path] = ()
    ) -> None:
        """``before``: what the command begins with, such as one that enters a namespace."""
        self.query = query
        self.processes: list[Process] = []
        self._before = before
        self._environment = _ENVIRONMENT | dict(environment or {})

    @classmethod
    def like(cls, other: Job, name: str) -> Job:
        """Another driver of the same query, with a file of its own beside the other's."""
        query = other.query.with_name(f"{name}.yaml")
        query.write_text(other.query.read_text(encoding="utf-8"), encoding="utf-8")
        return cls(query, other._environment, other._before)

    @property
    def process(self) -> Process:
        """That of the newest run."""
        return self.processes[-1]

    @property
    def said(self) -> str:
        """What the newest run has printed so far."""
        return self.process.said

    @property
    def complained(self) -> str:
        """What the newest run has printed to standard error so far."""
        return self.process.log.with_suffix(".err").read_text(encoding="utf-8")

    def start(self, *options: str) -> None:
        """Begin a run."""
        log = self.query.with_name(f"{self.query.stem}-{len(self.processes) + 1}.out")
        self.processes.append(
            Process(
                [*self._before, MILLRACE, "run", self.query, *options],
                log,
                errors=log.with_suffix(".err"),
                folder=self.query.parent,
                environment=self._environment,
            )
        )

    def batches(self) -> int:
        """How many batches with records the newest run has finished."""
        return len(_BATCH.findall(self.said))

    def wait_for_batches(self, more: int = 1) -> bool:
        """Wait for so many further batches with records; False where the run ends before."""
        wanted = self.batches() + more
        return self.wait_for(lambda: self.batches() >= wanted, f"{more} further batches")

    def wait_for(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until it holds; False where the run ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.status is not None:
                return condition()
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE} s: {self.report()}"
            time.sleep(0.05)
        return True

    def run_to_the_end(self) -> None:
        """Take everything that there is, and end."""
        self.start("--once")
        assert self.wait() == 0, self.report()

    def wait(self) -> int:
        """Its exit status, when it has ended; nothing of it is left then."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end in {PATIENCE} s: {self.report()}") from None
        self.process.kill()
        return status

    def drain(self) -> None:
        """SIGTERM; the running batch is finished, and the run ends in good order."""
        assert self.process.end(PATIENCE) == 0, self.report()

    def assert_failed(self, said: str = "") -> None:
        """It has ended with status 1, and with one sentence at last, that has this in it."""
        assert self.wait() == 1, self.report()
        *_, last = self.complained.splitlines() or [""]
        assert last.startswith("error: "), self.report()
        assert said in last, self.report()
        assert self.complained.count("error: ") == 1, self.report()
        assert "this should not have happened" not in last, self.report()

    def assert_refused(self) -> None:
        """It has failed with no more than warnings before the sentence."""
        self.assert_failed()
        assert "Traceback" not in self.said + self.complained, self.report()

    def close(self) -> None:
        """SIGKILL for whatever is left of any run."""
        for process in self.processes:
            process.kill()

    def report(self) -> str:
        """What to tell where the newest run is not as it should be."""
        return (
            f"run {len(self.processes)}, status {self.process.status}: {self.said[-2000:]}\n{self.complained[-3000:]}"
        )
