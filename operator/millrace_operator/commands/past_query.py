"""The record of a query on a cluster over a period: its metrics in Prometheus, and its decisions on the API server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import LastScaling, Status
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.connections import resolve
from millrace_support.run_record import DecisionLine, MessageLine, RecordLine

from ..lifecycle.conditions import ReadyReason
from ..metrics_source.client import Prometheus
from ..metrics_source.settings import PrometheusSettings
from ..resources.names import Manifest, Owner
from ..scaling.decision.decision import Reason
from ..scaling.decision.settings import Guard
from .cluster import Cluster, ForbiddenError
from .past_metrics import Period, counted_decisions, past_lines
from .user_queries import UserQueries

_DECISIONS = frozenset(map(str, (*Reason, *Guard))) - frozenset(map(str, ReadyReason))
"""Reasons of events that are decisions of scaling; events of the life cycle may have the same word, as Draining."""


def recorded_by_prometheus(
    cluster: Cluster, name: str, url: str | None, token_file: Path | None, first: float, last: float
) -> list[RecordLine]:
    """Return the record of a query from ``first`` to ``last``, in seconds since 1970.

    Raises:
        MillraceError: there is no such query, no Prometheus that answers, or no sample of the query.
    """
    queries = UserQueries(cluster)
    view = queries.get(name)
    query = StreamQuery.model_validate(resolve(view.body, queries.connections(view.body)).document, by_name=False)
    period = Period.of(first, last)
    pod = Owner(view.namespace, name, view.body["metadata"]["uid"]).driver_pod
    settings = _settings(url, token_file)
    with closing(Prometheus(settings)) as prometheus:
        lines = past_lines(prometheus, view.namespace, query, pod, period, f"Prometheus at {settings.url}")
        decided = list(_decisions(queries, view.status, name))
        oldest = min((each.time for each in decided if isinstance(each, DecisionLine)), default=math.inf)
        counted = counted_decisions(prometheus, view.namespace, name, period)
        decided += [each for each in counted if each.time < oldest - period.step]
    begin, *rest = lines
    within = [each for each in decided if begin.time <= each.time <= last]
    return [begin, *sorted((*rest, *within), key=lambda each: each.time)]


def _settings(url: str | None, token_file: Path | None) -> PrometheusSettings:
    if url is None:
        hint = (
            "write --prometheus http://127.0.0.1:9090 after kubectl port-forward -n NAMESPACE service/NAME 9090:PORT, "
            "for the Service that kubectl get services -A shows; or write another URL, or set MILLRACE_PROMETHEUS"
        )
        raise MillraceError(Problem("the report of a query on a cluster needs the Prometheus that scrapes it", hint))
    try:
        return PrometheusSettings(url, token_file=token_file)
    except MillraceError as error:
        options = {"url": "--prometheus", "token_file": "--prometheus-token-file"}
        problems = (replace(each, field=options.get(each.field, each.field)) for each in error.problems)
        raise MillraceError(*problems) from None


def _decisions(queries: UserQueries, status: Status, name: str) -> Iterator[DecisionLine | MessageLine]:
    """Yield what the operator has said of the query: its events, its failed runs, and its last decision."""
    try:
        events = queries.events(name)
    except ForbiddenError:  # the last decision and the failed runs are in the status, too
        events = []
    for event in events:
        yield _line(event)
    scaling = status.last_scaling
    if scaling is not None and not any(event.get("reason") == scaling.reason for event in events):
        yield DecisionLine(_seconds(scaling.time), None, _sentence(scaling), "operator")
    for attempt in status.attempts:
        text = f"the run {attempt.run} failed, {attempt.reason}: {attempt.message}"
        yield MessageLine(_seconds(attempt.time), text)


def _line(event: Manifest) -> DecisionLine | MessageLine:
    """Return an event as a line; anyone may have written it, and the API server leaves empty texts out."""
    time = _seconds(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
    reason, message = event.get("reason", ""), event.get("message", "")
    text = ": ".join(filter(None, (reason, message))).removesuffix(".")
    return DecisionLine(time, None, text, "operator") if reason in _DECISIONS else MessageLine(time, text)


def _sentence(scaling: LastScaling) -> str:
    return f"{scaling.reason}: {scaling.message}".removesuffix(".")


def _seconds(time: str) -> float:
    """Return a time of the API server in seconds since 1970."""
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
