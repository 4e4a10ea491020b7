"""Which queries are similar, so that the batches of one say what those of another will cost; pure functions.

Queries are similar if all that costs follow from is the same, as far as the spec shows it. Names, topics, bounds and
the batch interval are no part of it. Data and conditions may still differ, and with them what a record takes, which
``cost_prior`` allows for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise

from sqlglot.tokenizer_core import TokenType

from millrace_api.model.python_query import PythonQuery
from millrace_api.model.query import Query
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import StreamingSql

from ...scaling.batch_time.cost_prior import KnownCosts

_LEAST_PLANS, _LEAST_OBSERVATIONS = 3, 12
"""Fewest plans, and observations of them, from which another query's costs are expected: with fewer, costs that have
always grown together cannot be separated."""

_ENDS_OF_LIST = frozenset(
    {
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.LIMIT,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.SEMICOLON,
    }
)
"""What ends the list of a GROUP BY, beside a parenthesis around it."""


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
    that are alike.
    """
    tokens = StreamingSql().tokenize(query.sql or "")
    own = {name.lower(): each.python for name, each in (query.functions or {}).items()}
    own |= {name.lower(): each.python or str(each.builtin) for name, each in (query.aggregates or {}).items()}
    words = {each.text.lower() for each, after in pairwise(tokens) if after.token_type is TokenType.L_PAREN}
    called = sorted({own.get(word, word) for word in words if word.isidentifier()})
    kinds = [each.token_type for each in tokens]
    widths = tuple(_listed(islice(kinds, at + 1, None)) for at, kind in enumerate(kinds) if kind is TokenType.GROUP_BY)
    return tuple(called), widths, kinds.count(TokenType.JOIN)


def _listed(kinds: Iterable[TokenType]) -> int:
    """Return the number of expressions of the list that tokens of these kinds begin with."""
    depth, number = 0, 1
    for kind in kinds:
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth < 0 or kind in _ENDS_OF_LIST:
            break
        number += kind is TokenType.COMMA and not depth
    return number
