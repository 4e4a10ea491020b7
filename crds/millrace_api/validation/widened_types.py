"""Whether the state of a query can go on with columns of its source that have a wider type than before.

A value keeps its meaning in a wider type: integers with more bytes, FLOAT in DOUBLE, and DECIMAL with more digits. The
state holds values of aggregates, which ``millrace_jobs.run.state_widening`` rewrites where their type follows that of a
column. It finds groups and distinct values by their bytes, so those cannot be rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sqlglot import exp

from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.dialect import parse_expression
from millrace_api.sql.outline import Outline, columns_in
from millrace_api.validation.places import bucket_and_prefix

_ORDERS = (("TINYINT", "SMALLINT", "INT", "BIGINT"), ("FLOAT", "DOUBLE"))
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")

_WORD_DIGITS = 18
"""Digits of a DECIMAL up to which Spark keeps it as an integer of 64 bits, and otherwise as bytes."""

_INTEGER_ARITHMETIC = (exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul)
"""What an integer can be computed with, so that the result is one."""


def is_wider(old: str, new: str) -> bool:
    """Return whether each value of a scalar type, in Spark's canonical name, is a value of another one, too."""
    for order in _ORDERS:
        if old in order and new in order:
            return order.index(new) > order.index(old)
    digits, more = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return bool(digits and more and digits[2] == more[2] and int(more[1]) > int(digits[1]))


def why_not_widened(
    now: StreamQuery, types: Mapping[str, tuple[str, str]], outlines: tuple[Outline, Outline], held: Collection[str]
) -> str | None:
    """Return why a state whose aggregates have columns of their own cannot go on with wider types; None if it can.

    Args:
        now: the changed query.
        types: the old and the wider type of each column, by its name in lower case.
        outlines: those of the query that built the state and of the changed one.
        held: the aggregates that the state has.
    """
    spec, checkpoint = now.spec, now.spec.checkpoint
    if spec.additional_outputs is not None or spec.emit is Emit.ON_WINDOW_END:
        return "rows are held back, in a state of another kind"
    is_stored = checkpoint is not None and checkpoint.uri is not None and bucket_and_prefix(checkpoint.uri) is not None
    calls = dict.fromkeys([*held, *outlines[1].aggregates])
    for name, (old, new) in types.items():
        if key := next((key for each in outlines for key in each.keys if name in columns_in(key)), None):
            return f"the state finds groups by the bytes of {key}, which are others in {new}"
        for call in calls:
            why = _why_not_in(call, name, old, new, is_stored=is_stored)
            if why is not None:
                return why
    return None


def _why_not_in(call: str, name: str, old: str, new: str, *, is_stored: bool) -> str | None:
    """Return why the state of an aggregate call cannot go on with a wider type of a column; None if it can."""
    parsed = parse_expression(call)
    function = parsed.this if isinstance(parsed, exp.Filter) else parsed
    if isinstance(function, exp.Count) or not _reads(function, name):
        return None
    if isinstance(function, exp.ApproxDistinct):
        return f"{call} recognizes values by their bytes, which are others in {new}"
    if isinstance(function, exp.Min | exp.Max | exp.Sum | exp.Avg) and not _is_foreseen(function.this, old):
        return f"the type of what the state keeps of {call} does not follow from the type of {name} alone"
    if isinstance(function, exp.Min | exp.Max) and _changes_form(old, new):
        return f"Spark keeps a DECIMAL of more than {_WORD_DIGITS} digits in another form"
    if is_stored and _follows(function, old):
        return f"the state of {call} would have to be rewritten, and a state in an object store is not"
    return None


def _reads(function: exp.Expr, name: str) -> bool:
    return any(column.parts[0].name.lower() == name for column in function.find_all(exp.Column))


def _is_foreseen(value: exp.Expr, old: str) -> bool:
    """Whether the type of an argument is that of the column in it, is computed from integers, or is given by a cast."""
    if isinstance(value, exp.Column | exp.Cast):
        return True
    is_whole = all(each.is_int for each in value.find_all(exp.Literal))
    columns = {column.name.lower() for column in value.find_all(exp.Column)}
    return (
        old in _ORDERS[0]
        and len(columns) == 1
        and is_whole
        and all(isinstance(node, _INTEGER_ARITHMETIC) for node in value.walk())
    )


def _changes_form(old: str, new: str) -> bool:
    """Whether the values of a decimal type are kept in another form than those of the wider one."""
    digits, more = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return bool(digits and more and int(digits[1]) <= _WORD_DIGITS < int(more[1]))


def _follows(function: exp.Expr, old: str) -> bool:
    """Whether the type of what the state keeps of an aggregate follows that of its input."""
    if isinstance(function, exp.Min | exp.Max):
        return True
    return isinstance(function, exp.Sum | exp.Avg) and old.startswith("DECIMAL")
