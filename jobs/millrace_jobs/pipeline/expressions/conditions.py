"""Conditions: comparisons, IN, BETWEEN, AND, OR, NOT, IS NULL and CASE.

Spark casts the operands of a comparison to one type. It evaluates conditions from left to right, and no further than
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.compiled import (
    NOTHING,
    Compile,
    Compiled,
    ExpressionRule,
    OnlySparkError,
    after,
    call,
    cast,
    common_type,
    day,
    guarded,
    is_true,
    literal,
    moment,
    negated,
)
from millrace_jobs.sources.formats.column_types import TIMESTAMP

_CHAINED = (exp.Predicate, exp.Not)
"""Operands that only Spark compares: without parentheses, it reads ``p < q = r < s`` differently from sqlglot."""

_MIRRORED = {"less": "greater", "less_equal": "greater_equal"}

_MOST_COMPARISONS = 16
"""Maximum number of IN options that are compared one by one: columns, and floats because Arrow's value sets distinguish
0.0 from -0.0."""


def comparison(function: str) -> ExpressionRule:
    """Return the rule for a comparison; ``function`` is its name in Arrow."""
    return lambda node, compile_: _compare(function, *_operands([node.this, node.expression], compile_))


def is_in(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``value IN (options)``.

    The result is NULL if the value is NULL, or if an option is NULL and none equals the value.
    """
    value, *options = _operands([node.this, *node.args.get("expressions", [])], compile_)
    if not options:
        raise OnlySparkError
    if not pa.types.is_floating(value.type) and all(option.is_literal for option in options):
        return _among(value, options)
    if len(options) > _MOST_COMPARISONS or any(option.raises for option in options):
        raise OnlySparkError
    tests = [_compare("equal", value, option) for option in options]
    return reduce(lambda one, other: call("or_kleene", pa.bool_(), one, other), tests)


def _among(value: Compiled, options: Sequence[Compiled]) -> Compiled:
    known = tuple(option.value for option in options if option.value is not None)
    found = Compiled(("among", value.program, known, value.type), pa.bool_(), value.raises)
    if len(known) == len(options):
        return found
    return call("or_kleene", pa.bool_(), found, literal(None, pa.bool_()))


def between(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``value BETWEEN low AND high``."""
    low = _compare("greater_equal", *_operands([node.this, node.args["low"]], compile_))
    high = _compare("less_equal", *_operands([node.this, node.args["high"]], compile_))
    if high.raises or node.args.get("symmetric"):
        raise OnlySparkError
    return call("and_kleene", pa.bool_(), low, high)


def _operands(nodes: Sequence[exp.Expr], compile_: Compile) -> list[Compiled]:
    """Return the operands cast to the type in which Spark compares them."""
    if any(isinstance(node, _CHAINED) for node in nodes):
        raise OnlySparkError
    return _comparable(_dated([compile_(node) for node in nodes]))


def _dated(operands: list[Compiled]) -> list[Compiled]:
    """Read string literals as the DATE or TIMESTAMP they are compared with, and cast DATE literals to TIMESTAMP."""
    kinds = {operand.type for operand in operands if not operand.is_literal}
    if len(kinds) != 1 or not kinds <= {pa.date32(), TIMESTAMP}:
        return operands
    (kind,) = kinds

    def dated(operand: Compiled) -> Compiled:
        if not operand.is_literal or operand.value is None:
            return operand
        if operand.type == pa.string():
            return day(operand.value) if kind == pa.date32() else moment(operand.value)
        return cast(operand, kind)

    return [dated(operand) for operand in operands]


def _comparable(operands: Sequence[Compiled]) -> list[Compiled]:
    same = _unified(operands)
    if pa.types.is_nested(same[0].type):
        raise OnlySparkError
    return same


def _unified(operands: Sequence[Compiled]) -> list[Compiled]:
    """Return the operands cast to their common type."""
    kind = common_type(operand.type for operand in operands)
    if kind == NOTHING:
        raise OnlySparkError
    return [cast(operand, kind) for operand in operands]


def _compare(function: str, left: Compiled, right: Compiled) -> Compiled:
    """Compare two operands of one type."""
    right = after(left, right)
    if pa.types.is_floating(left.type):
        return _compare_floats(function, left, right)
    return call(function, pa.bool_(), left, right)


def _compare_floats(function: str, left: Compiled, right: Compiled) -> Compiled:
    """Compare floats as Spark does: NaN equals itself and is larger than every number; in Arrow it is incomparable."""
    if function in _MIRRORED:
        return _compare_floats(_MIRRORED[function], right, left)
    if function == "not_equal":
        return negated(_compare_floats("equal", left, right))
    compared = call(function, pa.bool_(), left, right)
    largest = [] if _is_never_nan(left) else [call("is_nan", pa.bool_(), left)]
    if function == "equal" and (not largest or _is_never_nan(right)):
        return compared
    if function == "equal":
        largest.append(call("is_nan", pa.bool_(), right))
    elif function == "greater" and largest and not _is_never_nan(right):
        largest.append(negated(call("is_nan", pa.bool_(), right)))
    if not largest:
        return compared
    both = reduce(lambda one, other: call("and", pa.bool_(), one, other), largest)
    return call("or", pa.bool_(), compared, both)


def _is_never_nan(operand: Compiled) -> bool:
    return operand.is_literal and operand.value == operand.value  # NaN differs from itself


def both(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``AND``: the right operand is not evaluated where the left one is false."""
    left, right = truth(compile_(node.this)), truth(compile_(node.expression))
    not_false = call("coalesce", pa.bool_(), left, literal(True, pa.bool_()))
    return call("and_kleene", pa.bool_(), left, guarded(right, not_false))


def either(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``OR``: the right operand is not evaluated where the left one is true."""
    left, right = truth(compile_(node.this)), truth(compile_(node.expression))
    return call("or_kleene", pa.bool_(), left, guarded(right, negated(is_true(left))))


def truth(operand: Compiled) -> Compiled:
    """Return the operand as a BOOLEAN. Raises OnlySparkError if it is not a condition."""
    if operand.type not in (pa.bool_(), NOTHING):
        raise OnlySparkError
    return cast(operand, pa.bool_())


def is_null(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``IS NULL``."""
    if not isinstance(node.expression, exp.Null):
        raise OnlySparkError
    return call("is_null", pa.bool_(), compile_(node.this))


def case(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``CASE``, with or without ELSE, and ``IF``; FILTER (WHERE ...) arrives here as a CASE too."""
    branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = node.this if isinstance(node, exp.Case) else None
    conditions = [_condition(subject, branch.this, compile_) for branch in branches]
    default = node.args.get("false" if isinstance(node, exp.If) else "default")
    values = [compile_(value) for value in (*(branch.args["true"] for branch in branches), default or exp.Null())]
    *chosen, result = _unified(values)
    for condition, value in zip(reversed(conditions), reversed(chosen), strict=True):
        holds = is_true(condition)
        result = call("if_else", value.type, holds, guarded(value, holds), guarded(result, negated(holds)))
    return result


def _condition(subject: exp.Expr | None, when: exp.Expr, compile_: Compile) -> Compiled:
    """Return the condition of a branch; for CASE with a subject, that the subject equals the branch's value."""
    if subject is None:
        return truth(compile_(when))
    return _compare("equal", *_comparable([compile_(subject), compile_(when)]))
