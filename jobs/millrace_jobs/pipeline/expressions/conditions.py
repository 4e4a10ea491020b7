"""AND, OR, NOT, IS NULL and CASE, which evaluate their operands from left to right and no further than needed."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.comparisons import compare, unified
from millrace_jobs.pipeline.expressions.compiled import (
    NOTHING,
    Compile,
    Compiled,
    call,
    cast,
    guarded,
    is_true,
    literal,
    negated,
)


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
