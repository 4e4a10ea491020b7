"""A query's SQL, parsed once: its text, its syntax tree, and the facts about it that several readers need.

Specs hold SQL as text, because the model knows no parser, and they pass through code that has nothing to do with SQL.
So whoever needs more than the text asks for it here, where the last few texts are remembered. This is the only module
that parses the queries of specs; ``dialect`` does it, and also parses expressions that are generated from a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from millrace_api.model.streamquery import Spec
from millrace_api.sql.ctes import has_ctes, with_ctes_written_out
from millrace_api.sql.dialect import parse_query, without_materialized
from millrace_api.sql.groups import aggregates, filters_groups
from millrace_api.sql.own_functions import own_calls, own_name
from millrace_api.sql.sorted_limits import with_numbered_limits
from millrace_api.sql.top_rows import row_numbers


@dataclass(frozen=True)
class ParsedQuery:
    """One SELECT (or WITH, or UNION).

    All readers share its tree, in several threads at once, so none may change it: see ``copy``. The text is one that
    Spark accepts: only the tree has what the query asks for its CTEs (``AS MATERIALIZED``).
    """

    text: str
    tree: exp.Query = field(repr=False, compare=False)

    def copy(self) -> exp.Query:
        """Return a tree of the caller's own, to rewrite; its names keep their positions in the text."""
        return self.tree.copy()

    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes of all SELECTs, each after the scopes that it reads, so that the last one is the result's.

        They are the caller's own: a scope fills its lists when it is first asked for them.
        """
        return tuple(traverse_scope(self.tree))

    @cached_property
    def written_out(self) -> ParsedQuery:
        """The query as what it means, rather than how it is written.

        It has a subquery in the place of each CTE's name, and the number of a row in that of ORDER BY with LIMIT.

        Raises:
            MillraceError: it would be too large.
        """
        tree = with_numbered_limits(with_ctes_written_out(self.tree) if has_ctes(self.tree) else self.tree)
        return self if tree is self.tree else ParsedQuery(self.text, tree)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names in FROM and in joins, in lower case, each as often as it is read; CTEs are among them."""
        return tuple(table.name.lower() for table in self.tree.find_all(exp.Table))

    @cached_property
    def has_joins(self) -> bool:
        """Whether any SELECT has a join."""
        return self.tree.find(exp.Join) is not None

    @cached_property
    def subtracts(self) -> bool:
        """Whether it has EXCEPT or INTERSECT."""
        return self.tree.find(exp.Except, exp.Intersect) is not None

    @cached_property
    def numbers_rows(self) -> bool:
        """Whether a SELECT has ``row_number()``."""
        return any(map(row_numbers, self.tree.find_all(exp.Select)))

    @cached_property
    def has_distinct(self) -> bool:
        """Whether a SELECT has DISTINCT."""
        return any(select.args.get("distinct") for select in self.tree.find_all(exp.Select))

    @cached_property
    def has_subqueries(self) -> bool:
        """Whether it has a SELECT in parentheses, in FROM or elsewhere."""
        return self.tree.find(exp.Subquery) is not None

    @cached_property
    def aggregates(self) -> bool:
        """Whether it has groups of any kind, so that its results can change after they were emitted."""
        return aggregates(self.tree)

    @cached_property
    def filters_groups(self) -> bool:
        """Whether it filters aggregated results: by HAVING, or by WHERE around a grouped SELECT."""
        return filters_groups(self.tree)


def parsed_sql(spec: Spec) -> ParsedQuery:
    """Return the parsed SQL of a spec that has one, with its own aggregates; see ``parsed_query``."""
    return parsed_query(spec.query.sql or "", frozenset(spec.query.aggregates or ()))


def parsed_query(text: str, aggregates: frozenset[str] = frozenset()) -> ParsedQuery:
    """Parse the SQL of a query, or return it as it was parsed before; comments are removed.

    Calls of the query's own ``aggregates``, whose names are in lower case, are aggregates in the tree.

    It remembers few texts: one reconciliation or run needs the SQL of its query, before and after a change at most, and
    the tree of the longest text takes megabytes.

    Raises:
        MillraceError: if the text does not parse or is not one query; syntax errors have line and column of the text.
    """
    return _parsed(text, aggregates)


@lru_cache(maxsize=4)
def _parsed(text: str, aggregates: frozenset[str]) -> ParsedQuery:
    tree = parse_query(text)
    for call in list(own_calls(tree, aggregates)):
        aggregate = exp.AnonymousAggFunc(this=own_name(call), expressions=call.expressions)
        aggregate.meta.update(call.meta)
        call.replace(aggregate)
    return ParsedQuery(without_materialized(text), tree)
