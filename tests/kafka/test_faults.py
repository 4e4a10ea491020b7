"""The fault matrix: every kind of fault at random moments of a job from Kafka to Kafka, and every record counted.

MILLRACE_FAULTS says how often each fault befalls a job (default 2; make test-faults: 10), MILLRACE_SEED at which moments.
"""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from lab.kafka import Broker

from .faults.corruption import KINDS
from .faults.kinds import all_faults
from .faults.queries import CASES, Case
from .faults.scene import scene
from .faults.settings import FAULTS, SEED, chance

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

LONGEST_MOMENT = 2.5
"""Seconds from a finished batch to a fault, at most; batches begin a second apart."""

_ROUNDS = {case.id: len(range(number, FAULTS, len(CASES))) for number, case in enumerate(CASES)}
"""The queries take turns: so often does each fault befall each."""

_DAMAGES = itertools.cycle(random.Random(SEED).sample(KINDS, len(KINDS)))


@pytest.mark.timeout(600 + 1200 * FAULTS)
@pytest.mark.parametrize("case", [case for case in CASES if _ROUNDS[case.id]], ids=lambda case: case.id)
def test_faults(case: Case, own_broker: Broker, tmp_path: Path) -> None:
    with scene(case, own_broker, tmp_path, chance(case.id), _DAMAGES) as stage:
        assert stage.job.wait_for_batches(), stage.job.report()
        for _ in range(_ROUNDS[case.id]):
            faults = all_faults(stage)
            stage.chance.shuffle(faults)
            for fault in faults:
                time.sleep(stage.chance.uniform(0, LONGEST_MOMENT))
                began = time.monotonic()
                print(f"{fault.__name__}: {fault(stage)}", flush=True)
                stage.go_on()
                stage.check()
                print(f"exact after {time.monotonic() - began:.0f} s", flush=True)
        stage.end()
