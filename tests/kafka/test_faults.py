"""The fault matrix: every kind of fault at random moments of a job from Kafka to Kafka, and every record counted.

It runs for each mode, ``transaction: Batch`` and ``Partition``, with the queries that have it.
MILLRACE_FAULTS says how often each fault befalls a job (default 2; make test-faults: 10), MILLRACE_SEED at which moments.
"""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from fault_settings import FAULTS, SEED, chance
from lab.kafka import Broker

from .faults.corruption import KINDS
from .faults.kinds import EVERY, Fault, all_faults, broker_paused, checkpoint_corrupted, replica_killed
from .faults.queries import CASES, Case
from .faults.scene import Scene, scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LONGEST_MOMENT = 2.5
"""Seconds from a finished batch to a fault, at most; batches begin a second apart."""

MINUTES = {broker_paused: 2.5, checkpoint_corrupted: 2.5}
"""Minutes of the faults that take longest, by themselves."""

_ROUNDS = {
    case.id: len(range(number, FAULTS, len(cases))) for cases in CASES.values() for number, case in enumerate(cases)
}
"""The queries of a mode take turns: so often does each fault befall each."""

_DAMAGES = itertools.cycle(random.Random(SEED).sample(KINDS, len(KINDS)))


@pytest.mark.slow(minutes=15)
@pytest.mark.timeout(600 + 1200 * FAULTS)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{mode}-{case.id}") for mode, cases in CASES.items() for case in cases if _ROUNDS[case.id]],
)
def test_every_fault_loses_and_doubles_no_record(case: Case, own_broker: Broker, tmp_path: Path) -> None:
    with scene(case, own_broker, tmp_path, chance(case.id), _DAMAGES) as stage:
        assert stage.job.wait_for_batches(), stage.job.report()
        for _ in range(_ROUNDS[case.id]):
            faults = all_faults(stage)
            stage.chance.shuffle(faults)
            for fault in faults:
                befall(stage, fault)
        stage.end()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, id=each.__name__, marks=pytest.mark.slow(minutes=MINUTES.get(each, 1.5))) for each in EVERY],
)
def test_one_fault_loses_and_doubles_no_record(fault: Fault, own_broker: Broker, tmp_path: Path) -> None:
    """A part of the matrix that is short enough for CI: one fault of a query that chance chooses, after the mode."""
    random_choice = chance(fault.__name__)
    cases = random_choice.choice(list(CASES.values()))
    case = random_choice.choice([case for case in cases if case.is_dedicated or fault is not replica_killed])
    print(f"query: {case.id}")
    with scene(case, own_broker, tmp_path, random_choice, _DAMAGES) as stage:
        assert stage.job.wait_for_batches(), stage.job.report()
        if fault not in all_faults(stage):
            pytest.skip("this machine cannot inject it")
        befall(stage, fault)
        stage.end()


def befall(stage: Scene, fault: Fault) -> None:
    """Let a fault happen at a random moment of a job, which then goes on with exact results."""
    time.sleep(stage.chance.uniform(0, LONGEST_MOMENT))
    began = time.monotonic()
    print(f"{fault.__name__}: {fault(stage)}", flush=True)
    stage.go_on()
    stage.check()
    print(f"exact after {time.monotonic() - began:.0f} s", flush=True)
