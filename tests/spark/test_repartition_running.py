"""``millrace state repartition`` on a query that runs: another number of state partitions, and no result lost or double."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.waiting import wait_until

from .killed_queries import Process
from .running_queries import Running

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


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
