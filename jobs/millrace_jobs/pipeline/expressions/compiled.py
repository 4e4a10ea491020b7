"""What an expression is compiled to, and the types that Spark gives to its operands."""

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
"""Type of the literal NULL, before its place in an expression gives it another one."""

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MAX_DIGITS = 38


@dataclass(frozen=True)
class Compiled:
    """A program, the Arrow type of its result, and whether some values end it in an error, such as an overflow.

    ``folded``: it is a value that was computed now, where Spark does so after it has settled the types.
    """

    program: Program
    type: pa.DataType
    raises: bool = False
    folded: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether it is a single value that is known now."""
        return bool(self.program[0] == "literal")

    @property
    def value(self) -> Any:
        """The value of a literal."""
        return self.program[1]


Compile = Callable[[exp.Expr], Compiled | None]
"""Compiles an operand; None where only Spark can evaluate it."""

Rule = Callable[[exp.Expr, Compile], Compiled | None]
"""Compiles one kind of expression, with what compiles its operands."""


def literal(value: Any, kind: pa.DataType) -> Compiled:
    """A value of a type."""
    return Compiled(("literal", value, kind), kind)


def call(function: str, kind: pa.DataType, *arguments: Compiled) -> Compiled:
    """A function of Arrow, or one of ``programs``, that has a value for all arguments."""
    programs = (argument.program for argument in arguments)
    return Compiled(("call", function, *programs), kind, any(argument.raises for argument in arguments))


def guarded(value: Compiled, condition: Compiled) -> Compiled:
    """The value, evaluated for those records only for which Spark evaluates it: it raises no error for the others."""
    return Compiled(("guard", condition.program, value.program), value.type, True) if value.raises else value


def after(first: Compiled, second: Compiled) -> Compiled:
    """The second operand of a function, which Spark does not evaluate where the first one is NULL."""
    return guarded(second, call("is_valid", pa.bool_(), first))


def is_true(condition: Compiled) -> Compiled:
    """Whether a condition is true; false where it is NULL."""
    return call("coalesce", pa.bool_(), condition, literal(False, pa.bool_()))


def negated(condition: Compiled) -> Compiled:
    """NOT."""
    return call("invert", pa.bool_(), condition)


def is_integer(kind: pa.DataType) -> bool:
    """Whether it is one of Spark's integral types."""
    return bool(pa.types.is_signed_integer(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether it is one of Spark's numeric types."""
    return is_integer(kind) or kind in (pa.float32(), pa.float64()) or bool(pa.types.is_decimal128(kind))


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type to which Spark casts operands of these types; None where it has none that keeps all values."""
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
        return pa.float64()  # also of a FLOAT and an integer, to lose no digits
    left, right = _as_decimal(one), _as_decimal(other)
    scale = max(left.scale, right.scale)
    return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def decimal(precision: int, scale: int) -> pa.DataType | None:
    """DECIMAL(precision, scale); None where Spark would round, as it has no more than 38 digits."""
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DIGITS[kind], 0) if is_integer(kind) else kind


def decimal_type(operand: Compiled) -> pa.DataType:
    """The DECIMAL as which Spark takes an integer or DECIMAL operand: a literal integer has the digits it needs."""
    if operand.is_literal and not operand.folded and is_integer(operand.type) and operand.value is not None:
        return pa.decimal128(len(str(abs(operand.value))), 0)
    return _as_decimal(operand.type)


def cast(operand: Compiled, kind: pa.DataType) -> Compiled | None:
    """The operand as another type to which Spark casts it by itself, with the same value; None where that is not sure.

    A DECIMAL that is not known now is no DOUBLE here: Arrow does not always take the nearest one.
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
