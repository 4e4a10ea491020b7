"""Checks of names that stand for more than one column, and of columns that a join leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at, start_of, to_sql
from millrace_api.sql.grouping_checks import Columns
from millrace_api.sql.groups import is_window
from millrace_api.sql.intervals import LengthError, window_lengths
from millrace_api.sql.parsed_query import ParsedQuery


def name_problems(text: str, scope: Scope, columns: Columns) -> Iterator[Problem]:
    """Yield the columns of one SELECT that more than one of its tables has, or that a join leaves out."""
    select = scope.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals"):
        return
    joins = select.args.get("joins") or ()
    natural = any(join.method for join in joins)  # its columns are those of several tables
    left_out = {join.this.alias_or_name.lower(): join for join in joins if join.kind in ("SEMI", "ANTI")}
    merged = _merged(joins, columns)
    lost = _lost(joins, columns) if any(map(_slides, select.find_all(exp.Anonymous))) else {}
    aliased = [item for item in select.expressions if isinstance(item, exp.Alias)]
    own_aliases = {item.alias.lower() for item in aliased}
    same = {
        item.alias.lower() for item in aliased if isinstance(item.this, exp.Column) and item.this.name == item.alias
    }
    filters = filter(None, (select.args.get("having"), select.args.get("qualify")))
    unqualified = (column for each in filters for column in each.find_all(exp.Column) if not column.table)
    # a scope leaves out columns of HAVING and QUALIFY, which may be aliases
    for column in {id(each): each for each in (*scope.columns, *unqualified)}.values():
        if column.find_ancestor(exp.Select) is not select:
            continue
        on = column.find_ancestor(exp.Join)
        hidden = {alias for alias, join in left_out.items() if on is None or on is not join}
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in hidden:
            message = f'"{parts[0]}" is the right side of a LEFT {left_out[parts[0]].kind} JOIN, which has no columns'
            yield problem_at(text, column.this.meta.get("start"), message, "read the column of the left side")
        elif len(parts) > 1 and parts[0] in lost.get(parts[1], ()):
            name = column.parts[1].name
            message = f"USING makes {to_sql(column)} one with another column: a sliding window keeps only {name}"
            hint = f"write {name}, or ON {parts[0]}.{name} = ... in place of USING"
            yield problem_at(text, start_of(column), message, hint)
        elif len(parts) == 1 and parts[0] in own_aliases and column.find_ancestor(exp.Qualify, exp.Window):
            holders = [alias for alias, names in columns.items() if parts[0] in (names or ())]
            in_qualify = column.find_ancestor(exp.Qualify) is not None
            if holders and in_qualify and parts[0] not in same:
                message = f'"{column.name}" in QUALIFY is a column of {holders[0]} and an alias of the SELECT list'
                yield problem_at(text, column.this.meta.get("start"), message, "give the alias another name")
            elif not holders and not in_qualify and None not in columns.values():
                message = f'OVER in a SELECT list has no aliases of this list, such as "{column.name}"'
                hint = "write what it stands for, or the OVER clause in QUALIFY"
                yield problem_at(text, column.this.meta.get("start"), message, hint)
        elif len(parts) == 1 and parts[0] not in own_aliases and not natural and None not in columns.values():
            hidden |= merged.get(parts[0], set())
            holders = [alias for alias, names in columns.items() if alias not in hidden and parts[0] in (names or ())]
            if len(holders) > 1:
                message = f'"{column.name}" is a column of {" and of ".join(holders)}'
                yield problem_at(text, column.this.meta.get("start"), message, f"write {holders[0]}.{column.name}")


def _merged(joins: Sequence[exp.Join], columns: Columns) -> dict[str, set[str]]:
    """Return the tables whose column is one with that of an earlier table, by USING, for each name of such a column."""
    merged: dict[str, set[str]] = {}
    for join in joins:
        for name in join.args.get("using") or ():
            merged.setdefault(name.name.lower(), set()).add(join.this.alias_or_name.lower())
    return merged


def _lost(joins: Sequence[exp.Join], columns: Columns) -> dict[str, set[str]]:
    """Return the tables whose column of a name Spark does not find any more behind a window that slides.

    A join by USING has one column of each name, that of the side that it keeps. Spark knows the others by their table
    until it makes the windows.
    """
    lost: dict[str, set[str]] = {}
    before = list(columns)[: len(columns) - len(joins)]
    for join in joins:
        own = join.this.alias_or_name.lower()
        for name in (each.name.lower() for each in join.args.get("using") or ()):
            left = [table for table in before if name in (columns.get(table) or ())]
            lost.setdefault(name, set()).update(() if join.side == "RIGHT" else (own,))
            lost[name].update(left if join.side in ("RIGHT", "FULL") else ())
        before.append(own)
    return lost


def _slides(call: exp.Expr) -> bool:
    with suppress(LengthError):
        return is_window(call) and (lengths := window_lengths(call)).slide != lengths.size
    return False


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


def repeated_name_in(query: ParsedQuery, names: Sequence[str]) -> Problem | None:
    """Return the problem of ``repeated_name``, at the item that has the name of an earlier one or of one of a star."""
    repeated = repeated_name(names)
    if repeated is None:
        return None
    lower = [name.lower() for name in names]
    named = [item for item in query.tree.selects if lower.count(item.alias_or_name.lower()) > 1]
    seen = [item.alias_or_name.lower() for item in named]
    later = [item for place, item in enumerate(named) if seen[place] in seen[:place]]
    return problem_at(query.text, start_of([*later, *named, query.tree][0]), *repeated)
