"""Chains of queries: which query reads what another one writes, and whether the queries before it run.

Only queries of one namespace form chains: a status must not show objects that its readers may not read, and a short
address such as ``kafka:9092`` is another cluster in another namespace.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace_api.model.status import ConditionStatus, ConditionType, Status

from ..conditions import condition_of, parse_time
from .chain_places import PlaceIndex, Places
from .upstream import Link, Upstream, UpstreamState

MOST_WRITERS = 64
"""Queries that one query is connected with as their reader, the first ones by name."""

MOST_LINKS = 20_000
"""Sources in a namespace that read what another query writes. It bounds the whole graph."""

MOST_CHARACTERS = 4 << 20
"""Characters of all topics, paths and brokers that are compared in a namespace."""


class Chains:
    """Index of the chains of all queries. It may be read from any thread, and changed by one thread at a time.

    A changed spec is compared with those that have a place in common with it; any other change costs only a look at the
    status.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)

    def seen(self, body: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Store a query as last seen; return the queries after it, by namespace and name, if their chains change."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        version = metadata["uid"], metadata["generation"], metadata.get("brokers")
        state = _state_of(body.get("status") or {})
        with self._lock:
            members = self._namespaces[namespace]
        with members.lock:
            affected = members.store(name, version, state, body.get("spec") or {})
        return {(namespace, each) for each in affected - {name}}

    def gone(self, body: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Remove a deleted query; return the queries after it. A later query of the same name stays."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if (members := self._members(namespace)) is None or members.uid_of(name) != metadata["uid"]:
            return set()
        with members.lock:
            affected = members.remove(name)
        if members.is_empty:
            with self._lock:
                del self._namespaces[namespace]
        return {(namespace, each) for each in affected - {name}}

    def upstream_of(self, namespace: str, name: str) -> Upstream:
        """Return the queries before one query."""
        if (members := self._members(namespace)) is None:
            return Upstream()
        with members.lock:
            return members.upstream_of(name)

    def _members(self, namespace: str) -> _Namespace | None:
        with self._lock:
            return self._namespaces.get(namespace)


@dataclass
class _Member:
    """A query of a namespace: its state, what it reads and writes by its spec, and the queries beside it."""

    version: tuple[str, int, str | None]
    state: UpstreamState
    places: Places
    links: dict[str, tuple[Link, ...]] = field(default_factory=dict)
    readers: set[str] = field(default_factory=set)
    is_full: bool = False
    """Whether it reads results of more queries than it is connected with."""


class _Namespace:
    """The queries of one namespace; ``lock`` is held while they change and while more than one is read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._members: dict[str, _Member] = {}
        self._index = PlaceIndex()
        self._links = self._characters = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no query."""
        return not self._members

    def uid_of(self, name: str) -> str | None:
        """Return the uid of a query; None if it is unknown."""
        member = self._members.get(name)
        return None if member is None else member.version[0]

    def store(
        self, name: str, version: tuple[str, int, str | None], state: UpstreamState, spec: Mapping[str, Any]
    ) -> set[str]:
        """Store a query; return it and the queries after it if their chains change."""
        before = self._members.get(name)
        if before is not None and before.version == version:
            if before.state == state:
                return set()
            before.state = state
            return self._after(name)
        affected = self.remove(name)
        places = Places.of(spec)
        if self._characters + places.characters > MOST_CHARACTERS:
            places = Places()
        self._characters += places.characters
        member = self._members[name] = _Member(version, state, places)
        self._index.add(name, member.places)
        for reader in self._index.readers_of(member.places) - {name}:
            self._connect(reader, name)
        self._connect_with_writers(name)
        return affected | self._after(name)

    def remove(self, name: str) -> set[str]:
        """Remove a query if it is known; return it and the queries after it."""
        if name not in self._members:
            return set()
        after = self._after(name)
        removed = self._members.pop(name)
        self._characters -= removed.places.characters
        self._index.remove(name, removed.places)
        for writer, links in removed.links.items():
            self._links -= len(links)
            self._members[writer].readers.discard(name)
        for reader in removed.readers:
            self._links -= len(self._members[reader].links.pop(name))
            if self._members[reader].is_full:
                self._connect_with_writers(reader)
        return after

    def upstream_of(self, name: str) -> Upstream:
        """Return the queries before one query."""
        members = self._members
        if name not in members or not members[name].links:
            return Upstream()
        before = sorted(_reachable(name, lambda each: members[each].links))
        graph = {each: sorted(members[each].links) for each in before}
        states = {each: members[each].state for each in before if each != name}
        links = tuple(each for writer in graph[name] for each in members[name].links[writer])
        return Upstream.of(name, links, graph, states)

    def _after(self, name: str) -> set[str]:
        return _reachable(name, lambda each: self._members[each].readers)

    def _connect_with_writers(self, name: str) -> None:
        member = self._members[name]
        member.is_full = False
        for writer in sorted(self._index.writers_for(member.places) - {name} - member.links.keys()):
            if member.is_full:
                break
            self._connect(name, writer)

    def _connect(self, name: str, writer: str) -> None:
        """Connect a query with one that it may read from; a query that reads its own results is refused elsewhere."""
        member, other = self._members[name], self._members[writer]
        if self._links >= MOST_LINKS:
            return
        found = tuple(Link(writer, *each) for each in member.places.read_of(other.places))
        if not found:
            return
        self._links += len(found)
        member.links[writer] = found
        other.readers.add(name)
        if len(member.links) > MOST_WRITERS:
            member.is_full = True
            last = max(member.links)
            self._links -= len(member.links.pop(last))
            self._members[last].readers.discard(name)


def _reachable(start: str, beside: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the names that lead from ``start`` along one direction, itself included."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(beside(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def reported_state(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a query's status that the queries after it are shown."""
    conditions = status.get("conditions") or ()
    ready = [each for each in conditions if isinstance(each, dict) and each.get("type") == ConditionType.READY]
    return {"phase": status.get("phase"), "conditions": ready}


def _state_of(document: Mapping[str, Any]) -> UpstreamState:
    status = Status.reported(document)
    ready = condition_of(status, ConditionType.READY)
    holds = ready is not None and ready.status is ConditionStatus.TRUE
    return UpstreamState(status.phase, parse_time(ready.last_transition_time) if ready is not None and holds else None)
