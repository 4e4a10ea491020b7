"""The memory of executors: what their Python workers keep is seen in the driver, with the tasks that run anyway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .filling_executor import LIMIT, MIB, STEP
from .own_spark import run_script

pytestmark = [pytest.mark.in_turn, pytest.mark.spark, pytest.mark.timeout(300)]


def test_what_a_worker_keeps_is_beside_the_heap_of_its_executor_until_that_ends(tmp_path: Path) -> None:
    lines = run_script("filling_executor.py", tmp_path, SPARK_WORKER_DIR=str(tmp_path / "executors"))
    found = json.loads(lines[-1])
    idle, busy, seen, after = found["idle"], found["busy"], found["seen"], found["after"]
    for each in (idle, busy, *seen, after):
        assert each["limits"] == {"container": LIMIT, "beside-heap": LIMIT - 512 * MIB}
    # garbage of the JVM, which has touched more of its heap since
    touched = [each["used"]["container"] - each["used"]["beside-heap"] for each in (idle, busy)]
    assert touched[1] - touched[0] > 40 * MIB
    assert busy["used"]["beside-heap"] - idle["used"]["beside-heap"] < (touched[1] - touched[0]) / 2
    beside = [each["used"]["beside-heap"] for each in seen]
    assert beside[-1] - beside[0] == pytest.approx((len(beside) - 1) * STEP, rel=0.2)
    assert [each["executor"] for each in seen] == ["0"] * len(seen)
    assert seen[-1]["samples"] == seen[0]["samples"] + len(seen) - 1
    # the one that has ended is forgotten, and its series does not go on as that of another
    assert after["executor"] != "0"
    assert after["used"]["beside-heap"] < beside[-1] - 3 * STEP
