"""Which queries are similar, so that the batches of one say what those of another will cost; pure functions.

Queries are similar if all that costs follow from is the same, as far as the spec shows it. Names, topics, bounds and
the batch interval are no part of it. Data and conditions may still differ, and with them what a record takes, which
``cost_prior`` allows for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millrace_api.model.python_query import PythonQuery
from millrace_api.model.streamquery import Query, Spec

from ...scaling.batch_time.cost_prior import KnownCosts

_LEAST_PLANS, _LEAST_OBSERVATIONS = 3, 12
"""Fewest plans, and observations of them, from which another query's costs are expected: with fewer, costs that have
always grown together cannot be separated."""

_LONGEST = 2000
"""Characters of SQL up to which it is taken apart: a tenant's text may take time by the square of its length."""

_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r"\b(\w++)\s*+\(")
_JOIN = re.compile(r"\bjoin\b")
_GROUP_BY = re.compile(r"\bgroup\s+by\b")
_END_OF_LIST = re.compile(r"\b(?:having|order|limit|union|except|intersect|window\s+\w+\s+as)\b|;")


@dataclass(frozen=True)
class CostTraits:
    """What the costs of a query's batches follow from.

    Attributes:
        namespace: only there are other queries looked at: one tenant learns nothing of another.
        sources: kind and format of each source, and whether it is a table.
        computed: the aggregator and its key, or what the SQL calls and by how much it groups and joins.
        algorithm: how records are placed; ``native`` has no route stage.
        sinks: kinds of the outputs, since most of a batch's fixed time is their commit.
        cores: task slots of an executor.
    """

    namespace: str
    sources: tuple[tuple[str, str, bool], ...]
    computed: tuple[object, ...]
    algorithm: str
    sinks: tuple[str, ...]
    cores: int


def cost_traits(namespace: str, spec: Spec) -> CostTraits:
    """Return the traits of a query in a namespace; similar queries have the same."""
    sources = [
        (each.kind, str(each.format or getattr(each.given, "format", None)), each.table is not None)
        for each in spec.sources.values()
    ]
    return CostTraits(
        namespace=namespace,
        sources=tuple(sorted(sources)),
        computed=_of_python(spec.query.python) if spec.query.python is not None else _of_sql(spec.query),
        algorithm=spec.partitioner.algorithm,
        sinks=tuple(each.sink.kind for each in spec.outputs.values()),
        cores=spec.executors.cores.slots,
    )


def best_known(
    found: Iterable[tuple[str, KnownCosts | None]], own: str, *, dedicated: bool
) -> tuple[str, KnownCosts] | None:
    """Return the query that is known best, with its costs; None if too little is known of all.

    That is the query itself if enough is known of it from before, else the one of the most plans, then observations.
    ``found`` are similar queries by name, and ``own`` is the query's. Replicas have to run in the same place:
    ``dedicated``.
    """
    known = [
        (name, costs)
        for name, costs in found
        if costs is not None
        and costs.dedicated is dedicated
        and costs.plans >= _LEAST_PLANS
        and costs.observations >= _LEAST_OBSERVATIONS
        and costs.are_plausible
    ]
    return max(known, key=lambda one: (one[0] == own, one[1].plans, one[1].observations), default=None)


def _of_python(query: PythonQuery) -> tuple[object, ...]:
    """Return the class, the columns of the key, and how many windows a record is in."""
    window = query.window
    windows = 0 if window is None else 1
    if window is not None and window.slide is not None:
        windows = round(window.size.microseconds / window.slide.microseconds)
    return query.aggregator, len(query.group_by), windows


def _of_sql(query: Query) -> tuple[object, ...]:
    """Return the functions and classes that the SQL calls, the columns of each GROUP BY, and the number of joins.

    The text is not parsed: words before a parenthesis that are none of a function, such as IN, count alike in queries
    that are alike. Of a long text, only queries with the same are similar.
    """
    if len(query.sql or "") > _LONGEST:
        return ("long", hash(query.sql))
    text = _TEXT.sub("''", (query.sql or "").lower())
    own = {name: each.python for name, each in (query.functions or {}).items()}
    own |= {name: each.python or str(each.builtin) for name, each in (query.aggregates or {}).items()}
    called = sorted({own.get(name, name) for name in _CALLED.findall(text)})
    widths = tuple(_listed(text[found.end() :]) for found in _GROUP_BY.finditer(text))
    return tuple(called), widths, len(_JOIN.findall(text))


def _listed(text: str) -> int:
    """Return the number of expressions of the list that a text begins with."""
    depth, number = 0, 1
    end = _END_OF_LIST.search(text)
    for each in text[: end.start() if end else None]:
        depth += (each == "(") - (each == ")")
        if depth < 0:
            break
        number += each == "," and not depth
    return number
