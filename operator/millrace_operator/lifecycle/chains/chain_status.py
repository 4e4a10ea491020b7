"""Part of a query's status about the queries before it in its chain; pure functions."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from millrace_api.model.status import Attempt, Chain, Condition, ConditionType, FailureClass, UpstreamQuery

from ..conditions import condition, parse_time, shortened
from .upstream import Upstream

MOST_NAMED = 16
"""Upstream queries that a status lists at most, and queries that the order of a chain names at most."""

_MOST_IN_MESSAGE = 4


class UpstreamReason(StrEnum):
    """Reason of the UpstreamReady condition."""

    NO_UPSTREAM = "NoUpstream"
    """No source reads what another query of the namespace writes."""
    RUNNING = "UpstreamRunning"
    """All queries before this one run."""
    NOT_RUNNING = "UpstreamNotRunning"
    """The queries that the message names do not run, so new records may be missing."""
    WAITING = "WaitingForUpstream"
    """A topic or files do not exist yet, and the queries that the message names do not run."""
    CYCLE = "Cycle"
    """The results of this query, or of one before it, come back to the same query."""


def chain_status(upstream: Upstream) -> Chain | None:
    """Return the queries before one; None if there are none."""
    if not upstream.links:
        return None
    queries = tuple(
        UpstreamQuery(
            name=link.writer,
            source=link.source,
            reads=shortened(link.place, 256),
            phase=upstream.states[link.writer].phase,
        )
        for link in upstream.links[:MOST_NAMED]
    )
    return Chain(
        order=_order(upstream), depth=None if upstream.has_cycle else len(upstream.order) - 1, upstream=queries
    )


def upstream_condition(upstream: Upstream, last: Attempt | None, generation: int, now: datetime) -> Condition:
    """Return the UpstreamReady condition; ``last`` is the last failed run, if the driver has not been healthy since."""
    total, reason, message = len(upstream.states), UpstreamReason.NO_UPSTREAM, ""
    if upstream.has_cycle:
        reason = UpstreamReason.CYCLE
        message = f"records circulate forever: {_order(upstream)}; let one of these queries write elsewhere"
    elif upstream.not_running:
        waits = waits_for_upstream(upstream, last)
        reason = UpstreamReason.WAITING if waits else UpstreamReason.NOT_RUNNING
        message = not_running(upstream)
    elif total:
        reason, message = UpstreamReason.RUNNING, f"{total} of {total} queries before this one run"
    holds = reason in (UpstreamReason.NO_UPSTREAM, UpstreamReason.RUNNING)
    return condition(ConditionType.UPSTREAM_READY, holds, reason, message, generation, now)


def waits_for_upstream(upstream: Upstream, last: Attempt | None) -> bool:
    """Return whether the driver's input is missing and a query that may write it does not run."""
    return last is not None and last.reason == FailureClass.SOURCE_MISSING and bool(upstream.not_running)


def was_too_early(upstream: Upstream, last: Attempt) -> bool:
    """Return whether the driver's input was missing before all queries that may write it were ready."""
    since = upstream.ready_since
    before = since is not None and parse_time(last.time) < since
    return last.reason == FailureClass.SOURCE_MISSING and (before or bool(upstream.not_running))


def not_running(upstream: Upstream) -> str:
    """Return the queries that do not run, with their phases and what is read of them, as a sentence."""
    places = {link.writer: f" ({shortened(link.place, 256)})" for link in upstream.links}
    names = upstream.not_running
    texts = [
        f"{name}{places.get(name, '')} is {upstream.states[name].phase or 'new'}" for name in names[:_MOST_IN_MESSAGE]
    ]
    more = len(names) - len(texts)
    return ", ".join([*texts, f"and {more} more"] if more else texts)


def _order(upstream: Upstream) -> str:
    """Return the chain with arrows, without its beginning if it is long."""
    names = upstream.order if len(upstream.order) <= MOST_NAMED else ("...", *upstream.order[-MOST_NAMED:])
    return " -> ".join(names)
