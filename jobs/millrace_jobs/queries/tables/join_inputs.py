"""The relations that joins, groups and SELECT lists read: filtered, as tables, as upserts, or beside a static table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import JoinCondition, Side
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import (
    Enriched,
    JoinType,
    Relation,
    Scan,
    Selection,
    Static,
    Upserted,
    keeps_records,
)
from millrace_jobs.queries.tables.scopes import NotATableQueryError, Scope, Scopes


def enriched(both: Scopes, kind: JoinType, parts: Sequence[exp.Expr], condition: JoinCondition) -> Scope:
    """Return the scope of the join of rows with a static table."""
    side: Side = "right" if isinstance(both.right.relation, Static) else "left"
    static, rows = (both.right, both.left) if side == "right" else (both.left, both.right)
    table = static.relation
    assert isinstance(table, Static)
    if isinstance(rows.relation, Static):
        raise NotATableQueryError(f"it joins the static tables {rows.relation.source} and {table.source} first")
    if kind in (side, "full"):
        raise NotATableQueryError(f"its {kind.upper()} JOIN keeps rows of {table.source}, which is static")
    on = " AND ".join(f"({to_sql(part)})" for part in parts) or "true"
    compared = {to_sql(pair[0 if side == "left" else 1]) for pair in condition.keys}
    (primary,) = static.keys
    keys = rows.keys if compared.issuperset(primary) else tuple((*key, *primary) for key in rows.keys)
    relation = Enriched(as_table(rows), table, on, "inner" if kind == "inner" else "left")
    return replace(rows, relation=relation, names=(*both.left.names, *both.right.names), keys=keys)


def is_source_table(relation: Relation) -> bool:
    """Whether the versions of a relation's rows are the upserts of a source."""
    while isinstance(relation, Selection | Upserted):
        relation = relation.input
    return isinstance(relation, Scan)


def check_kept_rows(
    both: Scopes, preserved: Mapping[Side, bool], *, bounded: bool, ranged: bool, kind: JoinType
) -> None:
    """Check that a join can keep what it has to; raises NotATableQueryError.

    Args:
        both: the joined relations.
        preserved: whether rows of a side without a partner are in the result.
        bounded: whether the join has a range of event time after which rows of streams have no partner.
        ranged: whether its condition compares event times.
        kind: the type of the join.
    """
    if not both.are_streams and ranged:
        reason = "it compares event time with a column of a table, which has versions instead"
        hint = "leave the comparison out: a record meets the version of a row that is valid at its time"
        raise NotATableQueryError(reason, hint)
    inputs: dict[Side, Scope] = {"left": both.left, "right": both.right}
    tables = [side for side, scope in inputs.items() if scope.contents is Contents.TABLE]
    if len(tables) == 1 and preserved[tables[0]] and not is_source_table(inputs[tables[0]].relation):
        raise NotATableQueryError(
            f"its {kind.upper()} JOIN with a stream keeps rows of a computed table, whose versions are no "
            "upserts of their own",
            "keep the rows of a source that is a table, or of the stream",
        )
    if any(keeps_records(scope.relation) for scope in inputs.values()):
        raise NotATableQueryError("it joins the rows of a UNION of a stream and a table, which would be kept forever")
    if not bounded and None in (both.left.lag, both.right.lag):
        raise NotATableQueryError(
            "it joins a table with the result of an outer join that keeps rows of a table, or whose range of event "
            "time does not end an interval after an event time, so that all versions of the table would be kept "
            "forever"
        )


def filtered_input(relation: Relation, where: str) -> Relation:
    """Return the rows of a join's input that pass a filter."""
    if isinstance(relation, Scan) and relation.keys:
        return replace(relation, where=f"{relation.where} AND {where}" if relation.where else where)
    return Selection(relation, where)


def as_table(scope: Scope) -> Relation:
    """Return the relation with the changes of its rows; upserts cannot be filtered before they are a table."""
    return Upserted(scope.relation) if isinstance(scope.relation, Scan) and scope.relation.keys else scope.relation


def as_input(scope: Scope, keys: Sequence[str]) -> Relation:
    """Return the relation as a join reads it: upserts only where the key of the join is the table's own."""
    own = isinstance(scope.relation, Scan) and sorted(keys) == sorted(scope.relation.keys)
    return scope.relation if own else as_table(scope)


def passing(scope: Scope, wheres: Sequence[exp.Expr]) -> Scope:
    """Return the scope of the rows that pass the conditions."""
    where = " AND ".join(f"({to_sql(Scopes(scope).resolved(part))})" for part in wheres)
    return replace(scope, relation=filtered_input(scope.relation, where)) if where else scope


def filtered_rows(scope: Scope, wheres: Sequence[exp.Expr]) -> Relation:
    """Return the rows of a relation that pass the conditions."""
    rows, both = as_table(scope), Scopes(scope)
    where = " AND ".join(f"({to_sql(both.resolved(part))})" for part in wheres)
    return Selection(rows, where) if where else rows
