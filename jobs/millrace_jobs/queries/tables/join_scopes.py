"""What a join says of the scopes that it joins: its type, the columns that it makes one, and the keys of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.join_conditions import JoinCondition
from millrace_jobs.queries.tables.grouping import TypesOf
from millrace_jobs.queries.tables.joined_keys import identify
from millrace_jobs.queries.tables.relations import JoinType, Selection
from millrace_jobs.queries.tables.scopes import Name, NotATableQueryError, Scope, Scopes


def join_type(join: exp.Join) -> JoinType:
    """Return the type of a join; raises NotATableQueryError if the operators have no such join."""
    side, kind = join.side.upper(), join.kind.upper()
    if join.method not in ("", "NATURAL"):
        raise NotATableQueryError(f"it has a {join.method} JOIN", "write ON a.key = b.key")
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT") and not join.method:
        return "semi" if kind == "SEMI" else "anti"
    if kind not in ("", "INNER", "OUTER", "CROSS") or isinstance(join.this, exp.Lateral):
        raise NotATableQueryError(f"it has a {f'{side} {kind}'.strip()} JOIN")
    types: dict[str, JoinType] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
    return types[side]


def using_columns(both: Scopes, join: exp.Join) -> list[str]:
    """Return the names of the columns that a join makes one, in order."""
    if join.method.upper() != "NATURAL":
        return [identifier.name.lower() for identifier in join.args.get("using") or ()]
    right = {name.column for name in both.right.names if not name.merged}
    common = dict.fromkeys(name.column for name in both.left.names if not name.merged and name.column in right)
    if not common:
        raise NotATableQueryError("its NATURAL JOIN has no column that both sides have", "write ON a.key = b.key")
    return list(common)


def equal_columns(both: Scopes, name: str) -> exp.Expr:
    """Return the condition that both relations have the same value in a column of this name."""
    one, other = (Scopes(scope).resolved(exp.column(name)) for scope in (both.left, both.right))
    return exp.EQ(this=one, expression=other)


def with_first(names: Sequence[Name], using: Sequence[str]) -> tuple[Name, ...]:
    """Return the columns of one side with those after USING first, each once."""
    first = [next(name for name in names if name.column == column and not name.merged) for column in using]
    others = (replace(name, merged=name.merged or name.column in using) for name in names)
    return (*(replace(name, table="") for name in first), *others)


def with_merged_columns(
    scope: Scope,
    both: Scopes,
    kind: JoinType,
    using: Sequence[str],
    types: dict[str, DataType],
    types_of: TypesOf,
    internal: Callable[[str], str],
) -> Scope:
    """Return the scope of a join with the columns after USING first, each once.

    It is the column of the side whose rows are kept; for a FULL JOIN, that of the row which there is.

    Args:
        scope: the scope of the join.
        both: its inputs.
        kind: its type.
        using: the names of the columns.
        types: types of the internal columns, to which those of new ones are added.
        types_of: asks Spark for types.
        internal: returns a new internal name for a label.
    """
    sides = (both.right, both.left) if kind == "right" else (both.left, both.right)
    pairs = [tuple(_first(side, name) for side in sides) for name in using]
    others = tuple(
        replace(each, merged=each.merged or each.column in using) for each in (*both.left.names, *both.right.names)
    )
    if kind != "full" or not using:
        return replace(scope, names=(*(replace(one, table="", merged=False) for one, _ in pairs), *others))
    made: dict[tuple[str, str], str] = {}
    firsts = []
    for one, other in pairs:
        ends = (one.internal, other.internal), *(((one.end, other.end),) if one.end and other.end else ())
        names = [made.setdefault(end, internal(one.column)) for end in ends]
        firsts.append(Name("", one.column, *names))
    texts = {name: f"coalesce({left}, {right})" for (left, right), name in made.items()}
    kept = {name: types[name] for name in scope.internals}
    types.update(zip(texts, types_of(kept, list(texts.values())), strict=True))
    items = (*((name, name) for name in scope.internals), *((sql, name) for name, sql in texts.items()))
    keys = (tuple(made.values()),) if identify(both, made, types) else ()
    relation = Selection(scope.relation, "", items)
    return replace(scope, relation=relation, names=(*firsts, *others), keys=(*keys, *scope.keys))


def check_keys(both: Scopes, condition: JoinCondition, types: Mapping[str, DataType], types_of: TypesOf) -> None:
    """Check that the keys of a join can be compared; raises NotATableQueryError for nested values."""
    for scope, nodes in zip((both.left, both.right), zip(*condition.keys, strict=True), strict=True):
        texts = [to_sql(node) for node in nodes]
        for text, kind in zip(texts, types_of({name: types[name] for name in scope.internals}, texts), strict=True):
            if isinstance(kind, ArrayType | MapType | StructType):
                raise NotATableQueryError(f"its JOIN compares {text}, which is of type {kind.simpleString()}")


def windows_by_ends(both: Scopes, condition: exp.Expr) -> list[exp.Expr]:
    """Return the equality of two windows as that of their starts and of their ends; other conditions as they are."""
    if not isinstance(condition, exp.EQ):
        return [condition]
    one, other = both.window_in(condition.left), both.window_in(condition.right)
    if one is None or other is None:
        return [condition]
    starts, ends = zip(one, other, strict=True)
    # as numbers, starts are keys only; the ends are event time, too
    texts = (f"unix_micros({starts[0]}) = unix_micros({starts[1]})", " = ".join(ends))
    return [parse_expression(text) for text in texts]


def _first(scope: Scope, column: str) -> Name:
    return next(each for each in scope.names if each.column == column)
