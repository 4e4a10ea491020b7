"""Scaling of the executors to the plan: up by requesting more, down by decommissioning the least busy ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_DRIVER = "driver"


@dataclass(frozen=True, order=True)
class _Executor:
    """An executor that takes tasks; sorted in the order of decommissioning: the least busy first, then the newest."""

    active_tasks: int
    task_milliseconds: int
    age_rank: int
    id: str


class ExecutorScaler:
    """A scaler of the executors of a Spark application on Kubernetes; safe in any thread.

    Spark itself replaces executors that die, up to the number that was requested last.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._context, self._jvm = context._jsc.sc(), context._jvm
        self._no_localities: Any = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._wanted: int | None = None

    def keep(self, number: int) -> int:
        """Reconcile the executors with the wanted number, and return how many take tasks now.

        Missing executors arrive and surplus ones leave within seconds. A leaving executor finishes its tasks, and
        migrates its shuffle files and cached blocks to others before it ends.
        """
        if number != self._wanted:
            # request before decommissioning: Spark replaces leaving executors while its target is above their number
            self._context.requestTotalExecutors(number, 0, self._no_localities)
            self._wanted = number
        staying = self._staying()
        surplus = max(0, len(staying) - number)
        for executor in sorted(staying)[:surplus]:
            self._send_away(executor.id)
        return len(staying) - surplus

    def _staying(self) -> list[_Executor]:
        """Return the executors that are registered and not being decommissioned."""
        listed = self._context.statusStore().executorList(True)
        leaving = self._context.schedulerBackend().executorsPendingDecommission()
        found = (listed.apply(index) for index in range(listed.size()))
        return [
            _Executor(each.activeTasks(), each.totalDuration(), -int(each.id()), each.id())
            for each in found
            if each.id() != _DRIVER and each.isActive() and not leaving.contains(each.id())
        ]

    def _send_away(self, id: str) -> None:
        scheduler = self._jvm.org.apache.spark.scheduler
        info = scheduler.ExecutorDecommissionInfo("the plan has fewer executors", self._jvm.scala.Option.empty())
        self._context.schedulerBackend().decommissionExecutor(id, info, False, False)
