"""Literals and their casts: values that are known before a record is read."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from millrace_jobs.pipeline.expressions.compiled import (
    NOTHING,
    TIMESTAMP,
    Compile,
    Compiled,
    cast,
    decimal,
    is_integer,
    literal,
)

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
