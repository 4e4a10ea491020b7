"""Comparisons, IN and BETWEEN over operands that Spark casts to one type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.compiled import (
    NOTHING,
    TIMESTAMP,
    Compile,
    Compiled,
    Rule,
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

_CHAINED = (exp.Predicate, exp.Not)
"""Operands of a comparison that need parentheses: Spark and sqlglot read ``p < q = r < s`` differently."""

_MIRRORED = {"less": "greater", "less_equal": "greater_equal"}

_MOST_COMPARISONS = 16
"""Maximum number of IN options that are compared one by one.

This concerns columns, and floats because Arrow's value sets distinguish 0.0 from -0.0.
"""


def comparison(function: str) -> Rule:
    """Return the rule for a comparison; ``function`` is its name in Arrow."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled | None:
        return _compare(function, node.this, node.expression, compile_)

    return rule


def is_in(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``value IN (options)``.

    The result is NULL if the value is NULL, or if an option is NULL and none equals the value.
    """
    operands = _operands([node.this, *node.args.get("expressions", [])], compile_)
    if operands is None or len(operands) == 1:
        return None
    value, *options = operands
    if not pa.types.is_floating(value.type) and all(option.is_literal for option in options):
        return _among(value, options)
    if len(options) > _MOST_COMPARISONS or any(option.raises for option in options):
        return None
    tests = [compare("equal", value, option) for option in options]
    return reduce(lambda one, other: call("or_kleene", pa.bool_(), one, other), tests)


def _among(value: Compiled, options: Sequence[Compiled]) -> Compiled:
    known = tuple(option.value for option in options if option.value is not None)
    found = Compiled(("among", value.program, known, value.type), pa.bool_(), value.raises)
    if len(known) == len(options):
        return found
    return call("or_kleene", pa.bool_(), found, literal(None, pa.bool_()))


def between(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``value BETWEEN low AND high``."""
    low = _compare("greater_equal", node.this, node.args["low"], compile_)
    high = _compare("less_equal", node.this, node.args["high"], compile_)
    if low is None or high is None or high.raises or node.args.get("symmetric"):
        return None
    return call("and_kleene", pa.bool_(), low, high)


def _compare(function: str, left: exp.Expr, right: exp.Expr, compile_: Compile) -> Compiled | None:
    operands = _operands([left, right], compile_)
    return None if operands is None else compare(function, *operands)


def _operands(nodes: Sequence[exp.Expr], compile_: Compile) -> list[Compiled] | None:
    """Return the operands cast to the type in which Spark compares them; None if only Spark can compare them."""
    if any(isinstance(node, _CHAINED) for node in nodes):
        return None
    compiled = [compile_(node) for node in nodes]
    if any(operand is None for operand in compiled):
        return None
    same = unified(_dated([operand for operand in compiled if operand is not None]))
    if same is None or same[0].type == NOTHING or pa.types.is_nested(same[0].type):
        return None
    return same


def _dated(operands: list[Compiled]) -> list[Compiled]:
    """Read string literals as the DATE or TIMESTAMP they are compared with, and cast DATE literals to TIMESTAMP."""
    kinds = {operand.type for operand in operands if not operand.is_literal}
    if len(kinds) != 1 or not kinds <= {pa.date32(), TIMESTAMP}:
        return operands
    (kind,) = kinds
    read = day if kind == pa.date32() else moment

    def dated(operand: Compiled) -> Compiled:
        if not operand.is_literal or operand.value is None:
            return operand
        if operand.type == pa.string():
            return read(operand.value) or operand
        return (cast(operand, kind) or operand) if kind == TIMESTAMP else operand

    return [dated(operand) for operand in operands]


def unified(operands: Sequence[Compiled]) -> list[Compiled] | None:
    """Return the operands cast to their common type; None if no type keeps their values."""
    kind = common_type([operand.type for operand in operands])
    if kind is None:
        return None
    same = [cast(operand, kind) for operand in operands]
    return None if any(operand is None for operand in same) else [operand for operand in same if operand is not None]


def compare(function: str, left: Compiled, right: Compiled) -> Compiled:
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
    largest = [] if _is_no_nan(left) else [call("is_nan", pa.bool_(), left)]
    if function == "equal" and (not largest or _is_no_nan(right)):
        return compared
    if function == "equal":
        largest.append(call("is_nan", pa.bool_(), right))
    elif function == "greater" and largest and not _is_no_nan(right):
        largest.append(negated(call("is_nan", pa.bool_(), right)))
    if not largest:
        return compared
    both = reduce(lambda one, other: call("and", pa.bool_(), one, other), largest)
    return call("or", pa.bool_(), compared, both)


def _is_no_nan(operand: Compiled) -> bool:
    return operand.is_literal and operand.value == operand.value  # NaN differs from itself


def both(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``AND``: the right operand is not evaluated where the left one is false."""
    operands = _truths(node, compile_)
    if operands is None:
        return None
    left, right = operands
    open_ = call("coalesce", pa.bool_(), left, literal(True, pa.bool_()))
    return call("and_kleene", pa.bool_(), left, guarded(right, open_))


def either(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``OR``: the right operand is not evaluated where the left one is true."""
    operands = _truths(node, compile_)
    if operands is None:
        return None
    left, right = operands
    return call("or_kleene", pa.bool_(), left, guarded(right, negated(is_true(left))))


def _truths(node: exp.Expr, compile_: Compile) -> tuple[Compiled, Compiled] | None:
    left, right = _truth(compile_(node.this)), _truth(compile_(node.expression))
    return None if left is None or right is None else (left, right)


def _truth(operand: Compiled | None) -> Compiled | None:
    """Return the operand as a BOOLEAN; None if it is not a condition."""
    if operand is None or operand.type not in (pa.bool_(), NOTHING):
        return None
    return cast(operand, pa.bool_())


def not_(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``NOT``."""
    inner = _truth(compile_(node.this))
    return None if inner is None else negated(inner)


def is_null(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``IS NULL``."""
    inner = compile_(node.this)
    if inner is None or not isinstance(node.expression, exp.Null):
        return None
    return call("is_null", pa.bool_(), inner)


def case(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``CASE``, with or without ELSE, and ``IF``; FILTER (WHERE ...) arrives here as a CASE too."""
    branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = node.this if isinstance(node, exp.Case) else None
    conditions = [_condition(subject, branch.this, compile_) for branch in branches]
    default = node.args.get("false" if isinstance(node, exp.If) else "default")
    values = [compile_(value) for value in (*(branch.args["true"] for branch in branches), default or exp.Null())]
    same = None if None in values else unified([value for value in values if value is not None])
    if same is None or same[0].type == NOTHING:
        return None
    *chosen, result = same
    for condition, value in zip(reversed(conditions), reversed(chosen), strict=True):
        if condition is None:
            return None
        holds = is_true(condition)
        result = call("if_else", value.type, holds, guarded(value, holds), guarded(result, negated(holds)))
    return result


def _condition(subject: exp.Expr | None, when: exp.Expr, compile_: Compile) -> Compiled | None:
    """Return the condition of a branch; for CASE with a subject, that the subject equals the branch's value."""
    if subject is None:
        return _truth(compile_(when))
    one, other = compile_(subject), compile_(when)
    same = None if one is None or other is None else unified([one, other])
    if same is None or same[0].type == NOTHING or pa.types.is_nested(same[0].type):
        return None
    return compare("equal", *same)
