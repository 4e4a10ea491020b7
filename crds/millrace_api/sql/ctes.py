"""CTEs written out: each name that WITH defines becomes a subquery in FROM, with the SELECT that it stands for.

A CTE that is read twice becomes two equal subqueries, which may be computed once; each remembers what the CTE asks for
(``cte_of``). All names keep their positions in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.dialect import FROM_CTE

MAX_COPIED = 20_000
"""Nodes that are copied at most: each CTE that reads the one before twice would double the query."""


def has_ctes(query: exp.Query) -> bool:
    """Return whether a query has CTEs that can be written out; a recursive one has no end."""
    clauses = list(query.find_all(exp.With))
    return bool(clauses) and not any(clause.args.get("recursive") for clause in clauses)


def with_ctes_written_out(query: exp.Query, *, keeps_unread: bool = False) -> exp.Query:
    """Return a copy of a query without WITH, unless it is recursive.

    Args:
        query: the query.
        keeps_unread: whether a WITH clause keeps the CTEs that nothing reads, so that they are checked, too.

    Raises:
        MillraceError: it would be too large.
    """
    result = query.copy()
    if has_ctes(query):
        _CteWriter().write_out(result, keeps_unread=keeps_unread)
    return result


@dataclass(frozen=True)
class WrittenOut:
    """The CTE that a subquery stands for: its name, and whether it is to be computed once; None if it does not say."""

    name: str
    materialized: bool | None


def cte_of(query: exp.Expr) -> WrittenOut | None:
    """Return the CTE that the SELECT of a subquery stands for; None for any other SELECT."""
    return query.meta.get(FROM_CTE)


@dataclass(eq=False)
class _Definition:
    """A CTE, where it is defined, and the CTEs that it may read itself: those before it and around it."""

    cte: exp.CTE
    place: exp.Expr
    known: Mapping[str, _Definition]
    is_read: bool = field(default=False)


class _CteWriter:
    def __init__(self) -> None:
        self._copied = 0
        self._definitions: list[_Definition] = []
        self._open: list[tuple[exp.Expr, Mapping[str, _Definition]]] = []

    def write_out(self, query: exp.Query, *, keeps_unread: bool) -> None:
        """Replace the names of CTEs in a query, in place."""
        self._open.append((query, {}))
        self._write()
        unread = [each for each in self._definitions if not each.is_read] if keeps_unread else []
        for each in reversed(unread):  # a later one may be all that reads an earlier one
            if not each.is_read:
                clause = each.place.args.get("with_") or exp.With(expressions=[])
                clause.set("expressions", [each.cte, *clause.expressions])
                each.place.set("with_", clause)
                self._open.append((each.cte.this, each.known))
                self._write()

    def _write(self) -> None:
        """Replace names in all that is open; no recursion, since expressions can be deep."""
        while self._open:
            node, known = self._open.pop()
            clause = node.args.get("with_")
            if clause is not None:
                known = dict(known)
                for cte in clause.expressions:
                    known[cte.alias.lower()] = definition = _Definition(cte, node, dict(known))
                    self._definitions.append(definition)
                node.set("with_", None)
            for child in list(node.iter_expressions()):
                found = _definition_of(child, known)
                if found is None:
                    self._open.append((child, known))
                    continue
                found.is_read = True
                subquery = self._subquery(child, found.cte)
                self._open.append((subquery.this, found.known))
                self._open += [(each, known) for each in subquery.iter_expressions() if each is not subquery.this]
                child.replace(subquery)

    def _subquery(self, table: exp.Expr, cte: exp.CTE) -> exp.Subquery:
        """Return the subquery that stands for the name of a CTE."""
        self._copied += sum(1 for _ in cte.this.walk())
        if self._copied > MAX_COPIED:
            message = f"the SQL is too large with each CTE in the place of its name: more than {MAX_COPIED} parts"
            raise MillraceError(Problem(message, "read each CTE in fewer places, or split it into several queries"))
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        if not alias.columns:
            alias.set("columns", [column.copy() for column in cte.args["alias"].columns])
        rest = {part: table.args.get(part) for part in ("joins", "laterals", "pivots", "sample")}
        body = cte.this.copy()
        body.meta[FROM_CTE] = WrittenOut(cte.alias, cte.args.get("materialized"))
        return exp.Subquery(this=body, alias=alias, **rest)


def _definition_of(node: exp.Expr, known: Mapping[str, _Definition]) -> _Definition | None:
    """Return the CTE that a name in FROM stands for; None for a source, or anything else."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or len(node.parts) > 1:
        return None
    return known.get(node.name.lower())
