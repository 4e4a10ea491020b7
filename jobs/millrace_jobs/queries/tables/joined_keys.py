"""The keys of the rows of joins: by what a row of the result is known, where there is something.

Values of different types are compared in a type of both, in which two values of one can be equal, such as the texts
``1`` and ``01`` as numbers. Then a key of a side is not one of what the join compares. And NULL is not equal to NULL,
so rows of both sides that have it are different rows of an outer join.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampType,
)

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import JoinCondition
from millrace_jobs.queries.tables.grouping import TypesOf
from millrace_jobs.queries.tables.relations import JoinType, Scan, Selection, Static, Upserted
from millrace_jobs.queries.tables.scopes import Scope, Scopes, either

_SMALL = ByteType, ShortType, IntegerType


def joint_keys(
    both: Scopes, kind: JoinType, condition: JoinCondition, types: Mapping[str, DataType], types_of: TypesOf
) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a join's rows: those of one side if its rows have at most one partner each, or of both."""
    compared = {side: _compared(both, side, condition, types, types_of) for side in ("left", "right")}
    left, right = (
        any(compared[side].issuperset(key) for key in scope.keys)
        for side, scope in (("left", both.left), ("right", both.right))
    )
    one = (
        *(both.left.keys if right and kind in ("inner", "left") else ()),
        *(both.right.keys if left and kind in ("inner", "right") else ()),
    )
    return one or tuple((*key, *other) for key in both.left.keys for other in both.right.keys)


def either_keys(
    both: Scopes, kind: JoinType, condition: JoinCondition, types: Mapping[str, DataType]
) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a FULL JOIN by the primary keys of both sides: what a row has on either side.

    With more conditions than these, two rows with the same key need not be partners.
    """
    pairs = sorted({(to_sql(one), to_sql(other)) for one, other in condition.keys})
    if kind != "full" or condition.others or any(condition.one_sided.values()) or not identify(both, pairs, types):
        return ()
    left, right = ({pair[place] for pair in pairs} for place in range(2))
    return (tuple(either(*pair) for pair in pairs),) if len(left) == len(right) == len(pairs) else ()


def identify(both: Scopes, pairs: Collection[tuple[str, str]], types: Mapping[str, DataType]) -> bool:
    """Return whether pairs of columns that a FULL JOIN compares are the primary keys of both sides, and its own key."""
    left, right = ({pair[place] for pair in pairs} for place in range(2))
    are_keys = left in map(set, both.left.keys) and right in map(set, both.right.keys)
    alike = all(types.get(one) == types.get(other) for one, other in pairs)
    return are_keys and alike and (_has_no_null(both.left) or _has_no_null(both.right))


def _has_no_null(scope: Scope) -> bool:
    """Return whether the primary key of a relation is that of a source, whose rows have no NULL in it."""
    relation = scope.relation
    while isinstance(relation, Selection | Upserted):
        relation = relation.input
    return isinstance(relation, Scan | Static)


def _compared(
    both: Scopes, side: str, condition: JoinCondition, types: Mapping[str, DataType], types_of: TypesOf
) -> set[str]:
    """Return the SQL of what a join compares of a side, where different values stay different."""
    kept = {name: types[name] for scope in (both.left, both.right) for name in scope.internals}
    found = set()
    for pair in condition.keys:
        texts = [to_sql(each) for each in pair]
        own, other = texts if side == "left" else reversed(texts)
        if own in kept and kept[own] != kept.get(other):
            (common,) = types_of(kept, [f"coalesce({own}, {other})"])
            if not _stay_apart(kept[own], common):
                continue
        found.add(own)
    return found


def _stay_apart(kind: DataType, common: DataType) -> bool:
    """Return whether different values of a type are different in a wider one; times are taken to be."""
    if kind == common or isinstance(common, TimestampType):
        return True
    match kind:
        case ByteType() | ShortType() | IntegerType() | LongType():
            return isinstance(common, (*_SMALL, LongType, DecimalType)) or (
                isinstance(kind, _SMALL) and isinstance(common, DoubleType)
            )
        case FloatType():
            return isinstance(common, DoubleType)
        case DecimalType():
            return (
                isinstance(common, DecimalType)
                and common.scale >= kind.scale
                and common.precision - common.scale >= kind.precision - kind.scale
            )
        case _:
            return isinstance(kind, DateType)
