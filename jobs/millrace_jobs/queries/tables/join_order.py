"""The order of inner joins, which do not depend on it: each is made when it has a key, as in ``FROM a, b, c``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millrace_api.sql.join_conditions import take_apart
from millrace_jobs.queries.tables.relations import Static
from millrace_jobs.queries.tables.scopes import Scope, Scopes


def has_free_order(joins: Sequence[exp.Join], scopes: Sequence[Scope]) -> bool:
    """Whether joins of these relations are inner ones that merge no columns, so that their order does not matter.

    A column in ON without the name of its table is one of the tables up to there, so such joins stay in their order.
    """
    tables = {name.table for scope in scopes for name in scope.names} - {""}
    columns = (column for join in joins if join.args.get("on") for column in join.args["on"].find_all(exp.Column))
    return all(map(_is_inner, joins)) and all(column.table.lower() in tables for column in columns)


def _is_inner(join: exp.Join) -> bool:
    plain = join.kind.upper() in ("", "INNER", "CROSS") and not isinstance(join.this, exp.Lateral)
    return plain and not (join.side or join.method or join.args.get("using"))


def has_key(left: Scope, right: Scope, conditions: Sequence[exp.Expr]) -> bool:
    """Whether conditions give the join of two relations a key, which that with one static table does not need."""
    static = [isinstance(scope.relation, Static) for scope in (left, right)]
    if any(static):
        return not all(static)
    both = Scopes(left, right)
    resolved = [both.resolved(part) for part in conditions if both.knows(part)]
    return bool(take_apart(resolved, both.side_of, both.lag_of).keys)
