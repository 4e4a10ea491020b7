"""A program for ``test_executors``: request three executors, then one, then two, and print the outcomes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace_jobs.pod.agent import ExecutorScaler
from millrace_jobs.session import local_session

PATIENCE = 120.0


def wait_until(holds: Callable[[int], bool]) -> int:
    """Manage executors as the agent does until the condition holds, and return how many take tasks."""
    deadline = time.monotonic() + PATIENCE
    while not holds(ready := executors.reconcile(wanted)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return ready


folder = Path(sys.argv[1])
settings = {
    "spark.master": "local-cluster[3,1,512]",
    "spark.executor.memory": "512m",
    "spark.decommission.enabled": "true",
}
spark = local_session("executors", 2, settings, folder, quiet=True)
context: Any = spark.sparkContext
executors = ExecutorScaler(spark)

wanted = 3
print("ready", wait_until(lambda ready: ready == wanted))
before = set(context._jsc.sc().getExecutorIds().mkString(",").split(","))

wanted = 1
print("ready", wait_until(lambda ready: ready == wanted))
wait_until(lambda _: context._jsc.sc().getExecutorIds().size() == wanted)
print("gone", len(before - set(context._jsc.sc().getExecutorIds().mkString(",").split(","))))

wanted = 2
print("ready", wait_until(lambda ready: ready == wanted))
executors.reconcile(wanted)
before_tasks = executors.finished_tasks
print("rows", spark.range(1000).repartition(4).count())
print("tasks", wait_until(lambda _: executors.finished_tasks > before_tasks))
spark.stop()
