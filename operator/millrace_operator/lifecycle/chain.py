"""Chains of queries: which query reads what another one writes, and whether the queries before it run.

Only queries of one namespace form chains: a status must not show objects that its readers may not read, and a short
address such as ``kafka:9092`` is another cluster in another namespace.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import ValidationError

from millrace_api.model.sinks import SinkSpec
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import ConditionStatus, ConditionType, Phase, Status

from .conditions import condition_of, parse_time


@dataclass(frozen=True)
class Link:
    """A source that reads what the query ``writer`` writes; ``place`` is the topic or the files, in words."""

    writer: str
    source: str
    place: str


@dataclass(frozen=True)
class UpstreamState:
    """Last reported phase of a query; ``ready_since`` is None if it is not ready."""

    phase: Phase | None = None
    ready_since: datetime | None = None


@dataclass(frozen=True)
class Upstream:
    """The queries before one query: those whose results it reads, directly or through others.

    Attributes:
        links: its sources that read results of other queries.
        states: states of all queries before it, from the beginning of the chain on.
        order: longest chain that ends with it, or a cycle if there is one.
        has_cycle: whether the results of it, or of a query before it, come back to the same query.
    """

    links: tuple[Link, ...] = ()
    states: Mapping[str, UpstreamState] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    has_cycle: bool = False

    @property
    def not_running(self) -> list[str]:
        """Names of the queries before it that do not run."""
        return [name for name, state in self.states.items() if state.phase is not Phase.RUNNING]

    @property
    def ready_since(self) -> datetime | None:
        """Time since which all queries before it are ready; None if one of them is not, or there is none."""
        times = [state.ready_since for state in self.states.values()]
        return None if None in times else max((time for time in times if time is not None), default=None)


class Chains:
    """Index of the chains of all queries, filled from a watch; all methods may be called from any thread.

    A changed spec is compared with the others of its namespace. Any other change costs only a look at the status.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._namespaces: defaultdict[str, dict[str, _Member]] = defaultdict(dict)

    def seen(self, body: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Store a query as last seen; return the queries after it, by namespace and name, if their chains change."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        version, state = (metadata["uid"], metadata["generation"]), _state_of(body.get("status") or {})
        with self._lock:
            members = self._namespaces[namespace]
            before = members.get(name)
            if before is None or before.version != version:
                affected = _remove(members, name)
                members[name] = _Member(version, state, *_ends_of(body.get("spec") or {}))
                _connect(members, name)
            elif before.state == state:
                return set()
            else:
                before.state, affected = state, set()
            affected |= _reachable(members, name, lambda member: member.readers)
            return {(namespace, each) for each in affected - {name}}

    def gone(self, body: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Remove a deleted query; return the queries after it. A later query of the same name stays."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        with self._lock:
            members = self._namespaces[namespace]
            affected: set[str] = set()
            if name in members and members[name].version[0] == metadata["uid"]:
                affected = _remove(members, name)
            if not members:
                del self._namespaces[namespace]
            return {(namespace, each) for each in affected - {name}}

    def upstream_of(self, namespace: str, name: str) -> Upstream:
        """Return the queries before one query."""
        with self._lock:
            members = self._namespaces.get(namespace, {})
            if name not in members or not members[name].links:
                return Upstream()
            before = sorted(_reachable(members, name, lambda member: member.links))
            graph = {each: sorted(members[each].links) for each in before}
            states = {each: members[each].state for each in before if each != name}
            links = tuple(each for writer in graph[name] for each in members[name].links[writer])
        try:
            ordered = tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            return Upstream(links, states, _from_itself(error.args[1], name), has_cycle=True)
        return Upstream(links, {each: states[each] for each in ordered[:-1]}, _longest(graph, ordered))


@dataclass
class _Member:
    """A query of a namespace: its state, what it reads and writes by its spec, and the queries beside it."""

    version: tuple[str, int]
    state: UpstreamState
    sources: Mapping[str, SourceSpec]
    sinks: tuple[SinkSpec, ...]
    links: dict[str, tuple[Link, ...]] = field(default_factory=dict)
    readers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        written = [sink.kafka or sink.table for sink in self.sinks]
        kafka = [source.kafka for source in self.sources.values() if source.kafka is not None]
        self._written = frozenset(each.topic for each in written if each is not None)
        self._topics = frozenset[str]().union(*(source.named_topics for source in kafka))
        self._compares = any(source.files for source in self.sources.values()) or any(
            source.topic_pattern for source in kafka
        )

    def may_read(self, writer: _Member) -> bool:
        """Return False if it certainly reads nothing of another query, as is so for nearly all; this is fast."""
        return self._compares or not writer._written.isdisjoint(self._topics)

    def links_to(self, name: str, writer: _Member) -> tuple[Link, ...]:
        """Return the sources that read what another query of this name writes."""
        places = (
            (source, _place(spec, sink)) for source, spec in sorted(self.sources.items()) for sink in writer.sinks
        )
        return tuple(Link(name, source, place) for source, place in places if place)


def _place(source: SourceSpec, sink: SinkSpec) -> str:
    """Return what a source reads of a sink's results, in words; empty if it reads none."""
    written = sink.kafka or sink.table
    if source.kafka is not None and written is not None:
        reads = source.kafka.reads(written.topic) and source.kafka.is_cluster_of(written)
        return f"topic {written.topic}" if reads else ""
    if source.files is not None and sink.files is not None and source.files.reads(sink.files.first_file):
        return f"files in {sink.files.path}"
    return ""


def _connect(members: dict[str, _Member], name: str) -> None:
    """Note what a new member and the others read of one another; a query that reads its own results is refused."""
    member = members[name]
    readers = [other for other, each in members.items() if each.may_read(member)]
    writers = [other for other, each in members.items() if member.may_read(each)]
    for reader, writer in (*((each, name) for each in readers), *((name, each) for each in writers)):
        if reader != writer and (links := members[reader].links_to(writer, members[writer])):
            members[reader].links[writer] = links
            members[writer].readers.add(reader)


def _remove(members: dict[str, _Member], name: str) -> set[str]:
    """Remove a member if there is one; return the queries after it."""
    if name not in members:
        return set()
    after = _reachable(members, name, lambda member: member.readers)
    removed = members.pop(name)
    for reader in removed.readers:
        del members[reader].links[name]
    for writer in removed.links:
        members[writer].readers.discard(name)
    return after


def _reachable(members: Mapping[str, _Member], start: str, beside: Callable[[_Member], Iterable[str]]) -> set[str]:
    """Return the names that lead from ``start`` along one direction, itself included."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(beside(members[waiting.pop()])) - found
        found |= new
        waiting += new
    return found


def _longest(graph: Mapping[str, Iterable[str]], ordered: tuple[str, ...]) -> tuple[str, ...]:
    """Return the longest chain that ends with the last query of a topological order."""
    depths: dict[str, int] = {}
    before: dict[str, str] = {}
    for each in ordered:
        for writer in graph[each]:
            if depths[writer] >= depths.get(each, 0):
                depths[each], before[each] = depths[writer] + 1, writer
        depths.setdefault(each, 0)
    chain = [ordered[-1]]
    while chain[-1] in before:
        chain.append(before[chain[-1]])
    return tuple(reversed(chain))


def _from_itself(cycle: list[str], name: str) -> tuple[str, ...]:
    """Return a cycle so that it begins and ends with this query, if the query is in it."""
    names = cycle[:-1]
    at = names.index(name) if name in names else 0
    return (*names[at:], *names[:at], names[at])


def _ends_of(spec: Mapping[str, Any]) -> tuple[Mapping[str, SourceSpec], tuple[SinkSpec, ...]]:
    """Return the sources and the sinks of a spec, without those that are invalid."""
    outputs = (spec, *(spec.get("additionalOutputs") or {}).values())
    sinks = (_sink_of(output.get("sink") or {}) for output in outputs)
    return dict(_sources_of(spec.get("sources") or {})), tuple(sink for sink in sinks if sink is not None)


def _sources_of(documents: Mapping[str, Any]) -> Iterator[tuple[str, SourceSpec]]:
    for name, document in documents.items():
        try:
            yield name, SourceSpec.model_validate(document, by_name=False)
        except (ValidationError, RecursionError):
            continue


def _sink_of(document: Mapping[str, Any]) -> SinkSpec | None:
    try:
        return SinkSpec.model_validate(document, by_name=False)
    except ValidationError:
        return None


def _state_of(document: Mapping[str, Any]) -> UpstreamState:
    try:
        status = Status.model_validate(document, by_name=False)
    except ValidationError:  # another version of Millrace wrote it
        return UpstreamState()
    ready = condition_of(status, ConditionType.READY)
    holds = ready is not None and ready.status is ConditionStatus.TRUE
    return UpstreamState(status.phase, parse_time(ready.last_transition_time) if ready is not None and holds else None)
