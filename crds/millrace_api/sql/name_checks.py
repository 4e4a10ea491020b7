"""Checks of names that stand for more than one column, and of columns that a join leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.grouping_checks import Columns


def name_problems(text: str, scope: Scope, columns: Columns) -> Iterator[Problem]:
    """Yield the columns of one SELECT that more than one of its tables has, or that a join leaves out."""
    select = scope.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals"):
        return
    joins = select.args.get("joins") or ()
    if any(join.method for join in joins) or None in columns.values():
        return
    left_out = {join.this.alias_or_name.lower(): join for join in joins if join.kind in ("SEMI", "ANTI")}
    merged = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
    own_aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    for column in scope.columns:
        if column.find_ancestor(exp.Select) is not select:
            continue
        on = column.find_ancestor(exp.Join)
        hidden = {alias for alias, join in left_out.items() if on is None or on is not join}
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in hidden:
            message = f'"{parts[0]}" is the right side of a LEFT {left_out[parts[0]].kind} JOIN, which has no columns'
            yield problem_at(text, column.this.meta.get("start"), message, "read the column of the left side")
        elif len(parts) == 1 and parts[0] not in merged and parts[0] not in own_aliases:
            holders = [alias for alias, names in columns.items() if alias not in hidden and parts[0] in (names or ())]
            if len(holders) > 1:
                message = f'"{column.name}" is a column of {" and of ".join(holders)}'
                yield problem_at(text, column.this.meta.get("start"), message, f"write {holders[0]}.{column.name}")


def repeated_name(names: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong with the names of a result's columns, and the remedy; None if each is one column's."""
    first: dict[str, str] = {}
    for name in names:
        if name.lower() in first:
            count = sum(other.lower() == name.lower() for other in names)
            message = f'the result has {count} columns with the name "{first[name.lower()]}"'
            return message, "give each a name of its own: SELECT ... AS name"
        first[name.lower()] = name
    return None
