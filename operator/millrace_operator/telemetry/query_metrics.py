"""Metrics of each query: what the operator observes of it, and what it has counted since it leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from millrace_api.model.deployment import Placement
from millrace_api.model.status import LastScaling, MemoryStatus, PlanStatus, Status
from millrace_api.model.streamquery import DRIVER, EXECUTOR

from .contract import DRIVER_FAILED, OF_QUERIES, SPEC_CHANGED

_ROLES = {"driver": DRIVER, "executors": EXECUTOR}
"""Roles of the parts of a spec with memory that can be raised."""

_Rows = Iterable[tuple[tuple[str, ...], float]]


class QueryCounts:
    """Failed runs, failed executors and changes of the plan of a query, as far as this operator has reported them.

    A counter begins with the first status that this operator writes. Counters are replaced and not changed, since a
    scrape reads them at any time.

    Attributes:
        failures: failed runs of the driver, by class.
        executors: executors that failed, by class.
        rescales: changes of the plan, by reason.
        memory: raises of memory that ran out, by role.
    """

    def __init__(self) -> None:
        self.failures = self.executors = self.rescales = self.memory = Counter[str]()
        self._counted: frozenset[str] = frozenset()

    def status_written(self, before: Status, now: Status) -> None:
        """Count what is new in the query's status."""
        known = {(each.time, each.run) for each in before.attempts}
        self.failures = self.failures + Counter(
            each.reason for each in now.attempts if (each.time, each.run) not in known
        )
        rescaled = _rescale_reason(before, now)
        if rescaled is not None:
            self.rescales = self.rescales + Counter((rescaled,))
        raised = (now.memory or MemoryStatus()).raised_since(before.memory or MemoryStatus())
        self.memory = self.memory + Counter(_ROLES[part] for part in raised)

    def executors_failed(self, recent: Mapping[str, str]) -> None:
        """Count those of the recently failed executors that are new; ``recent`` has their classes by uid."""
        new = (reason for uid, reason in recent.items() if uid not in self._counted)
        self.executors, self._counted = self.executors + Counter(new), frozenset(recent)


@dataclass(frozen=True)
class QueryRow:
    """What the metrics of one query show; texts are as in the status.

    Attributes:
        key: namespace and name.
        phase, algorithm, mode, placement: labels of its info.
        conditions: type, status and reason of each condition.
        executors: number of executors by state.
        plan: the plan by dimension; empty before the first.
        cores: cores that pods request, by role.
        counts: what was counted of the query.
    """

    key: tuple[str, str]
    phase: str
    algorithm: str
    mode: str
    placement: str
    conditions: tuple[tuple[str, str, str], ...]
    executors: Mapping[str, int]
    plan: Mapping[str, int]
    cores: Mapping[str, float] = field(default_factory=dict)
    counts: QueryCounts = field(default_factory=QueryCounts)


def query_families(rows: Iterable[QueryRow]) -> Iterator[Family]:
    """Yield the metrics of these queries, in the order of the contract."""
    rows = list(rows)
    values: dict[str, _Rows] = {
        "millrace_query_info": (((*row.key, row.phase, row.algorithm, row.mode, row.placement), 1.0) for row in rows),
        "millrace_query_condition": (((*row.key, *each), 1.0) for row in rows for each in row.conditions),
        "millrace_query_executors": (
            ((*row.key, *each[:1]), each[1]) for row in rows for each in row.executors.items()
        ),
        "millrace_query_plan": (((*row.key, *each[:1]), each[1]) for row in rows for each in row.plan.items()),
        "millrace_query_cores": (((*row.key, role), cores) for row in rows for role, cores in row.cores.items()),
        "millrace_query_driver_restarts_total": (
            ((*row.key, each), count) for row in rows for each, count in row.counts.failures.items()
        ),
        "millrace_query_executor_failures_total": (
            ((*row.key, each), count) for row in rows for each, count in row.counts.executors.items()
        ),
        "millrace_query_rescales_total": (
            ((*row.key, each), count) for row in rows for each, count in row.counts.rescales.items()
        ),
        "millrace_query_memory_raises_total": (
            ((*row.key, each), count) for row in rows for each, count in row.counts.memory.items()
        ),
    }
    for metric in OF_QUERIES:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, value in values[metric.name]:
            family.add_metric(labels, value)
        yield family


def _rescale_reason(before: Status, now: Status) -> str | None:
    """Return why the plan has changed; None if it has not, or is the first one."""
    if before.plan is None or now.plan is None or _shape(before.plan) == _shape(now.plan):
        return None
    decided = now.last_scaling
    if decided is not None and decided != before.last_scaling and _is_in(decided, now.plan):
        return decided.reason
    back = before.plan.placement is Placement.DEDICATED and now.plan.placement is Placement.INLINE
    return DRIVER_FAILED if back and now.failures else SPEC_CHANGED


def _shape(plan: PlanStatus) -> tuple[object, ...]:
    return plan.executors, plan.parallelism, plan.replicas, plan.placement


def _is_in(decided: LastScaling, plan: PlanStatus) -> bool:
    to = decided.to
    return (to.executors, to.parallelism, to.replicas) == (plan.executors, plan.parallelism, plan.replicas)
