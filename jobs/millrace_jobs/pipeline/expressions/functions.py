"""Functions of numbers and strings: arithmetic, letter case and substrings.

Results have Spark's types, and overflow and division by zero are errors as in Spark.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_jobs.pipeline.expressions.compiled import (
    Compile,
    Compiled,
    ExpressionRule,
    OnlySparkError,
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
_MAX_INT = 2**31 - 1
_NOT_ZERO = "divide by nullif(..., 0) to get NULL instead"


def sum_or_product(function: str) -> ExpressionRule:
    """Return the rule for +, - or *; ``function`` is the name of the operation in Arrow."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled:
        left, right = _numbers(node, compile_)
        kinds = (left.type, right.type)
        if any(pa.types.is_decimal128(kind) for kind in kinds) and not any(map(pa.types.is_floating, kinds)):
            return _exact(function, left, after(left, right))
        kind = common_type(kinds)
        left, right = cast(left, kind), cast(right, kind)
        if not is_integer(kind):
            return call(function, kind, left, after(left, right))
        return _checked(node, call(f"{function}_checked", kind, left, after(left, right)), _WIDER)

    return rule


def _exact(function: str, left: Compiled, right: Compiled) -> Compiled:
    """Compile a DECIMAL operation whose type holds every result."""
    one, other = decimal_type(left), decimal_type(right)
    if function == "multiply":
        kind = decimal(one.precision + other.precision + 1, one.scale + other.scale)
    else:
        scale = max(one.scale, other.scale)
        kind = decimal(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    return call(function, kind, cast(left, one), cast(right, other))


def quotient(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``/``: the quotient of integers and floats is a DOUBLE.

    The quotient of DECIMALs is left to Spark, which rounds it.
    """
    operands = _numbers(node, compile_)
    if any(pa.types.is_decimal128(operand.type) for operand in operands):
        raise OnlySparkError
    left, right = (cast(operand, pa.float64()) for operand in operands)
    if right.is_literal and right.value:
        return call("divide", pa.float64(), left, right)
    return _checked(node, call("divide_checked", pa.float64(), after(right, left), right), _NOT_ZERO)


def integer_division(function: str, kind: pa.DataType | None = None) -> ExpressionRule:
    """Return the rule for ``DIV`` or ``%`` of integers; the result has type ``kind``, or else that of the operands.

    ``DIV`` rounds towards zero; ``%`` has the sign of the dividend.
    """

    def rule(node: exp.Expr, compile_: Compile) -> Compiled:
        operands = _numbers(node, compile_)
        if not all(is_integer(operand.type) for operand in operands):
            raise OnlySparkError
        wanted = kind or common_type(operand.type for operand in operands)
        left, right = (cast(operand, wanted) for operand in operands)
        divided = call(function, wanted, after(right, left), right)
        if right.is_literal and right.value not in (None, 0, -1):
            return divided
        return _checked(node, divided, _NOT_ZERO)

    return rule


def minus(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile unary minus: the sign of a numeric literal, or the negative of a number."""
    if isinstance(node.this, exp.Literal) and not node.this.args["is_string"]:
        return number(f"-{node.this.name}")
    inner = compile_(node.this)
    if not is_number(inner.type):
        raise OnlySparkError
    if not is_integer(inner.type):
        return call("negate", inner.type, inner)
    return _checked(node, call("negate_checked", inner.type, inner), _WIDER)


def _numbers(node: exp.Expr, compile_: Compile) -> tuple[Compiled, Compiled]:
    left, right = compile_(node.this), compile_(node.expression)
    if not (is_number(left.type) and is_number(right.type)):
        raise OnlySparkError
    return left, right


def _checked(node: exp.Expr, computed: Compiled, hint: str) -> Compiled:
    """Wrap a computation that can fail; fold a constant, or leave its error to Spark."""
    if not is_constant(computed.program):
        return Compiled(("checked", computed.program, to_sql(node), hint), computed.type, True)
    try:
        return replace(literal(evaluate(computed.program, pa.record_batch({})).as_py(), computed.type), folded=True)
    except pa.ArrowInvalid:
        raise OnlySparkError from None


def letters(function: str) -> ExpressionRule:
    """Return the rule for ``upper`` or ``lower``."""

    def rule(node: exp.Expr, compile_: Compile) -> Compiled:
        text = node.this.unnest()
        inner = compile_(text)
        if inner.type != pa.string():
            raise OnlySparkError
        if isinstance(text, exp.Upper | exp.Lower) and not is_constant(inner.program):
            # Spark's optimizer replaces lower(upper(x)) with lower(x), even where they differ.
            return rule(text, compile_)
        return call(function, pa.string(), inner)

    return rule


def substring(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile ``substring(text, position[, length])`` with literal numbers; characters are code points.

    Positions count from 1, and 0 means 1. Negative positions count from the end and may lie before the start of the
    text: in ``substring('ab', -3, 2)`` the first of the two characters is missing.
    """
    text, position = compile_(node.this), _integer(node.args["start"], compile_)
    length = _MAX_INT
    if node.args.get("length") is not None:
        length = max(_integer(node.args["length"], compile_), 0)
    if text.type != pa.string():
        raise OnlySparkError
    start = position - 1 if position > 0 else position
    stop = start + length
    to_the_end = length > 0 and (stop > _MAX_INT or start < 0 <= stop)
    return Compiled(("slice", text.program, start, None if to_the_end else stop), pa.string(), text.raises)


def _integer(node: exp.Expr, compile_: Compile) -> int:
    """Return the value of a literal INT."""
    compiled = compile_(node)
    if not compiled.is_literal or not is_integer(compiled.type) or compiled.value is None:
        raise OnlySparkError
    if abs(compiled.value) > _MAX_INT:
        raise OnlySparkError
    return int(compiled.value)
