"""Whose driver is replaced next after a change of a Connection, from what its queries report of themselves.

Fifty queries may name one Connection, and its change may be a typing error. So their drivers are replaced one after the
other, in the order of the queries' names: the next one as soon as the one before is ready again. After a rollback, no
further one is replaced.

All of this is in the statuses of queries, which every operator watches: a query that waits says so
(``status.connections[].update``), and so does one whose driver is replaced, before it is drained. Nothing else is
remembered, so an operator that has just started, or that of another shard, comes to the same result. An outdated view
of a query lets no other one go too early: a query waits for each one before it until that has reported the Connection's
generation. Only where a query joins in later may two queries go at once: it is no longer paused, say, or a rollout of
another Connection that it names is no longer held.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from millrace_api.model.status import ConditionType, ConnectionUpdate, Phase
from millrace_api.model.streamquery import Annotation
from millrace_api.validation.connections import references

from ..conditions import ReadyReason, parse_time
from ..pods.driver_health import HEALTH_DEADLINE

MOST_AT_ONCE = 1
"""Drivers of queries of one Connection that are replaced at the same time for its change."""

MOST_CONNECTIONS = 16
"""Connections that a status shows, the first by name. No query waits for changes of further ones."""

LOOK_AGAIN_AFTER = timedelta(minutes=5)
"""When a query that waits is looked at again if no other one reports anything."""


class Rollout(NamedTuple):
    """A change of a Connection, as one query sees it that has to follow.

    Attributes:
        goes: whether the query's driver may be replaced now.
        held_by: which query keeps others from being replaced, and why; empty while each one becomes ready in time.
    """

    goes: bool = True
    held_by: str = ""


class _QueryReport(NamedTuple):
    """What a query that refers to Connections reports of itself.

    Attributes:
        uid: the query's uid; a later query may have its name.
        names: the Connections that it refers to.
        updates: the generation of each as the query has last seen it, and how far the query follows it.
        phase: stage of its life cycle.
        ready: status, reason and time of its condition Ready.
        rejected: why its spec was rolled back; empty if it was not.
    """

    uid: str
    names: frozenset[str]
    updates: Mapping[str, tuple[int, str]]
    phase: str
    ready: tuple[str, str, str]
    rejected: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _QueryReport | None:
        """Return what a query reports; None if it waits for none, and none waits for it."""
        metadata, names = body["metadata"], frozenset(name for _, name in references(body))
        is_paused = Annotation.PAUSED.is_set(metadata.get("annotations") or {})
        is_suspended = (body.get("spec") or {}).get("suspend") is True
        if not names or is_paused or is_suspended or "deletionTimestamp" in metadata:
            return None
        status = body.get("status") or {}
        seen = {each["name"]: (each["generation"], each.get("update", "")) for each in status.get("connections") or ()}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        ready: Mapping[str, str] = conditions.get(ConditionType.READY, {})
        shown = ready.get("status", ""), ready.get("reason", ""), ready.get("lastTransitionTime", "")
        rejected = (status.get("rejected") or {}).get("message", "")
        return cls(metadata["uid"], names, seen, status.get("phase", ""), shown, rejected)

    def update(self, connection: str) -> str:
        """Return how far it follows a Connection; empty if it does, or if that is not known."""
        return self.updates[connection][1] if connection in self.updates else ""

    @property
    def waits_for(self) -> list[tuple[str, int]]:
        """The Connections whose changes it waits to follow, with the generations that it has seen."""
        waiting = ConnectionUpdate.WAITING
        return [(name, generation) for name, (generation, update) in self.updates.items() if update == waiting]

    def is_behind(self, connection: str, generation: int) -> bool:
        """Return whether it computes, and has not reported this generation of a Connection yet."""
        if connection in self.updates:
            is_current = self.updates[connection][0] == generation
        else:
            is_current = len(self.updates) >= MOST_CONNECTIONS or self.ready[1] == ReadyReason.INVALID_QUERY
        return self.phase == Phase.RUNNING and not is_current

    def is_being_replaced(self, connection: str) -> bool:
        """Return whether its driver is replaced for a change of a Connection and is not ready yet.

        The phase says so, and not Ready, which is also False if the spec has become invalid while the driver runs on.
        """
        return self.update(connection) == ConnectionUpdate.REPLACING and self.phase != Phase.RUNNING

    def was_rolled_back(self, connection: str, generation: int) -> bool:
        """Return whether it goes on with what a Connection led to before this generation, having tried that."""
        return self.updates.get(connection) == (generation, ConnectionUpdate.ROLLED_BACK)

    def trouble(self, connection: str, generation: int, now: datetime) -> str:
        """Return what has become of its driver after a change of a Connection; empty if nothing is wrong.

        A first batch may take hours, of a backlog for example, and is no trouble: its driver computes.
        """
        if self.was_rolled_back(connection, generation):
            return f"was rolled back from it: {self.rejected}"
        if not self.is_being_replaced(connection):
            return ""
        _, reason, since = self.ready
        if self.phase == Phase.FAILED:
            return f"has followed it, and has failed since {since}"
        is_late = bool(since) and reason != ReadyReason.FIRST_BATCH and now >= parse_time(since) + HEALTH_DEADLINE
        return f"follows it, and has not been ready since {since}" if is_late else ""


class ConnectionRollouts:
    """The queries that refer to Connections, of all shards. All methods may be called from any thread.

    Args:
        most: drivers that are replaced at the same time for a change of one Connection.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._members: defaultdict[str, dict[str, _QueryReport]] = defaultdict(dict)
        """Queries by namespace and name."""

    def note(self, body: Mapping[str, Any], *, gone: bool = False) -> set[tuple[str, str]]:
        """Store a query as last seen; return the queries, by namespace and name, whose turn may have come by that.

        Those are the first that wait for one of its Connections. After a rollback, or the end of one, it is all that
        wait, since their conditions name it. A deletion of an earlier query of the same name changes nothing.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        after = None if gone else _QueryReport.of(body)
        with self._lock:
            members = self._members[namespace]
            if gone and name in members and members[name].uid != body["metadata"]["uid"]:
                return set()
            before = members.pop(name, None)
            if after is not None:
                members[name] = after
            if not members:
                del self._members[namespace]
            if before == after:
                return set()
            found: set[str] = set()
            for connection in {*(before.names if before else ()), *(after.names if after else ())}:
                waiting = sorted(
                    name for name, each in members.items() if each.update(connection) == ConnectionUpdate.WAITING
                )
                is_news = _holds(before, connection) != _holds(after, connection)
                alone = [each for each in waiting if len(members[each].waits_for) == 1]  # no other rollout holds these
                found.update(waiting if is_news else waiting[: self._most] + alone[: self._most])
        return {(namespace, each) for each in found - {name}}

    def of(self, namespace: str, query: str, connection: str, generation: int, now: datetime) -> Rollout:
        """Return whether a query may follow a change of a Connection, given by its generation, now.

        It waits for those before it by name, except for those that wait because of another Connection.
        """
        with self._lock:
            members = sorted(self._members.get(namespace, {}).items())
        others = [(name, each) for name, each in members if name != query and connection in each.names]
        if held_by := self._held_by(others, connection, generation, now):
            return Rollout(goes=False, held_by=held_by)

        @cache
        def is_held(other: str, seen: int) -> bool:
            return bool(self._held_by(members, other, seen, now))

        def is_ahead(name: str, each: _QueryReport) -> bool:
            if each.is_being_replaced(connection) or name > query:
                return each.is_being_replaced(connection)
            if each.update(connection) != ConnectionUpdate.WAITING:
                return each.is_behind(connection, generation)
            return not any(is_held(other, seen) for other, seen in each.waits_for if other != connection)

        return Rollout(sum(is_ahead(*each) for each in others) < self._most)

    def _held_by(
        self, members: Sequence[tuple[str, _QueryReport]], connection: str, generation: int, now: datetime
    ) -> str:
        """Return which query keeps all others from following a change of a Connection, and why; empty if none does."""
        naming = [(name, each) for name, each in members if connection in each.names]
        is_stopped = any(each.was_rolled_back(connection, generation) for _, each in naming)
        if not is_stopped and sum(each.is_being_replaced(connection) for _, each in naming) < self._most:
            return ""
        troubles = ((name, each.trouble(connection, generation, now)) for name, each in naming)
        return next((f"query {name} {trouble}" for name, trouble in troubles if trouble), "")


def _holds(member: _QueryReport | None, connection: str) -> bool:
    return member is not None and member.update(connection) == ConnectionUpdate.ROLLED_BACK
