"""Whether the aggregates of a query have columns of their own in its state, as far as declared types say.

The compilation of a query decides it with Spark's types (``millrace_jobs.queries.compile``). This is for what only has
the query: its rules are those of ``routed.aggregation`` and ``aggregates.builtin`` there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from millrace_api.sql.dialect import StreamingSql, parse_expression
from millrace_api.sql.groups import is_any_window, is_session
from millrace_api.sql.intervals import LengthError, window_lengths
from millrace_api.sql.outline import Outline
from millrace_api.sql.schema_ddl import Column

AVERAGED_DIGITS = 14
"""Digits of a DECIMAL up to which the sum and the count of an average equal Spark's own average."""

LONGEST_WINDOW = 36_500 * 86_400_000_000
"""Microseconds; the ends of longer windows may not be times that Arrow and Python can hold."""

DEVIATIONS = (exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop)
"""Aggregates of deviations from a mean."""

_HELD_BACK = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_MERGED = (*_HELD_BACK, exp.ApproxDistinct, *DEVIATIONS)
"""Aggregates of which routed queries merge parts, the first ones also where rows are held back."""

_NESTED = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT)
_MAKES_NESTED = frozenset({"map", "named_struct", "struct"})
"""Functions of nested values whose types sqlglot does not know."""


def merges_parts(parts: Outline, sources: Collection[str], columns: Sequence[Column], *, holds_back: bool) -> bool:
    """Whether each aggregate of a query that needs no operators on tables has columns of its own in the state.

    Args:
        parts: the outline of the query.
        sources: names of its sources.
        columns: their declared columns.
        holds_back: whether rows are held back, for which other operators merge, and fewer aggregates.
    """
    types = {column.name.lower(): column.type for column in columns}
    if len(sources) != 1 or not parts.aggregates or not _reads(parts, next(iter(sources))):
        return False
    keys = [parse_expression(key) for key in parts.keys]
    calls = [parse_expression(text) for text in parts.aggregates]
    calls = [call.this if isinstance(call, exp.Filter) else call for call in calls]
    if not keys and any(isinstance(call, DEVIATIONS) for call in calls):
        return False
    known = _HELD_BACK if holds_back else _MERGED
    return _groups(keys, types) and all(isinstance(call, known) and _splits(call, types) for call in calls)


def _reads(parts: Outline, source: str) -> bool:
    table = parse_expression(f"SELECT 1 FROM {parts.state['FROM']}").find(exp.Table) if parts.state["FROM"] else None
    if table is None or not isinstance(table.this, exp.Identifier) or table.name != source.lower():
        return False
    return not any(value for part, value in table.args.items() if part != "this")


def _groups(keys: Sequence[exp.Expr], types: Mapping[str, str]) -> bool:
    """Whether workers can group by the keys: scalars, and one window of a TIMESTAMP column."""
    windows = [key for key in keys if is_any_window(key)]
    if len(windows) > 1 or any(_is_nested(key, types) for key in keys if key not in windows):
        return False
    return all(_is_plain_window(call, types) for call in windows)


def _is_plain_window(call: exp.Expr, types: Mapping[str, str]) -> bool:
    column = call.expressions[0]
    if is_session(call) or not isinstance(column, exp.Column) or column.table:
        return False
    try:
        size = window_lengths(call).size
    except LengthError:
        return False
    return types.get(column.name.lower(), "TIMESTAMP") == "TIMESTAMP" and size <= LONGEST_WINDOW


def _splits(call: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether an aggregate of one of the known functions has a mergeable partial result."""
    value = call.this
    if isinstance(value, exp.Distinct) or call.expressions or _is_nested(value, types):
        return False
    kind = _type_of(value, types) if isinstance(call, exp.Avg) else None
    digits = kind.expressions[0].name if kind is not None and kind.this is exp.DType.DECIMAL and kind.expressions else 0
    return int(digits) <= AVERAGED_DIGITS


def _is_nested(node: exp.Expr, types: Mapping[str, str]) -> bool:
    if isinstance(node, exp.Anonymous) and node.name.lower() in _MAKES_NESTED:
        return True
    kind = _type_of(node, types)
    return isinstance(node, exp.Array | exp.Struct) or (kind is not None and kind.this in _NESTED)


def _type_of(node: exp.Expr, types: Mapping[str, str]) -> exp.DataType | None:
    """Return the type of an expression; None if it does not follow from the declared columns."""
    typed = node.copy()
    for column in typed.find_all(exp.Column):
        kind = None if column.table else types.get(column.name.lower())
        column.type = exp.DType.UNKNOWN if kind is None else exp.DataType.build(kind, StreamingSql)
    try:
        found = annotate_types(typed, dialect=StreamingSql, overwrite_types=False).type
    except (SqlglotError, KeyError):  # KeyError: a field of a struct
        return None
    return found if isinstance(found, exp.DataType) else None
