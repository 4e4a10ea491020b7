"""The report of ``millrace calibrate``: what batches cost, and the plan that each rate needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from millrace_api.model.deployment import Placement
from millrace_api.model.plan import Plan
from millrace_support.plan_measurements import PlanBatch, PlanMeasurements, ReportRequest

from ..capacity.deployment import Deployment, RateForecast
from ..lifecycle.autoscaling.scaling_inputs import bounds_of
from ..scaling.batch_time.batch_model import FIXED
from ..scaling.batch_time.stage_work import COMBINE, MERGE, ROUTE
from ..scaling.decision.search import WIDE, Forecast
from ..scaling.observation import Observation, Stage
from ..scaling.shape import Shape
from .recording import Recording

_WIDTH = 200

_UNKNOWN = 100.0
"""Ratio of the ends of an interval from which it says nothing."""

_CAUSES = {
    FIXED: ("what the driver does for every batch", "write a longer spec.batchInterval"),
    ROUTE.name: ("reading and routing by as many replicas as allowed", "raise spec.partitioner.replicas.max"),
    COMBINE.name: ("combining by as many workers as allowed", "raise spec.parallelism.max"),
    MERGE.name: ("merging by as many tasks as the state has partitions", "raise spec.parallelism.max"),
}
"""What takes most of the shortest batch, and what shortens it."""

_HOT_KEY = ("combining the records of the hottest key", "write algorithm: auto, or one that splits keys")


def calibration_report(measured: PlanMeasurements, request: ReportRequest) -> tuple[dict[str, Any], list[str]]:
    """Return the report as a document and as lines, and write the recording that is asked for.

    Raises:
        MillraceError: the recording cannot be written.
    """
    deployment = deployment_of(measured)
    if request.recording is not None:
        recording_of(measured, deployment).write(Path(request.recording))
    rates = sorted(set(request.rates)) or deployment.rates()
    forecasts = [deployment.forecast(rate) for rate in rates]
    return _document(measured, deployment, forecasts), list(_lines(measured, deployment, forecasts))


def deployment_of(measured: PlanMeasurements) -> Deployment:
    """Return the query with the observations that a run has made."""
    spec = measured.query.spec
    first = Plan.initial(spec)
    return Deployment(
        observations=[observation(batch, spec.batch_interval.seconds) for batch in measured.batches],
        measured_partitions=measured.state_partitions,
        bounds=bounds_of(spec, Placement.INLINE),
        present=Shape(first.executors, first.parallelism, first.replicas),
        interval=spec.batch_interval.seconds,
        target=spec.scaling.target,
        state_partitions=spec.state_partitions(spec.executors.max * spec.executors.cores.slots),
    )


def observation(batch: PlanBatch, interval: float) -> Observation:
    """Return a batch as the operator would observe it, if its records had come within an interval."""
    route, combine = batch.route, batch.combine
    return Observation(
        since=float(batch.number),
        until=float(batch.number + 1),
        epoch=batch.epoch,
        plan=Shape(batch.cores, batch.parallelism, batch.replicas),
        batches=1,
        interval=interval,
        seconds=batch.seconds,
        rows=float(batch.rows),
        arrival=batch.rows / interval,
        lag=0.0,
        keys=batch.keys,
        partials=float(batch.partials),
        updates=float(batch.updates),
        imbalance=batch.imbalance,
        route=None if route is None else Stage(route.tasks, route.seconds),
        combine=None if combine is None else Stage(combine.tasks, combine.seconds),
        merge_seconds=batch.merge_seconds,
        routed=float(batch.routed),
        input_bytes=float(batch.input_bytes),
        route_bytes=float(batch.route_bytes),
        combine_bytes=float(batch.combine_bytes),
        source_seconds=batch.source_seconds,
        log_seconds=batch.log_seconds,
        planning_seconds=batch.planning_seconds,
        longest_slice=batch.longest_slice,
        hottest_key=batch.hottest_key,
        largest_slice=batch.largest_slice,
    )


def recording_of(measured: PlanMeasurements, deployment: Deployment) -> Recording:
    """Return the observations as a recording for ``millrace model``, whose executors have one core."""
    return Recording(
        query=measured.query.name,
        executor_cores=1,
        state_partitions=measured.state_partitions,
        network=None,
        calibration=deployment.calibration.save(),
    )


def _document(measured: PlanMeasurements, deployment: Deployment, forecasts: list[RateForecast]) -> dict[str, Any]:
    plans = dict.fromkeys((batch.cores, batch.parallelism, batch.replicas) for batch in measured.batches)
    return {
        "query": measured.query.name,
        "algorithm": measured.algorithm,
        "machine_cores": measured.cores,
        "seconds": round(measured.seconds, 1),
        "batches": len(measured.batches),
        "plans": [dict(zip(("cores", "parallelism", "replicas"), plan, strict=True)) for plan in plans],
        "batch_records": [min(b.rows for b in measured.batches), max(b.rows for b in measured.batches)],
        "batch_interval_seconds": deployment.interval,
        "target": deployment.target,
        "costs": [asdict(cost) for cost in deployment.costs()],
        "contention": deployment.contention,
        "rates": [_rate(found, deployment) for found in forecasts],
        "notes": [*measured.notes, *_caveats(measured, deployment)],
    }


def _rate(found: RateForecast, deployment: Deployment) -> dict[str, Any]:
    return {
        "records_per_second": found.rate,
        "plan": _plan(found.plan),
        "sure": _plan(found.sure),
        "beyond_bounds": _plan(found.beyond),
        "nearest": _plan(found.nearest),
        "shortest_batch_seconds": found.shortest,
        "shortest_batch_cause": found.cause,
        "extrapolates": list(found.extrapolates),
        "sentence": _sentence(found, deployment),
    }


def _plan(found: Forecast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    shape = found.plan
    return {
        "executors": shape.executors,
        "parallelism": shape.parallelism,
        "replicas": shape.replicas,
        "utilization": found.utilization,
        "utilization_low": found.low,
        "utilization_high": found.high,
        "bottleneck": found.bottleneck,
    }


def _lines(measured: PlanMeasurements, deployment: Deployment, forecasts: list[RateForecast]) -> Iterator[str]:
    rows = [batch.rows for batch in measured.batches]
    plans = {(batch.cores, batch.parallelism, batch.replicas) for batch in measured.batches}
    yield (
        f"{measured.query.name}: {len(rows)} batches of {min(rows):,} to {max(rows):,} records under {len(plans)} "
        f"plans, on {_cores(measured.cores)}, with algorithm {measured.algorithm}, in {measured.seconds:.0f} s"
    )
    yield ""
    yield "What a batch costs on a core of this machine, with 90 % intervals:"
    yield from _shown(_cost_table(deployment))
    yield f"Each further busy core slows all of them by {deployment.contention:.1%}."
    yield ""
    executor = _cores(deployment.bounds.executor_cores)
    yield (
        f"The smallest plan for a rate, with executors of {executor}, batches every {deployment.interval:g} s, "
        f"and a target of W {deployment.target:g}:"
    )
    yield from _shown(_rate_table(forecasts))
    for found in forecasts:
        yield f"{_number(found.rate)} records/s: {_sentence(found, deployment)}"
    yield ""
    for note in (*measured.notes, *_caveats(measured, deployment)):
        yield f"note: {note}"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _cost_table(deployment: Deployment) -> Table:
    table = _table("the cost of", "seconds", "interval")
    for cost in deployment.costs():
        is_known = cost.high <= _UNKNOWN * cost.low
        interval = f"{_time(cost.low)} to {_time(cost.high)}" if is_known else "hardly known"
        table.add_row(cost.of, _time(cost.seconds), interval)
    return table


def _rate_table(forecasts: list[RateForecast]) -> Table:
    table = _table(
        "records/s", "executors", "parallelism", "replicas", "W", "90 %", "bottleneck", "executors\nto be sure"
    )
    for found in forecasts:
        plan = found.plan or found.beyond or found.nearest
        mark = "" if found.plan else " (beyond)" if found.beyond else " (too few)"
        shape = plan.plan
        table.add_row(
            _number(found.rate),
            f"{shape.executors}{mark}",
            str(shape.parallelism),
            str(shape.replicas),
            f"{plan.utilization:.2f}",
            f"{plan.low:.2f} to {plan.high:.2f}",
            plan.bottleneck,
            "-" if found.sure is None else str(found.sure.plan.executors),
        )
    return table


def _sentence(found: RateForecast, deployment: Deployment) -> str:
    """Return what follows for a rate: how sure it is, and what no executor helps against."""
    high = deployment.bounds.executors.high
    wanted = deployment.target * deployment.interval
    parts = []
    shown = found.plan or found.beyond or found.nearest
    guess = " (a guess, since the interval is wide)" if shown.high > (1 + WIDE) * shown.utilization else ""
    if found.plan is not None:
        parts.append(f"{_executors(found.plan.plan.executors)} should do{guess}")
        if found.sure is None:
            parts.append(f"not even {high} keep the upper end of the interval below the target")
        elif found.sure.plan.executors > found.plan.plan.executors:
            parts.append(f"{found.sure.plan.executors} with 90 % certainty or more")
    elif found.shortest > wanted:
        cause, hint = _cause(found, deployment)
        parts.append(
            f"no number of executors is enough{guess}: {found.shortest:.2f} s of a batch, mostly {cause}, do not "
            f"become shorter with more, and {wanted:.2f} s are allowed; {hint}"
        )
    elif found.beyond is not None:
        shape = found.beyond.plan
        parts.append(
            f"not with {_executors(high)} at most (W {found.nearest.utilization:.2f}); "
            f"{shape.executors} would do{guess}, if executors.max, parallelism.max {shape.parallelism} and "
            f"replicas.max {shape.replicas} allowed it"
        )
    else:
        parts.append(f"not with {_executors(high)} at most{guess} (W {found.nearest.utilization:.2f})")
    if found.plan is not None and found.shortest > wanted / 2:
        parts.append(f"{found.shortest:.2f} s of a batch do not become shorter with more executors")
    if found.extrapolates:
        parts.append(f"extrapolated to {' and '.join(found.extrapolates)}")
    return ", ".join(parts)


def _cause(found: RateForecast, deployment: Deployment) -> tuple[str, str]:
    seen = deployment.calibration.newest
    hot = seen is not None and (seen.hottest_key or 0.0) * deployment.bounds.parallelism.high > 1
    if found.cause == FIXED:
        cause, hint = _CAUSES[FIXED]
        return cause, f"{hint}, such as {found.shortest / deployment.target:.1f}s"
    return _HOT_KEY if found.cause == COMBINE.name and hot else _CAUSES[found.cause]


def _caveats(measured: PlanMeasurements, deployment: Deployment) -> Iterator[str]:
    yield (
        "these are costs of this machine: on other processors, disks and networks they differ, and the operator learns "
        "those of the cluster from its own batches"
    )
    yield "sinks were not written: what they take comes on top"
    rows, event = max(batch.rows for batch in measured.batches), measured.event_seconds
    if event is not None and event * rows > 3 * deployment.interval:
        yield (
            f"a batch of {rows:,} records covered {_period(event * rows)} of event time here, and will cover about "
            f"{deployment.interval:g} s where records come as they happen: then it has fewer windows, and fewer keys"
        )
    if measured.query.spec.executors.cores < deployment.bounds.executor_cores:
        share = f"{float(measured.query.spec.executors.cores):g}"
        yield f"executors have {share} cores, and the predictions are for {deployment.bounds.executor_cores} whole ones"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if not place and len(columns) == 3 else "right", no_wrap=True)
    return table


def _shown(table: Table) -> Iterator[str]:
    console = Console(file=StringIO(), width=_WIDTH, color_system=None)
    console.print(table)
    assert isinstance(console.file, StringIO)
    yield from (line.rstrip() for line in console.file.getvalue().strip("\n").splitlines())


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def _period(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _executors(count: int) -> str:
    return "1 executor" if count == 1 else f"{count} executors"
