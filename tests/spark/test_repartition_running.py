"""``millrace state repartition`` on a query that runs: another number of state partitions, and no result lost or double."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from millrace_jobs.checkpoint.checkpoint import Checkpoint

from .answers import assert_same, duckdb_rows, latest, rows_of, with_zones
from .killed_queries import QUESTION, Process, document, recording
from .streams import results_in

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

RATE = 500
"""Records per second: the recording lasts longer than the test, which reads the rest at once."""

MILLRACE = str(Path(sys.executable).parent / "millrace")


class Running:
    """A query over a recording, in a process that can be killed and started again."""

    def __init__(self, folder: Path, emit: str) -> None:
        self.folder, self.emit, self.mark = folder, emit, Mark()
        self.events = recording(seed=len(emit))
        pq.write_table(with_zones(self.events), folder / "recording.parquet")
        made = document(folder, emit)
        made["spec"]["batchInterval"] = "4s"
        made["spec"]["sources"]["events"]["replay"]["rate"] = RATE
        self.file = folder / "query.yaml"
        self.file.write_text(yaml.safe_dump(made), encoding="utf-8")
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self._starts = 0

    def start(self, *options: str) -> Process:
        self._starts += 1
        log = self.folder / f"run-{self._starts}.log"
        return Process(MILLRACE, "run", str(self.file), *options, log=log, mark=self.mark)

    def repartition(self, partitions: int) -> Process:
        command = ("state", "repartition", str(self.file), "--partitions", str(partitions))
        return Process(MILLRACE, *command, log=self.folder / f"repartition-{time.monotonic()}.log", mark=self.mark)

    @property
    def partitions(self) -> int:
        return int(Checkpoint(self.folder / "checkpoint").state_partitions)

    def assert_right(self) -> None:
        """Process the rest, and compare all results with DuckDB's."""
        last = self.start("--once")
        assert last.wait() == 0, last.output
        wait_until(lambda: not self.mark.processes(), "all processes have ended")
        results = results_in(self.folder)
        found = latest(results, QUESTION.key_columns) if self.emit == "OnUpdate" else rows_of(results)
        assert_same(found, duckdb_rows(self.events, QUESTION.duckdb), QUESTION.key_columns)


@pytest.mark.slow(minutes=3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("emit", ["OnWindowClose", "OnUpdate"])
def test_a_running_query_goes_on_with_more_partitions(tmp_path: Path, emit: str) -> None:
    query = Running(tmp_path, emit)
    run = query.start()
    try:
        run.wait_for_batch()
        before = query.partitions
        for partitions in (5, 3):
            command = query.repartition(partitions)
            assert command.wait() == 0, command.output + run.output
            assert f"{before} -> {partitions}" in command.output
            assert query.partitions == partitions
            assert f"state partitions: {before} -> {partitions}" in run.output
            run.wait_for_batch()
            before = partitions
    finally:
        run.kill()
    query.assert_right()


DEATHS = [("copier", "spark"), ("copier", "request.json"), ("driver", "request.json"), ("driver", "stopped.json")]
"""Who is killed, and the file of the handover by which that is."""


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(1200)
def test_a_copier_and_drivers_that_are_killed_leave_one_number_or_the_other(tmp_path: Path) -> None:
    query, folder = Running(tmp_path, "OnUpdate"), tmp_path / "checkpoint" / "repartitioned"
    run = query.start()
    try:
        for number, (victim, moment) in enumerate(DEATHS):
            run.wait_for_batch()
            before, wanted = query.partitions, 3 + number
            command = query.repartition(wanted)
            wait_for(folder / moment, command)
            if victim == "copier":
                command.kill()
                wait_until(lambda: not (folder / "request.json").exists(), "the driver has dropped the request")
            else:
                run.kill()
                run = query.start()  # finds the request
                assert command.wait() == 0, command.output + run.output
            run.wait_for_batch()
            assert query.partitions == (before if victim == "copier" else wanted)
    finally:
        run.kill()
    query.assert_right()
    assert not folder.exists()


def wait_for(file: Path, command: Process) -> None:
    """Until there is a file, and the command runs."""
    while not file.exists():
        assert command.is_running, command.output
        time.sleep(0.005)
