"""The queries before one query in its chain: whose results it reads, directly or through others, and how they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import CycleError, TopologicalSorter

from millrace_api.model.status import Phase


@dataclass(frozen=True, slots=True)
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

    @classmethod
    def of(
        cls, name: str, links: tuple[Link, ...], graph: Mapping[str, list[str]], states: Mapping[str, UpstreamState]
    ) -> Upstream:
        """Return the queries before one, from the queries directly before each of them."""
        try:
            ordered = tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            return cls(links, states, _from_itself(error.args[1], name), has_cycle=True)
        return cls(links, {each: states[each] for each in ordered[:-1]}, _longest(graph, ordered))

    @property
    def not_running(self) -> list[str]:
        """Names of the queries before it that do not run."""
        return [name for name, state in self.states.items() if state.phase is not Phase.RUNNING]

    @property
    def ready_since(self) -> datetime | None:
        """Time since which all queries before it are ready; None if one of them is not, or there is none."""
        times = [state.ready_since for state in self.states.values()]
        return None if None in times else max((time for time in times if time is not None), default=None)


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
