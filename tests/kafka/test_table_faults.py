"""Joins, groups of joins and joins with tables under faults: after every batch, each record counts once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fault_settings import chance
from lab.kafka import Broker
from spark.streams import Placing, plan

from .faults.kinds import broker_killed, driver_killed, network_cut
from .faults.queries import GROUPED_JOIN, JOIN, VERSIONS, Case
from .faults.scene import Scene, scene

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

PLACINGS: list[Placing] = [("native", 3, 1), ("hash", 1, 4), ("pkg", 4, 3)]
"""The plans of the runs after the first one."""

LONGEST_MOMENT = 2.5
"""Seconds from a finished batch to a fault, at most; batches begin a second apart."""


@pytest.mark.parametrize(
    ("case", "broker_fault"),
    [(JOIN, network_cut), (GROUPED_JOIN, broker_killed), (VERSIONS, network_cut)],
    ids=lambda value: value.id if isinstance(value, Case) else value.__name__,
)
def test_joins_and_their_groups_count_each_record_once_under_faults(
    case: Case, broker_fault: Callable[[Scene], str], own_broker: Broker, tmp_path: Path
) -> None:
    """Every run comes back under another plan, and every other one on one core."""
    with scene(case, own_broker, tmp_path, chance(case.id), iter(()), own_machine=False) as stage:
        assert stage.job.wait_for_batches(), stage.job.report()
        faults = [driver_killed, driver_killed, broker_fault]
        stage.chance.shuffle(faults)
        for number, fault in enumerate(faults):
            time.sleep(stage.chance.uniform(0, LONGEST_MOMENT))
            print(f"{fault.__name__}: {fault(stage)}", flush=True)
            if stage.job.process.status is not None:
                (tmp_path / "plan.json").write_text(plan(number + 2, PLACINGS[number]).to_json(), encoding="utf-8")
                stage.job.start("--plan", "plan.json", cores=1 if number % 2 else None)
            stage.go_on()
            stage.check()
        stage.end()
