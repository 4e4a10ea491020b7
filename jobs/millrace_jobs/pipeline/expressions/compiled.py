"""The result of compiling an expression, and the types that Spark gives to its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.programs import Program

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


_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|[+-]?inf(inity)?", re.IGNORECASE)

_LARGEST_BIGINT = 2**63 - 1
_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}


def literal_of(node: exp.Expr, _: Compile | None = None) -> Compiled | None:
    """Compile a string or number literal."""
    if node.args["is_string"]:
        return literal(node.name, pa.string())
    return number(node.name)


def number(text: str) -> Compiled | None:
    """Return a number with Spark's type: the smallest of INT, BIGINT and DECIMAL, or DOUBLE if it has an exponent.

    A number beyond BIGINT returns None: Spark takes every integer, and even NULL, to be smaller.
    """
    if re.fullmatch(r"-?\d+", text):
        value = int(text)
        for kind in (pa.int32(), pa.int64()):
            if -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1):
                return literal(value, kind)
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)", text):
        exact = Decimal(text) or Decimal(text).copy_abs()  # Spark has only one DECIMAL zero
        _, digits, exponent = exact.as_tuple()
        assert isinstance(exponent, int)
        kind = decimal(max(len(digits), -exponent), -exponent)
        return literal(exact, kind) if kind is not None and abs(exact) <= _LARGEST_BIGINT else None
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text):
        return literal(float(text), pa.float64())
    return None


def boolean(node: exp.Expr, _: Compile) -> Compiled:
    """Compile TRUE or FALSE."""
    return literal(bool(node.this), pa.bool_())


def null(_: exp.Expr, __: Compile) -> Compiled:
    """Compile NULL, whose type depends on its context."""
    return literal(None, NOTHING)


def cast_to(node: exp.Expr, compile_: Compile) -> Compiled | None:
    """Compile CAST of a literal, or of any number to DOUBLE or to a type that has all its values."""
    target = node.args["to"]
    inner = compile_(node.this)
    if inner is None:
        return None
    if inner.is_literal and inner.type == pa.string():
        return _parsed(inner.value, target)
    if target.is_type("double"):
        return inner if inner.type == pa.float64() else cast(inner, pa.float64())
    for name, kind in _INTEGERS.items():
        if target.is_type(name) and is_integer(inner.type):
            return _as_integer(inner, kind)
    return None


def _as_integer(inner: Compiled, kind: pa.DataType) -> Compiled | None:
    if not inner.is_literal:
        return inner if inner.type == kind else cast(inner, kind)
    bound = 2 ** (kind.bit_width - 1)
    return literal(inner.value, kind) if -bound <= inner.value < bound else None


def _parsed(text: str, target: exp.Expr) -> Compiled | None:
    """Return a string cast to another type; None if Spark may read it differently from Python, or not at all."""
    if target.is_type("double"):
        return literal(float(text), pa.float64()) if _DOUBLE.fullmatch(text) else None
    if target.is_type("date"):
        return day(text)
    if target.is_type("timestamp", "timestamptz", "timestampltz"):
        return moment(text)
    if target.is_type("decimal"):
        return _exact(text, [int(parameter.name) for parameter in target.expressions])
    return None


def _exact(text: str, size: list[int]) -> Compiled | None:
    exact = number(text)
    if exact is None or exact.type == pa.float64() or len(size) != 2:
        return None
    precision, scale = size
    value = Decimal(exact.value)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    fits = -exponent <= scale and len(digits) + exponent <= precision - scale
    return literal(value, pa.decimal128(precision, scale)) if fits else None


def day(text: str) -> Compiled | None:
    """Return a DATE literal; None if the text is not in ISO 8601 format or not in the calendar."""
    try:
        return literal(date.fromisoformat(text), pa.date32()) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def moment(text: str) -> Compiled | None:
    """Return a TIMESTAMP literal in UTC; None if the text is not in ISO 8601 format or not in the calendar."""
    try:
        return literal(datetime.fromisoformat(text).replace(tzinfo=UTC), TIMESTAMP) if _MOMENT.fullmatch(text) else None
    except ValueError:
        return None
