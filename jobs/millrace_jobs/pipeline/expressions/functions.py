"""Arithmetic with Spark's result types, and with its errors on overflow and division by zero."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_jobs.pipeline.expressions.compiled import (
    Compile,
    Compiled,
    Rule,
    after,
    call,
    cast,
    common_type,
    decimal,
    decimal_type,
    is_integer,
    is_number,
    literal,
    number,
)
from millrace_jobs.pipeline.expressions.programs import evaluate, is_constant

_WIDER = "cast its operands to BIGINT or DECIMAL"
_NOT_ZERO = "divide by nullif(..., 0) to get NULL instead"


def sum_or_product(function: str) -> Rule:
    """Return the rule for +, - or *; ``function`` is the name of the operation in Arrow."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled | None:
        operands = _numbers(node, compile_)
        if operands is None:
            return None
        left, right = operands
        kinds = (left.type, right.type)
        if any(pa.types.is_decimal128(kind) for kind in kinds) and not any(map(pa.types.is_floating, kinds)):
            return _exact(function, left, after(left, right))
        kind = common_type(kinds)
        one, other = (cast(operand, kind) for operand in operands) if kind is not None else (None, None)
        if kind is None or one is None or other is None:
            return None
        if not is_integer(kind):
            return call(function, kind, one, after(one, other))
        return _checked(node, call(f"{function}_checked", kind, one, after(one, other)), _WIDER)

    return rule


def _exact(function: str, left: Compiled, right: Compiled) -> Compiled | None:
    """Compile a DECIMAL operation whose type holds every result; None if that needs more than 38 digits."""
    one, other = decimal_type(left), decimal_type(right)
    if function == "multiply":
        kind = decimal(one.precision + other.precision + 1, one.scale + other.scale)
    else:
        scale = max(one.scale, other.scale)
        kind = decimal(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    first, second = cast(left, one), cast(right, other)
    if kind is None or first is None or second is None:
        return None
    return call(function, kind, first, second)


def quotient(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``/``: the quotient of integers and floats is a DOUBLE.

    The quotient of DECIMALs is left to Spark, which rounds it.
    """
    operands = _numbers(node, compile_)
    if operands is None or any(pa.types.is_decimal128(operand.type) for operand in operands):
        return None
    left, right = (cast(operand, pa.float64()) for operand in operands)
    if left is None or right is None:
        return None
    if right.is_literal and right.value:
        return call("divide", pa.float64(), left, right)
    return _checked(node, call("divide_checked", pa.float64(), after(right, left), right), _NOT_ZERO)


def integer_quotient(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``DIV`` of integers: a BIGINT, rounded towards zero."""
    return _integers("divide_checked", pa.int64(), node, compile_)


def remainder(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``%`` of integers: the result has the sign of the dividend."""
    return _integers("remainder", None, node, compile_)


def _integers(function: str, kind: pa.DataType | None, node: exp.Expr, compile_: Compile) -> Compiled | None:
    operands = _numbers(node, compile_)
    if operands is None or not all(is_integer(operand.type) for operand in operands):
        return None
    kind = kind or common_type([operand.type for operand in operands])
    assert kind is not None
    left, right = (cast(operand, kind) for operand in operands)
    if left is None or right is None:
        return None
    divided = call(function, kind, after(right, left), right)
    if right.is_literal and right.value not in (None, 0, -1):
        return divided
    return _checked(node, divided, _NOT_ZERO)


def minus(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile unary minus: the sign of a numeric literal, or the negative of a number."""
    if isinstance(node.this, exp.Literal) and not node.this.args["is_string"]:
        return number(f"-{node.this.name}")
    inner = compile_(node.this)
    if inner is None or not is_number(inner.type):
        return None
    if not is_integer(inner.type):
        return call("negate", inner.type, inner)
    return _checked(node, call("negate_checked", inner.type, inner), _WIDER)


def _numbers(node: exp.Expr, compile_: Compile) -> tuple[Compiled, Compiled] | None:
    left, right = compile_(node.this), compile_(node.expression)
    if left is None or right is None or not (is_number(left.type) and is_number(right.type)):
        return None
    return left, right


def _checked(node: exp.Expr, computed: Compiled, hint: str) -> Compiled | None:
    """Wrap a computation that can fail; fold a constant, or return None to leave its error to Spark."""
    if not is_constant(computed.program):
        return Compiled(("checked", computed.program, to_sql(node), hint), computed.type, True)
    try:
        return replace(literal(evaluate(computed.program, pa.record_batch({})).as_py(), computed.type), folded=True)
    except pa.ArrowInvalid:
        return None


_MAX_INT = 2**31 - 1


def letters(function: str) -> Rule:
    """Return the rule for ``upper`` or ``lower``."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled | None:
        text = node.this.unnest()
        inner = compile_(text)
        if inner is None or inner.type != pa.string():
            return None
        if isinstance(text, exp.Upper | exp.Lower) and not is_constant(inner.program):
            # Spark's optimizer replaces lower(upper(x)) with lower(x), even where they differ.
            return rule(text, compile_)
        return call(function, pa.string(), inner)

    return rule


def substring(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile ``substring(text, position[, length])`` with literal numbers; characters are code points.

    Positions count from 1, and 0 means 1. Negative positions count from the end and may lie before the start of the
    text: in ``substring('ab', -3, 2)`` the first of the two characters is missing.
    """
    text, position = compile_(node.this), _integer(node.args["start"], compile_)
    length = _MAX_INT
    if node.args.get("length") is not None:
        given = _integer(node.args["length"], compile_)
        if given is None:
            return None
        length = max(given, 0)
    if text is None or text.type != pa.string() or position is None:
        return None
    start = position - 1 if position > 0 else position
    stop: int | None = start + length
    if stop is not None and (stop > _MAX_INT or (start < 0 <= stop)):
        stop = None
    return Compiled(("slice", text.program, start, start if length == 0 else stop), pa.string(), text.raises)


def _integer(node: exp.Expr, compile_: Compile) -> int | None:
    """Return the value of a literal INT; None for anything else."""
    compiled = compile_(node)
    if compiled is None or not compiled.is_literal or not is_integer(compiled.type) or compiled.value is None:
        return None
    value = int(compiled.value)
    return value if abs(value) <= _MAX_INT else None
