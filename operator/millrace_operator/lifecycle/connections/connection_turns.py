"""Whether a driver is replaced now for a change of its query's Connections, and what is reported of it. Pure functions.

See ``connection_rollouts`` for the order of the queries of one Connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from millrace_api.model.status import ConditionStatus, ConditionType, ConnectionUpdate
from millrace_api.model.streamquery import Spec

from ...resources.spec_changes import changed_connections
from ..conditions import ProgressingReason, ReadyReason, condition_of, parse_time
from ..observed_query import ObservedQuery
from ..pods.driver_health import HEALTH_DEADLINE, ready_since
from .connection_rollouts import MOST_CONNECTIONS

FAILURES_OF_DOWN = 2
"""Failed runs in a row after which a driver counts as one that does not compute; the first may pass by itself."""

_BEGUN = (ConnectionUpdate.REPLACING, ConnectionUpdate.ROLLED_BACK)


@dataclass(frozen=True)
class ConnectionTurn:
    """A change of Connections that a query has to follow, and that no user of the query has asked for.

    Attributes:
        names: the Connections.
        waits: reason and message of Progressing while the driver is not to be replaced; None if it is.
    """

    names: tuple[str, ...]
    waits: tuple[ProgressingReason, str] | None = None

    @property
    def updates(self) -> Mapping[str, ConnectionUpdate]:
        """What the query reports of these Connections."""
        return dict.fromkeys(self.names, ConnectionUpdate.REPLACING if self.waits is None else ConnectionUpdate.WAITING)


def turn_of(observed: ObservedQuery, spec: Spec, now: datetime) -> ConnectionTurn | None:
    """Return the query's turn; None if nothing waits.

    That is so for what its users change, what has begun, and what is suspended. A driver that does not compute does not
    wait either, also after another one was rolled back: its brokers may have moved or its login may be revoked, so the
    change may be what helps, and a wrong one costs no more than a rollback. No other query waits for it.

    Args:
        observed: the query, with a last healthy spec.
        spec: the current spec, which needs another driver.
        now: the time of the step.
    """
    assert observed.healthy is not None
    revision, healthy = observed.healthy
    status = observed.status
    is_suspended = not observed.wants_pods and not status.failures
    if is_suspended or observed.revision_to_run != revision or reports(observed, ConnectionUpdate.REPLACING):
        return None
    generations = {name: generation for name, generation, _ in shown_connections(observed)}
    names = tuple(name for name in changed_connections(healthy, spec) if name in generations)
    if not names or is_down(observed, now):
        return None
    rollouts = {name: observed.rollout(name, generations[name], now) for name in names}
    if held := [(name, each.held_by) for name, each in rollouts.items() if each.held_by]:
        name, why = held[0]
        message = f"Connection {name} has changed, and no further driver is replaced: {why}"
        return ConnectionTurn(names, (ProgressingReason.ROLLOUT_HELD, message))
    if all(each.goes for each in rollouts.values()):
        return ConnectionTurn(names)
    them = " and ".join(names)
    message = f"Connection {them} has changed: the drivers of its queries are replaced one after the other, by name"
    return ConnectionTurn(names, (ProgressingReason.WAITING_FOR_TURN, message))


def is_down(observed: ObservedQuery, now: datetime) -> bool:
    """Return whether the driver has not computed for long: it keeps failing, or has not been ready for ten minutes.

    One whose first batch takes that long computes.
    """
    if observed.status.failures >= FAILURES_OF_DOWN:
        return True
    ready = condition_of(observed.status, ConditionType.READY)
    if ready is None or ready.status is ConditionStatus.TRUE or ready.reason == ReadyReason.FIRST_BATCH:
        return False
    is_ready = observed.driver is not None and ready_since(observed.driver) is not None
    return not is_ready and now >= parse_time(ready.last_transition_time) + HEALTH_DEADLINE


def reports(observed: ObservedQuery, update: ConnectionUpdate) -> bool:
    """Return whether the query has reported this of any of its Connections."""
    return any(each.update is update for each in observed.status.connections)


def begun_updates(observed: ObservedQuery, now: ConnectionUpdate | None = None) -> Mapping[str, ConnectionUpdate]:
    """Return the Connections whose changes the query has begun to follow, with ``now`` or what it has reported.

    What it has reported is of a generation, and says nothing about a later one, which it may never have tried.
    """
    begun = [each for each in observed.status.connections if each.update in _BEGUN]
    if now is not None:
        return {each.name: now for each in begun}
    generations = {name: generation for name, generation, _ in shown_connections(observed)}
    return {each.name: each.update for each in begun if each.update and generations.get(each.name) == each.generation}


def shown_connections(observed: ObservedQuery) -> list[tuple[str, int, str]]:
    """Return name, generation and brokers of the Connections that the query's status shows."""
    return observed.connections.shown()[:MOST_CONNECTIONS]
