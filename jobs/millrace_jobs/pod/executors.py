"""As many executors as a plan wants: more by asking for them, fewer by sending the least busy ones away in peace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_DRIVER = "driver"


@dataclass(frozen=True, order=True)
class _Executor:
    """One that takes tasks; the order is that in which they are sent away: the least busy first, then the newest."""

    active_tasks: int
    task_milliseconds: int
    age_rank: int
    id: str


class ExecutorScaler:
    """The executors of a Spark application on Kubernetes; safe in any thread.

    Spark itself replaces those that die, up to the number that was asked for last.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._context, self._jvm = context._jsc.sc(), context._jvm
        self._no_localities: Any = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._wanted: int | None = None

    def keep(self, number: int) -> int:
        """See to it that there are so many, and say how many take tasks now.

        What is missing comes, and what is too much goes, within seconds. Those that go finish their tasks, and hand
        their shuffle files and cached blocks to others before they end.
        """
        if number != self._wanted:
            # asked for first: Spark replaces whoever goes while it wants more than there are
            self._context.requestTotalExecutors(number, 0, self._no_localities)
            self._wanted = number
        staying = self._staying()
        surplus = max(0, len(staying) - number)
        for executor in sorted(staying)[:surplus]:
            self._send_away(executor.id)
        return len(staying) - surplus

    def _staying(self) -> list[_Executor]:
        """Those that are registered, and not on their way out."""
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
