"""Compiled expressions: their types, literals and casts, as in Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.programs import Program
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP

NOTHING = pa.null()
"""Type of the literal NULL until its context gives it another one."""

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|[+-]?inf(inity)?", re.IGNORECASE)
_LARGEST_BIGINT = 2**63 - 1
_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}


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


class OnlySparkError(Exception):
    """Error that ends the compilation of an expression that only Spark can evaluate exactly as Spark does."""


Compile = Callable[[exp.Expr], Compiled]
"""Function that compiles an operand, or raises OnlySparkError."""

ExpressionRule = Callable[[exp.Expr, Compile], Compiled]
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


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type to which Spark casts operands of these types. Raises OnlySparkError if it may lose values."""
    return reduce(_wider, kinds)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == NOTHING:
        return one
    if one == NOTHING:
        return other
    if not (is_number(one) and is_number(other)):
        raise OnlySparkError
    if is_integer(one) and is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()  # for a FLOAT and an integer too, so that no digits are lost
    left, right = _as_decimal(one), _as_decimal(other)
    scale = max(left.scale, right.scale)
    return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return DECIMAL(precision, scale). Raises OnlySparkError beyond 38 digits, where Spark would round."""
    if precision > MAX_PRECISION:
        raise OnlySparkError
    return pa.decimal128(precision, scale)


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DIGITS[kind], 0) if is_integer(kind) else kind


def decimal_type(operand: Compiled) -> pa.DataType:
    """Return the DECIMAL type that Spark gives an integer or DECIMAL; a literal integer gets the digits it needs."""
    if operand.is_literal and not operand.folded and is_integer(operand.type) and operand.value is not None:
        return pa.decimal128(len(str(abs(operand.value))), 0)
    return _as_decimal(operand.type)


def cast(operand: Compiled, kind: pa.DataType) -> Compiled:
    """Cast the operand to a type to which Spark casts it implicitly. Raises OnlySparkError if the value might change.

    A DECIMAL that is not a literal is not cast to DOUBLE, because Arrow does not always take the nearest one.
    """
    if operand.type == kind:
        return operand
    if operand.is_literal:
        return _literal_as(operand.value, kind)
    from_integer = is_integer(operand.type)
    to_double = kind == pa.float64() and (from_integer or operand.type == pa.float32())
    widens = from_integer and is_integer(kind) and operand.type.bit_width < kind.bit_width
    exact = pa.types.is_decimal128(kind) and (from_integer or pa.types.is_decimal128(operand.type))
    if not (to_double or widens or exact):
        raise OnlySparkError
    return Compiled(("cast", operand.program, kind), kind, operand.raises)


def _literal_as(value: Any, kind: pa.DataType) -> Compiled:
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
    raise OnlySparkError


def literal_of(node: exp.Expr, _: Compile) -> Compiled:
    """Compile a string or number literal."""
    return literal(node.name, pa.string()) if node.args["is_string"] else number(node.name)


def number(text: str) -> Compiled:
    """Return a number with Spark's type: the smallest of INT, BIGINT and DECIMAL, or DOUBLE if it has an exponent.

    Raises:
        OnlySparkError: the text is not a number, or the number is beyond BIGINT. To Spark,
            ``i < 9223372036854775808`` is true for every integer, and even for NULL.
    """
    if re.fullmatch(r"-?\d+", text):
        for kind in (pa.int32(), pa.int64()):
            if _fits(int(text), kind):
                return literal(int(text), kind)
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", text):
        exact = Decimal(text) or Decimal(text).copy_abs()  # Spark has only one DECIMAL zero
        digits, scale = _digits_and_scale(exact)
        if abs(exact) <= _LARGEST_BIGINT:
            return literal(exact, decimal(max(digits, scale), scale))
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text):
        return literal(float(text), pa.float64())
    raise OnlySparkError


def _fits(value: int, kind: pa.DataType) -> bool:
    bound = 2 ** (kind.bit_width - 1)
    return bool(-bound <= value < bound)


def _digits_and_scale(value: Decimal) -> tuple[int, int]:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return len(digits), -exponent


def cast_to(node: exp.Expr, compile_: Compile) -> Compiled:
    """Compile CAST of a literal, or of any number to DOUBLE or to a type that has all its values."""
    target = node.args["to"]
    inner = compile_(node.this)
    if inner.is_literal and inner.type == pa.string():
        return _parsed(inner.value, target)
    if target.is_type("double"):
        return cast(inner, pa.float64())
    for name, kind in _INTEGERS.items():
        if target.is_type(name) and is_integer(inner.type):
            if not inner.is_literal:
                return cast(inner, kind)
            if inner.value is None or _fits(inner.value, kind):
                return literal(inner.value, kind)
    raise OnlySparkError


def _parsed(text: str, target: exp.Expr) -> Compiled:
    """Return a string cast to another type, unless Spark may read it differently from Python, or not at all."""
    if target.is_type("double") and _DOUBLE.fullmatch(text):
        return literal(float(text), pa.float64())
    if target.is_type("date"):
        return day(text)
    if target.is_type("timestamp", "timestamptz", "timestampltz"):
        return moment(text)
    if target.is_type("decimal"):
        return _decimal_literal(text, [int(parameter.name) for parameter in target.expressions])
    raise OnlySparkError


def _decimal_literal(text: str, size: list[int]) -> Compiled:
    exact = number(text)
    if exact.type != pa.float64() and len(size) == 2:
        precision, scale = size
        value = Decimal(exact.value)
        digits, digits_after = _digits_and_scale(value)
        if digits_after <= scale and digits - digits_after <= precision - scale:
            return literal(value, pa.decimal128(precision, scale))
    raise OnlySparkError


def day(text: str) -> Compiled:
    """Return a DATE literal. Raises OnlySparkError if the text is not in ISO 8601 format or not in the calendar."""
    with suppress(ValueError):
        if _DAY.fullmatch(text):
            return literal(date.fromisoformat(text), pa.date32())
    raise OnlySparkError


def moment(text: str) -> Compiled:
    """Return a TIMESTAMP literal in UTC. Raises OnlySparkError as ``day`` does."""
    with suppress(ValueError):
        if _MOMENT.fullmatch(text):
            return literal(datetime.fromisoformat(text).replace(tzinfo=UTC), TIMESTAMP)
    raise OnlySparkError
