"""The order of inner joins, which do not depend on it: each is made when it has a key, as in ``FROM a, b, c``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millrace_api.sql.join_conditions import take_apart
from millrace_jobs.queries.tables.relations import Static
from millrace_jobs.queries.tables.scopes import Scope, Scopes


def is_inner(join: exp.Join) -> bool:
    """Whether a join is an inner one that merges no columns, so that its order does not matter."""
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
