"""Compile the filter and the columns of a query to Arrow programs."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression
from millrace_jobs.pipeline.expressions import compiled as literals
from millrace_jobs.pipeline.expressions import conditions
from millrace_jobs.pipeline.expressions import conditions as comparisons
from millrace_jobs.pipeline.expressions import functions as arithmetic
from millrace_jobs.pipeline.expressions import functions as texts
from millrace_jobs.pipeline.expressions.compiled import NOTHING, Compile, Compiled, Rule
from millrace_jobs.pipeline.projection import ArrowProjection, Projection


def compile_expression(sql: str, schema: pa.Schema) -> Compiled | None:
    """Compile one SQL expression over a batch with this schema; None if only Spark can evaluate it."""
    fields = {field.name.lower(): field for field in schema}

    def compile_(node: exp.Expr) -> Compiled | None:
        if isinstance(node, exp.Column):
            return _column(node, fields)
        rule = _RULES.get(type(node))
        return rule(node, compile_) if rule else None

    compiled = compile_(parse_expression(sql))
    return None if compiled is None or compiled.type == NOTHING else compiled


def compile_projection(projection: Projection, source: pa.Schema) -> ArrowProjection | str:
    """Compile a projection to Arrow, or return the expression or setting that only Spark can handle."""
    if projection.setting:
        return projection.setting
    where = compile_expression(projection.where, source) if projection.where else None
    if projection.where and (where is None or where.type != pa.bool_()):
        return projection.where
    programs = []
    for (_, sql), field in zip(projection.columns, projection.schema, strict=True):
        compiled = compile_expression(sql, source)
        if compiled is None or not _same_values(compiled.type, field.type):
            return sql
        programs.append(compiled.program)
    return ArrowProjection(where.program if where else None, tuple(programs), projection.schema)


def _same_values(computed: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types are equal, or are integers or timestamps that differ only in width or zone name."""
    if computed == wanted or (pa.types.is_signed_integer(computed) and pa.types.is_signed_integer(wanted)):
        return True
    return bool(pa.types.is_timestamp(computed) and pa.types.is_timestamp(wanted))


def _column(node: exp.Column, fields: dict[str, pa.Field]) -> Compiled | None:
    field = fields.get(node.name.lower())
    if field is None or node.table:
        return None
    return Compiled(("field", field.name), field.type)


def _inner(node: exp.Expr, compile_: Compile) -> Compiled | None:
    return compile_(node.this)


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: literals.literal_of,
    exp.Boolean: literals.boolean,
    exp.Null: literals.null,
    exp.Cast: literals.cast_to,
    exp.Paren: _inner,
    exp.And: conditions.both,
    exp.Or: conditions.either,
    exp.Not: conditions.not_,
    exp.Is: conditions.is_null,
    exp.Case: conditions.case,
    exp.If: conditions.case,
    exp.EQ: comparisons.comparison("equal"),
    exp.NEQ: comparisons.comparison("not_equal"),
    exp.GT: comparisons.comparison("greater"),
    exp.GTE: comparisons.comparison("greater_equal"),
    exp.LT: comparisons.comparison("less"),
    exp.LTE: comparisons.comparison("less_equal"),
    exp.In: comparisons.is_in,
    exp.Between: comparisons.between,
    exp.Neg: arithmetic.minus,
    exp.Add: arithmetic.sum_or_product("add"),
    exp.Sub: arithmetic.sum_or_product("subtract"),
    exp.Mul: arithmetic.sum_or_product("multiply"),
    exp.Div: arithmetic.quotient,
    exp.IntDiv: arithmetic.integer_quotient,
    exp.Mod: arithmetic.remainder,
    exp.Upper: texts.letters("upper"),
    exp.Lower: texts.letters("lower"),
    exp.Substring: texts.substring,
}
