"""SQL expressions that Arrow computes exactly as Spark does, so that a replica needs no round trip through the JVM.

The subset is what most filters, keys and inputs are: columns, literals, comparisons, AND, OR, NOT, IS NULL, IN,
BETWEEN, CASE WHEN without ELSE, CAST of a number to DOUBLE. Where Spark's meaning differs from Arrow's (NaN,
three-valued logic) the program follows Spark. Anything else is left to Spark: ``compile_expression`` returns None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql import parse_expression
from millrace_jobs.pipeline.programs import Program
from millrace_jobs.pipeline.projection import ArrowProjection, Projection


@dataclass(frozen=True)
class Compiled:
    """A program and the Arrow type of its result."""

    program: Program
    type: pa.DataType


def compile_expression(sql: str, schema: pa.Schema) -> Compiled | None:
    """Compile one SQL expression over a batch with this schema; None where only Spark can evaluate it."""
    return _compile(parse_expression(sql), {field.name.lower(): field for field in schema})


def compile_projection(projection: Projection, source: pa.Schema) -> ArrowProjection | str:
    """Compile a projection to Arrow, or name the expression that only Spark can evaluate."""
    where = compile_expression(projection.where, source) if projection.where else None
    if projection.where and where is None:
        return projection.where
    programs: list[Program] = []
    for (_, sql), field in zip(projection.columns, projection.schema, strict=True):
        compiled = compile_expression(sql, source)
        if compiled is None or not _same_values(compiled.type, field.type):
            return sql
        programs.append(compiled.program)
    return ArrowProjection(where.program if where else None, tuple(programs), projection.schema)


def _same_values(computed: pa.DataType, wanted: pa.DataType) -> bool:
    """Equal types, or integers and timestamps that only differ in width or zone name."""
    if computed == wanted or (pa.types.is_signed_integer(computed) and pa.types.is_signed_integer(wanted)):
        return True
    return bool(pa.types.is_timestamp(computed) and pa.types.is_timestamp(wanted))


_Fields = dict[str, pa.Field]


def _compile(node: exp.Expr, fields: _Fields) -> Compiled | None:
    rule = _RULES.get(type(node))
    return rule(node, fields) if rule else None


def _call(function: str, result: pa.DataType, *arguments: Compiled) -> Compiled:
    return Compiled(("call", function, *(argument.program for argument in arguments)), result)


def _column(node: exp.Expr, fields: _Fields) -> Compiled | None:
    field = fields.get(node.name.lower())
    if field is None or node.args.get("table"):
        return None
    return Compiled(("field", field.name), field.type)


def _literal(node: exp.Expr, _: _Fields) -> Compiled | None:
    if node.args["is_string"]:
        return Compiled(("literal", node.name, pa.string()), pa.string())
    if not re.fullmatch(r"-?\d{1,18}", node.name):
        return None
    value = int(node.name)
    kind = pa.int32() if -(2**31) <= value < 2**31 else pa.int64()
    return Compiled(("literal", value, kind), kind)


def _boolean(node: exp.Expr, _: _Fields) -> Compiled:
    return Compiled(("literal", bool(node.this), pa.bool_()), pa.bool_())


def _paren(node: exp.Expr, fields: _Fields) -> Compiled | None:
    return _compile(node.this, fields)


def _logic(function: str) -> Any:
    def rule(node: exp.Expr, fields: _Fields) -> Compiled | None:
        left, right = _compile(node.this, fields), _compile(node.expression, fields)
        if left is None or right is None or not (left.type == right.type == pa.bool_()):
            return None
        return _call(function, pa.bool_(), left, right)

    return rule


def _not(node: exp.Expr, fields: _Fields) -> Compiled | None:
    inner = _compile(node.this, fields)
    return _call("invert", pa.bool_(), inner) if inner is not None and inner.type == pa.bool_() else None


def _is_null(node: exp.Expr, fields: _Fields) -> Compiled | None:
    inner = _compile(node.this, fields)
    if inner is None or not isinstance(node.expression, exp.Null):
        return None
    return _call("is_null", pa.bool_(), inner)


_CHAINED = (exp.Predicate, exp.Not)
"""Operands of a comparison that need parentheses: Spark and sqlglot read ``p < q = r < s`` differently."""


def _comparison(function: str) -> Any:
    def rule(node: exp.Expr, fields: _Fields) -> Compiled | None:
        return _compare(function, node.this, node.expression, fields)

    return rule


def _compare(function: str, left: exp.Expr, right: exp.Expr, fields: _Fields) -> Compiled | None:
    if isinstance(left, _CHAINED) or isinstance(right, _CHAINED):
        return None
    if pa.float64() in (_type(left, fields), _type(right, fields)):
        return _compare_double(function, left, right, fields)
    one, other = _compile(left, fields), _compile(right, fields)
    if one is None or other is None or pa.types.is_nested(one.type):
        return None
    integers = pa.types.is_signed_integer(one.type) and pa.types.is_signed_integer(other.type)
    if not integers and (one.type != other.type or pa.types.is_floating(one.type)):
        return None
    return _call(function, pa.bool_(), one, other)


def _compare_double(function: str, left: exp.Expr, right: exp.Expr, fields: _Fields) -> Compiled | None:
    """A DOUBLE against a number literal. To Spark NaN is larger than every number, to Arrow it is incomparable."""
    column, number = _compile(left, fields), _number(right)
    if column is None or number is None:
        return None
    literal = Compiled(("literal", number, pa.float64()), pa.float64())
    compared = _call(function, pa.bool_(), column, literal)
    if function not in ("greater", "greater_equal", "not_equal"):
        return compared
    return _call("or_kleene", pa.bool_(), compared, _call("is_nan", pa.bool_(), column))


def _type(node: exp.Expr, fields: _Fields) -> pa.DataType | None:
    compiled = _compile(node, fields)
    return compiled.type if compiled else None


def _number(node: exp.Expr) -> float | None:
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Literal) and not node.args["is_string"] and re.fullmatch(r"[\d.]+", node.name):
        return float(node.name)
    return None


def _neg(node: exp.Expr, fields: _Fields) -> Compiled | None:
    inner = _compile(node.this, fields)
    if inner is None or inner.program[0] != "literal" or not pa.types.is_signed_integer(inner.type):
        return None
    return Compiled(("literal", -inner.program[1], inner.type), inner.type)


def _in(node: exp.Expr, fields: _Fields) -> Compiled | None:
    """A chain of OR: ``is_in`` of Arrow says false where Spark says NULL."""
    options = node.args.get("expressions") or []
    tests = [_compare("equal", node.this, option, fields) for option in options]
    if not tests or len(tests) > 16 or any(test is None for test in tests):
        return None
    chain = tests[0]
    for test in tests[1:]:
        assert chain is not None
        assert test is not None
        chain = _call("or_kleene", pa.bool_(), chain, test)
    return chain


def _between(node: exp.Expr, fields: _Fields) -> Compiled | None:
    low = _compare("greater_equal", node.this, node.args["low"], fields)
    high = _compare("less_equal", node.this, node.args["high"], fields)
    return _call("and_kleene", pa.bool_(), low, high) if low and high else None


def _case(node: exp.Expr, fields: _Fields) -> Compiled | None:
    """``CASE WHEN condition THEN value END``, which is also what FILTER (WHERE ...) becomes."""
    branches = node.args.get("ifs") or []
    if node.args.get("this") or node.args.get("default") or len(branches) != 1:
        return None
    condition, value = _compile(branches[0].this, fields), _compile(branches[0].args["true"], fields)
    if condition is None or value is None or condition.type != pa.bool_():
        return None
    no = Compiled(("literal", False, pa.bool_()), pa.bool_())
    null = Compiled(("literal", None, value.type), value.type)
    return _call("if_else", value.type, _call("coalesce", pa.bool_(), condition, no), value, null)


def _cast(node: exp.Expr, fields: _Fields) -> Compiled | None:
    target = node.args["to"]
    if target.is_type("double"):
        inner = _compile(node.this, fields)
        if inner is not None and (pa.types.is_signed_integer(inner.type) or pa.types.is_floating(inner.type)):
            return _call("cast_double", pa.float64(), inner)
    if target.is_type("bigint") and isinstance(node.this, exp.Literal) and node.this.is_int:
        return _long(node.this, fields)
    if target.is_type("timestamp", "timestamptz", "timestampltz") and isinstance(node.this, exp.Literal):
        return _timestamp(node.this.name)
    return None


def _long(node: exp.Expr, fields: _Fields) -> Compiled | None:
    """``1L``, as which the count of ``count(*) FILTER (WHERE ...)`` comes."""
    literal = _literal(node, fields)
    return Compiled(("literal", literal.program[1], pa.int64()), pa.int64()) if literal else None


def _timestamp(text: str) -> Compiled | None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?", text):
        return None
    kind = pa.timestamp("us", tz="UTC")
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # not in the calendar
        return None
    return Compiled(("literal", moment, kind), kind)


_RULES: dict[type[exp.Expr], Any] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.And: _logic("and_kleene"),
    exp.Or: _logic("or_kleene"),
    exp.Not: _not,
    exp.Is: _is_null,
    exp.EQ: _comparison("equal"),
    exp.NEQ: _comparison("not_equal"),
    exp.GT: _comparison("greater"),
    exp.GTE: _comparison("greater_equal"),
    exp.LT: _comparison("less"),
    exp.LTE: _comparison("less_equal"),
    exp.Neg: _neg,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.Cast: _cast,
}
