"""What the commands and the page say of a query, and numbers, ages and texts as they write them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from millrace_api.model.deployment import Placement
from millrace_api.model.status import Condition, ConditionStatus, ConditionType, ConnectionUpdate, ObservedLoad
from millrace_support.terminal_texts import count_text, printable

from ..lifecycle.query_view import QueryView, change_of

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_FAILURES = 3
_UPDATES = {
    ConnectionUpdate.WAITING: "waits to follow it",
    ConnectionUpdate.REPLACING: "the driver is replaced to follow it",
    ConnectionUpdate.ROLLED_BACK: "rolled back to what it led to before",
}


def query_facts(view: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what is known of a query, each fact with its name."""
    yield "namespace", view.namespace
    if view.is_readable:
        yield from _progress(view, now)
    else:
        command = f"kubectl get sq {view.name} -n {view.namespace} -o yaml"
        yield "status", f"another version of Millrace wrote it, and it cannot be read; see {command}"
    if view.pauses:
        yield "paused", ", ".join(view.pauses)
    for each in view.abnormal_conditions:
        yield each.type.value, _held(each)
    for attempt in reversed(view.status.attempts[-_FAILURES:]):
        yield "failed", f"{ago(attempt.time, now)}, {attempt.reason}: {attempt.message or 'no message'}"


def _progress(view: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what the operator has reported and has not reported yet; only for a status that can be read."""
    status = view.status
    yield "ready", _held(view.condition(ConditionType.READY))
    yield "plan", _plan(view)
    yield "load", _load(status.load, now)
    yield "scaling", _scaling(view, now)
    yield "driver", _driver(view, now)
    if (pods := status.partitioner) is not None:
        yield "replicas", f"{pods.ready} of {pods.replicas} ready, {_many(pods.restarts, 'restart')}"
    for part, raised in ({} if status.memory is None else status.memory.by_part).items():
        times = f"raised {_many(raised.raises, 'time')} from {raised.from_}, last {ago(raised.time, now)}"
        yield "memory", f"{part} {raised.memory}, heap {raised.heap}; {times}: {raised.message}"
    for connection in status.connections:
        update = "" if connection.update is None else f"; {_UPDATES[connection.update]}"
        leads = f"{connection.name}, generation {connection.generation}: Kafka at {connection.brokers}"
        yield "connection", f"{leads}{update}"
    if status.chain is not None:
        yield "chain", status.chain.order
        for each in status.chain.upstream:
            yield "upstream", f"{each.name}, {each.phase or 'new'}; source {each.source} reads {each.reads}"
    if view.pending:
        seen = status.observed_generation
        observed = "no generation yet" if seen is None else f"generation {seen} of {view.generation}"
        yield "spec", f"changes are pending: the operator has observed {observed}"


def _held(condition: Condition | None) -> str:
    if condition is None:
        return "not reported yet"
    holds = {ConditionStatus.TRUE: "yes", ConditionStatus.FALSE: "no", ConditionStatus.UNKNOWN: "unknown"}
    return f"{holds[condition.status]}, {condition.reason}{': ' if condition.message else ''}{condition.message}"


def _plan(view: QueryView) -> str:
    plan = view.status.plan
    if plan is None:
        return "none yet"
    executors = _many(plan.executors, "executor") if plan.executors else "at rest without executors"
    shape = f"{plan.algorithm}, {executors}, parallelism {plan.parallelism}"
    applied = "none" if plan.applied_epoch is None else plan.applied_epoch
    replicas = f"{_many(plan.replicas, 'replica')}{' in pods' if plan.placement is Placement.DEDICATED else ''}"
    return f"{shape}, {replicas}; epoch {plan.epoch}, applied {applied}"


def _load(load: ObservedLoad | None, now: datetime) -> str:
    if load is None or load.utilization is None:
        return "not observed yet"
    seen = "" if load.observed_time is None else f"; {ago(load.observed_time, now)}"
    cost = "" if load.cores is None else f"; {load.cores:g} cores"
    if load.core_hours_per_million_records is not None:
        cost += f", {load.core_hours_per_million_records:.3g} core-hours per million records"
    rates = f"{count(load.input_rate)} records/s arrive, {count(load.lag)} records wait"
    return f"W {figure(load.utilization)}, {rates}{cost}{seen}"


def _scaling(view: QueryView, now: datetime) -> str:
    last = view.status.last_scaling
    if last is None:
        return "no decision yet"
    text = f"{change_of(last)}, {last.reason}, {ago(last.time, now)}"
    if last.predicted is not None:
        observed = "not known yet" if last.observed is None else figure(last.observed)
        text += f"; W predicted {figure(last.predicted)}, observed {observed}"
    return f"{text}: {last.message}" if last.message else text


def _driver(view: QueryView, now: datetime) -> str:
    driver = view.status.driver
    if driver is None:
        return "none"
    since = "" if driver.start_time is None else f", started {ago(driver.start_time, now)}"
    return f"{driver.pod}{since}, {_many(driver.restarts, 'restart')}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def count(number: float | None) -> str:
    """Format a count as ``count_text`` does; ``-`` if it is unknown."""
    return "-" if number is None else count_text(number)


def figure(number: float | None) -> str:
    """Format a number with two decimals; ``-`` if it is unknown."""
    return "-" if number is None else f"{number:.2f}"


def age(time: str | None, now: datetime) -> str:
    """Format the age of a Kubernetes timestamp in its largest unit: ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    if time is None:
        return "-"
    try:
        seconds = max((now - datetime.fromisoformat(time)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return "-"
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(time: str | None, now: datetime) -> str:
    """Format the age of a Kubernetes timestamp as the end of a sentence: ``5 min ago``."""
    passed = age(time, now)
    return "at an unknown time" if passed == "-" else f"{passed} ago"


def one_line(text: str) -> str:
    """Return a text of the cluster on one line, with control characters escaped for the terminal."""
    return printable(" ".join(text.split()))
