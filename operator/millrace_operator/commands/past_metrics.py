"""The record of a query on a cluster over a period, from the samples that Prometheus has of its driver.

Prometheus has no batches but counters at intervals. So a line of the record is what the batches of an interval were on
average, and what a run says in words is not in it. Decisions of the operator are those of its events, and before the
oldest event those that its own metrics count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import StreamQuery
from millrace_support.run_record import (
    BatchDetails,
    BatchFigures,
    BatchLine,
    BatchPlan,
    DecisionLine,
    IdleLine,
    MessageLine,
    RecordLine,
    RunLine,
    StartedLine,
)

from ..metrics_source.client import Prometheus
from ..metrics_source.job_metrics import CREATED, equal, like, one_of
from ..metrics_source.result import Series

POINTS = 240
"""Intervals that a period is divided into."""

MIN_STEP = 5.0
"""Length of the shortest interval, in seconds."""

MAX_LOADS = 32
"""Loads of a batch that a line of the record has."""

SILENT_SECONDS = 300.0
"""Seconds without a sample, and at least two intervals, after which a gap is noted."""

_RATE_SECONDS = 120.0
"""Shortest time over which quantiles of latency are taken: several scrapes."""

_SWITCH_REASONS = {
    "imbalance": "the load of the workers becomes more even",
    "aggregation cost": "fewer partial results have to be merged",
    "routing": "records are placed in less time",
    "measured": "batches took longer than predicted under the one before",
    "draw": "the one before is not clearly faster than native, which uses the least processor time",
}
"""What each reason of a switch of auto means; the metric has no more of it than the reason."""

_COUNTERS = (
    "millrace_batches_total",
    "millrace_batch_processing_seconds_sum",
    "millrace_input_rows_total",
    "millrace_late_rows_total",
    "millrace_rejected_rows_total",
    "millrace_incomplete_rows_total",
    "millrace_run_restarts_total",
)
_GAUGES = (
    CREATED,
    "millrace_batch_interval_seconds",
    "millrace_last_progress_time_seconds",
    "millrace_source_lag_rows",
    "millrace_load_imbalance_ratio",
    "millrace_plan_epoch",
    "millrace_plan_workers",
    "millrace_plan_replicas",
    "millrace_plan_info",
    "millrace_state_rows",
    "millrace_state_bytes",
    "millrace_state_partitions",
    "millrace_watermark_delay_seconds",
)
_TASKS, _MERGE = "millrace_stage_task_seconds_sum", "millrace_merge_task_seconds_total"
_STEPS, _SWITCHES = "millrace_batch_step_seconds_total", "millrace_auto_switches_total"
_WORKERS, _BEHIND = "millrace_worker_rows", "millrace_source_partition_lag_rows"
_LABELS = {_STEPS: "step", _TASKS: "stage", _SWITCHES: "reason", _WORKERS: "worker", "millrace_plan_info": "algorithm"}
"""The label by which a metric has several series; those of partitions have two."""

_CHANGES = "millrace_query_rescales_total"


class Period(NamedTuple):
    """A period in seconds since 1970, which is divided into intervals of ``step`` seconds."""

    first: float
    last: float
    step: float

    @classmethod
    def of(cls, first: float, last: float) -> Period:
        """Return a period with the intervals of a report."""
        first = round(first, 3)  # as Prometheus is asked: its first sample is then not after the beginning
        return cls(first, last, max((last - first) / POINTS, MIN_STEP))


@dataclass
class _Sample:
    """What a driver exported at one time: values by metric, and by metric and label for those with several series."""

    values: dict[str, float] = field(default_factory=dict)
    labeled: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    behind: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, 0.0)


_Target = tuple[tuple[str, str], ...]


def past_lines(
    prometheus: Prometheus, namespace: str, query: StreamQuery, pod: str, period: Period, origin: str
) -> list[RecordLine]:
    """Return the record of a query, as far as its driver's metrics say; the first line is that of its first sample.

    Args:
        prometheus: server whose series have the labels ``namespace`` and ``pod`` of their pod.
        namespace: namespace of the query.
        query: the query.
        pod: name of the driver's pod.
        period: the period.
        origin: says where the figures are from.

    Raises:
        PrometheusError: there is no answer, or none that can be relied on.
        MillraceError: there is no sample.
    """
    matchers = (equal("namespace", namespace), equal("query", query.name), like("pod", f"{pod}|"))
    samples = _samples(prometheus, matchers, period)
    if not samples:
        message = f"{origin} has no samples of {query.name} in namespace {namespace} in this period"
        hint = (
            f"choose another with --since and --until, or check that the pod {pod} is scraped: "
            f'millrace_batches_total{{namespace="{namespace}",query="{query.name}"}}'
        )
        raise MillraceError(Problem(message, hint))
    quantiles = {share: _latencies(prometheus, matchers, period, share) for share in (0.5, 0.95)}
    document = query.model_dump(mode="json", by_alias=True, exclude_unset=True)
    begin = RunLine(samples[0][0], document, "", origin=origin, step=period.step, newest=samples[-1][0])
    return [begin, *_lines(samples, quantiles, query, period.step)]


def _samples(prometheus: Prometheus, matchers: Sequence[str], period: Period) -> list[tuple[float, _Sample]]:
    """Return what the newest driver exported at each time, oldest first."""
    found: dict[float, dict[_Target, _Sample]] = defaultdict(lambda: defaultdict(_Sample))
    for names in ((*_COUNTERS, *_GAUGES), (_STEPS, _SWITCHES, _TASKS, _MERGE), (_WORKERS,), (_BEHIND,)):
        selector = f"{{{','.join((one_of('__name__', names), *matchers))}}}"
        for series in prometheus.range(selector, *period):
            _add(found, series)
    newest = ((time, max(targets.values(), key=lambda each: each[CREATED])) for time, targets in sorted(found.items()))
    return [(time, sample) for time, sample in newest if "millrace_batches_total" in sample.values]


def _add(found: Mapping[float, dict[_Target, _Sample]], series: Series) -> None:
    labels = dict(series.labels)
    name = labels.pop("__name__")
    several = {"source", "partition"} if name == _BEHIND else {_LABELS[name]} if name in _LABELS else set()
    target = tuple(sorted((key, value) for key, value in labels.items() if key not in several | {"stage"}))
    for time, value in ((each.time, each.value) for each in series.samples):
        sample = found[time][target]
        if name == _BEHIND:
            sample.behind[labels["source"]][labels["partition"]] = round(value)
        elif several:
            sample.labeled[name][labels[_LABELS[name]]] = value
        else:
            sample.values[name] = value


def _latencies(prometheus: Prometheus, matchers: Sequence[str], period: Period, share: float) -> dict[float, float]:
    """Return a quantile of the records' latency by time."""
    seconds = round(max(2 * period.step, _RATE_SECONDS))
    buckets = f"millrace_record_latency_seconds_bucket{{{','.join(matchers)}}}"
    query = f"histogram_quantile({share}, sum by (le) (rate({buckets}[{seconds}s])))"
    found = prometheus.range(query, *period)
    return {each.time: each.value for series in found for each in series.samples if math.isfinite(each.value)}


def _lines(
    samples: Sequence[tuple[float, _Sample]],
    quantiles: Mapping[float, Mapping[float, float]],
    query: StreamQuery,
    step: float,
) -> Iterator[RecordLine]:
    first, before = samples[0]
    chooses = query.spec.partitioner.algorithm is Algorithm.AUTO
    yield StartedLine(first, chooses, f"The operator chose it; kubectl describe sq {query.name} shows why.")
    last = seen = first
    for time, sample in samples[1:]:
        if time - seen > max(2 * step, SILENT_SECONDS):
            text = f"no figures from {_clock(seen)} to {_clock(time)} UTC: the driver did not run, or was not scraped"
            yield MessageLine(time, text)
        seen = time
        if sample[CREATED] != before[CREATED]:
            yield MessageLine(time, "another driver has started, with counters from zero")
            before = _Sample()
        yield from _events(time, before, sample)
        count = round(sample["millrace_batches_total"] - before["millrace_batches_total"])
        if count > 0 and sample["millrace_batch_interval_seconds"]:
            yield _batch(time, time - last, count, before, sample, quantiles, query)
            last = time
        elif sample["millrace_last_progress_time_seconds"] != before["millrace_last_progress_time_seconds"]:
            yield IdleLine(time)
        if count >= 0:
            before = sample


def _clock(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%H:%M:%S}"


def _events(time: float, before: _Sample, sample: _Sample) -> Iterator[RecordLine]:
    restarts = round(sample["millrace_run_restarts_total"] - before["millrace_run_restarts_total"])
    if restarts > 0:
        times = "once, after a transient failure" if restarts == 1 else f"{restarts} times, after transient failures"
        yield MessageLine(time, f"the query was started again {times}")
    for reason, count in sample.labeled[_SWITCHES].items():
        if count > before.labeled[_SWITCHES].get(reason, 0):
            because = _SWITCH_REASONS.get(reason, f"the reason is {reason}")
            yield DecisionLine(time, None, f"auto: a switch to another algorithm: {because}", "auto")


def _batch(
    time: float,
    passed: float,
    count: int,
    before: _Sample,
    sample: _Sample,
    quantiles: Mapping[float, Mapping[float, float]],
    query: StreamQuery,
) -> BatchLine:
    """Return the batches of an interval as one line."""

    def more(name: str) -> int:
        return max(round(sample[name] - before[name]), 0)

    total = sample["millrace_batch_processing_seconds_sum"] - before["millrace_batch_processing_seconds_sum"]
    seconds, interval = total / count, sample["millrace_batch_interval_seconds"]
    rows, number = more("millrace_input_rows_total"), round(sample["millrace_batches_total"])
    waiting = round(sample["millrace_source_lag_rows"])
    plan = _plan(sample)
    loads, size = _loads(sample.labeled[_WORKERS])
    workers = sample.labeled[_WORKERS].values()
    tasks = _task_seconds(before, sample)
    figures = BatchFigures(
        batch=number,
        ended=time,
        seconds=seconds,
        interval=interval,
        rows=rows,
        rate=rows / max(passed, 1e-3),
        taken=rows // count,
        waiting=waiting,
        median=quantiles[0.5].get(time),
        p95=quantiles[0.95].get(time),
        late=more("millrace_late_rows_total"),
        rejected=more("millrace_rejected_rows_total"),
        incomplete=more("millrace_incomplete_rows_total"),
        loads=loads,
        load_size=size,
        mean_load=sum(workers) / max(len(workers), 1),
        imbalance=sample.values.get("millrace_load_imbalance_ratio"),
        algorithm="-" if plan is None else plan.algorithm,
        batches=count,
    )
    steps = {
        step: max(total - before.labeled[_STEPS].get(step, 0.0), 0.0) / count
        for step, total in sample.labeled[_STEPS].items()
    }
    streams = [name for name, source in query.spec.sources.items() if not source.is_static]
    rest = sample.values.get("millrace_state_rows"), sample.values.get("millrace_state_partitions")
    return BatchLine(
        time,
        figures,
        BatchDetails(
            batch=number,
            seconds=seconds,
            interval=interval,
            work=steps.get("addBatch", seconds),
            steps=steps,
            plan=plan,
            state_rows=None if rest[0] is None else round(rest[0]),
            state_bytes=round(sample["millrace_state_bytes"]),
            state_partitions=None if rest[1] is None else round(rest[1]),
            watermark_delay=sample.values.get("millrace_watermark_delay_seconds"),
            taken_from={streams[0]: rows // count} if len(streams) == 1 else {},
            waiting_in={streams[0]: waiting} if len(streams) == 1 else {},
            task_seconds=None if tasks is None else tasks / count,
            behind={source: dict(lags) for source, lags in sample.behind.items()},
        ),
    )


def _task_seconds(before: _Sample, sample: _Sample) -> float | None:
    """Return the seconds of all tasks; None where none are measured, as of a query that Spark's own plan runs."""
    if not sample.labeled[_TASKS]:
        return None
    stages = sum(seconds - before.labeled[_TASKS].get(stage, 0.0) for stage, seconds in sample.labeled[_TASKS].items())
    return max(stages + sample[_MERGE] - before[_MERGE], 0.0)


def _plan(sample: _Sample) -> BatchPlan | None:
    algorithms = sample.labeled["millrace_plan_info"]
    if not algorithms or "millrace_plan_epoch" not in sample.values:
        return None
    numbers = (round(sample[f"millrace_plan_{each}"]) for each in ("epoch", "workers", "replicas"))
    epoch, workers, replicas = numbers
    return BatchPlan(epoch, next(iter(algorithms)), workers, replicas)


def _loads(workers: Mapping[str, float]) -> tuple[tuple[int, ...], int]:
    """Return the loads in the order of the workers, each the largest of so many neighbors."""
    ordered = [round(workers[each]) for each in sorted(workers, key=lambda label: int(label.split("-")[0]))]
    size = -(-len(ordered) // MAX_LOADS) or 1
    return tuple(max(ordered[first : first + size]) for first in range(0, len(ordered), size)), size


def counted_decisions(prometheus: Prometheus, namespace: str, name: str, period: Period) -> Iterable[DecisionLine]:
    """Yield the changes of plan that the operator's metrics count; of each, only its reason is known.

    Raises:
        PrometheusError: there is no answer, or none that can be relied on.
    """
    selector = f"{_CHANGES}{{{equal('query_namespace', namespace)},{equal('query', name)}}}"
    for series in prometheus.range(selector, *period):
        before = series.samples[0].value if series.samples[0].time <= period.first else 0.0  # else its first change
        for sample in series.samples:
            if sample.value > before:
                reason = series.labels.get("reason", "")
                yield DecisionLine(
                    sample.time, None, f"{reason}: a change of plan" if reason else "a change of plan", "operator"
                )
            before = sample.value
