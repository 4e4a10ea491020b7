"""The result of compiling an expression, and the types that Spark gives to its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.programs import Program

TIMESTAMP = pa.timestamp("us", tz="UTC")
NOTHING = pa.null()
"""Type of the literal NULL until its context gives it another one."""

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MAX_DIGITS = 38


@dataclass(frozen=True)
class Compiled:
    """A compiled expression: its program, the Arrow type of its result, and whether it can raise an error.

    ``raises``: some values end it in an error, such as an overflow. ``folded``: the value was computed at compile time,
    whereas Spark folds it only after it has settled the types.
    """

    program: Program
    type: pa.DataType
    raises: bool = False
    folded: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether the expression is a single value that is known at compile time."""
        return bool(self.program[0] == "literal")

    @property
    def value(self) -> Any:
        """The value of a literal."""
        return self.program[1]


Compile = Callable[[exp.Expr], Compiled | None]
"""Function that compiles an operand; it returns None if only Spark can evaluate it."""

Rule = Callable[[exp.Expr, Compile], Compiled | None]
"""Function that compiles one kind of expression, given the function that compiles its operands."""


def literal(value: Any, kind: pa.DataType) -> Compiled:
    """Return a literal of type ``kind``."""
    return Compiled(("literal", value, kind), kind)


def call(function: str, kind: pa.DataType, *arguments: Compiled) -> Compiled:
    """Return a call of a function, from Arrow or ``programs``, that has a value for all arguments.

    The call raises an error only if an argument does.
    """
    programs = (argument.program for argument in arguments)
    return Compiled(("call", function, *programs), kind, any(argument.raises for argument in arguments))


def guarded(value: Compiled, condition: Compiled) -> Compiled:
    """Return the value so that it raises no error for records where ``condition`` is false and Spark skips it."""
    return Compiled(("guard", condition.program, value.program), value.type, True) if value.raises else value


def after(first: Compiled, second: Compiled) -> Compiled:
    """Return the second operand of a function, guarded because Spark does not evaluate it where the first is NULL."""
    return guarded(second, call("is_valid", pa.bool_(), first))


def is_true(condition: Compiled) -> Compiled:
    """Return whether a condition is true; false where it is NULL."""
    return call("coalesce", pa.bool_(), condition, literal(False, pa.bool_()))


def negated(condition: Compiled) -> Compiled:
    """Return NOT of a condition."""
    return call("invert", pa.bool_(), condition)


def is_integer(kind: pa.DataType) -> bool:
    """Whether the type is one of Spark's integral types."""
    return bool(pa.types.is_signed_integer(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether the type is one of Spark's numeric types."""
    return is_integer(kind) or kind in (pa.float32(), pa.float64()) or bool(pa.types.is_decimal128(kind))


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type to which Spark casts operands of these types; None if no type keeps all values."""
    return reduce(_wider, kinds)


def _wider(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one == other or other == NOTHING:
        return one
    if one == NOTHING:
        return other
    if one is None or other is None or not (is_number(one) and is_number(other)):
        return None
    if is_integer(one) and is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()  # for a FLOAT and an integer too, so that no digits are lost
    left, right = _as_decimal(one), _as_decimal(other)
    scale = max(left.scale, right.scale)
    return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def decimal(precision: int, scale: int) -> pa.DataType | None:
    """Return DECIMAL(precision, scale); None beyond 38 digits, where Spark would round."""
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DIGITS[kind], 0) if is_integer(kind) else kind


def decimal_type(operand: Compiled) -> pa.DataType:
    """Return the DECIMAL type that Spark gives an integer or DECIMAL; a literal integer gets the digits it needs."""
    if operand.is_literal and not operand.folded and is_integer(operand.type) and operand.value is not None:
        return pa.decimal128(len(str(abs(operand.value))), 0)
    return _as_decimal(operand.type)


def cast(operand: Compiled, kind: pa.DataType) -> Compiled | None:
    """Cast the operand to a type to which Spark casts it implicitly; None if the value might change.

    A DECIMAL that is not a literal is not cast to DOUBLE, because Arrow does not always take the nearest one.
    """
    if operand.type == kind:
        return operand
    if operand.is_literal:
        return _literal_as(operand.value, kind)
    from_number = is_integer(operand.type) or operand.type == pa.float32()
    if kind == pa.float64() and from_number:
        return Compiled(("cast", operand.program, kind), kind, operand.raises)
    widens = is_integer(operand.type) and is_integer(kind) and operand.type.bit_width < kind.bit_width
    exact = pa.types.is_decimal128(kind) and (is_integer(operand.type) or pa.types.is_decimal128(operand.type))
    if not widens and not exact:
        return None
    return Compiled(("cast", operand.program, kind), kind, operand.raises)


def _literal_as(value: Any, kind: pa.DataType) -> Compiled | None:
    if value is None:
        return literal(None, kind)
    is_exact = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if kind == pa.float64() and (is_exact or isinstance(value, float)):
        return literal(float(value), kind)
    if pa.types.is_decimal128(kind) and is_exact:
        return literal(Decimal(value), kind)
    if is_integer(kind) and isinstance(value, int) and not isinstance(value, bool):
        return literal(value, kind)
    if kind == TIMESTAMP and isinstance(value, date) and not isinstance(value, datetime):
        return literal(datetime.combine(value, time(), UTC), kind)
    return None
