"""Compile the filter and the columns of a query to Arrow programs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression
from millrace_api.sql.own_functions import own_name
from millrace_jobs.own_code.functions import ScalarFunction
from millrace_jobs.pipeline.expressions import compiled, conditions, functions
from millrace_jobs.pipeline.expressions.compiled import NOTHING, Compile, Compiled, ExpressionRule, OnlySparkError
from millrace_jobs.pipeline.projection import ArrowProjection, Projection


def compile_expression(sql: str, schema: pa.Schema, functions: Sequence[ScalarFunction] = ()) -> Compiled | None:
    """Compile one SQL expression over a batch with this schema; None if only Spark can evaluate it.

    ``functions`` are those of the query's own, which the expression may call.
    """
    fields = {field.name.lower(): field for field in schema}
    own = {function.name: function for function in functions}

    def compile_(node: exp.Expr) -> Compiled:
        if isinstance(node, exp.Column | exp.Dot):
            return _column(node, fields)
        if isinstance(node, exp.Anonymous) and own_name(node) in own:
            return _own_call(own[own_name(node)], node, compile_)
        if type(node) not in _RULES:
            raise OnlySparkError
        return _RULES[type(node)](node, compile_)

    try:
        result = compile_(parse_expression(sql))
    except OnlySparkError:
        return None
    return None if result.type == NOTHING else result


def compile_projection(projection: Projection, source: pa.Schema) -> ArrowProjection | str:
    """Compile a projection to Arrow, or return the expression or setting that only Spark can handle."""
    if projection.setting:
        return projection.setting
    columns_of = [sql for _, sql in projection.columns]
    found = compile_columns(projection.where, columns_of, source, projection.functions)
    if isinstance(found, str):
        return found
    where, columns = found
    for column, (_, sql), field in zip(columns, projection.columns, projection.schema, strict=True):
        if not _same_values(column.type, field.type):
            return sql
    programs = tuple(column.program for column in columns)
    return ArrowProjection(where.program if where else None, programs, projection.schema)


def compile_columns(
    condition: str, columns: Sequence[str], source: pa.Schema, functions: Sequence[ScalarFunction] = ()
) -> tuple[Compiled | None, list[Compiled]] | str:
    """Compile a filter, empty for none, and columns over a source, or return the one that only Spark can evaluate."""
    where = compile_expression(condition, source, functions) if condition else None
    if condition and (where is None or where.type != pa.bool_()):
        return condition
    programs = []
    for sql in columns:
        column = compile_expression(sql, source, functions)
        if column is None:
            return sql
        programs.append(column)
    return where, programs


def _same_values(computed: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types are equal, or are integers or timestamps that differ only in width or zone name."""
    if computed == wanted or (pa.types.is_signed_integer(computed) and pa.types.is_signed_integer(wanted)):
        return True
    return bool(pa.types.is_timestamp(computed) and pa.types.is_timestamp(wanted))


def _column(node: exp.Expr, fields: dict[str, pa.Field]) -> Compiled:
    """Compile a column, or a field of one that is a struct."""
    names = [part.name for part in node.parts] if isinstance(node, exp.Column | exp.Dot) else []
    field = fields.get(names[0].lower()) if names else None
    if field is None or not all(isinstance(part, exp.Identifier) for part in _parts(node)):
        raise OnlySparkError
    found = Compiled(("field", field.name), field.type)
    for name in names[1:]:
        found = _member(found, name)
    return found


def _own_call(function: ScalarFunction, node: exp.Anonymous, compile_: Compile) -> Compiled:
    """Compile a call of a function of the query's own, which may fail for any value."""
    arguments = [compile_(argument) for argument in node.expressions]
    if not arguments or any(argument.type == NOTHING for argument in arguments):
        raise OnlySparkError
    return Compiled(("own", function, *(argument.program for argument in arguments)), function.type, raises=True)


def _parts(node: exp.Expr) -> list[exp.Expr]:
    assert isinstance(node, exp.Column | exp.Dot)
    return list(node.parts)


def _member(struct: Compiled, name: str) -> Compiled:
    if not pa.types.is_struct(struct.type):
        raise OnlySparkError
    places = [place for place, field in enumerate(struct.type) if field.name.lower() == name.lower()]
    if len(places) != 1:
        raise OnlySparkError
    return Compiled(("member", struct.program, places[0]), struct.type.field(places[0]).type)


_RULES: dict[type[exp.Expr], ExpressionRule] = {
    exp.Literal: compiled.literal_of,
    exp.Boolean: lambda node, _: compiled.literal(bool(node.this), pa.bool_()),
    exp.Null: lambda node, _: compiled.literal(None, NOTHING),
    exp.Cast: compiled.cast_to,
    exp.Paren: lambda node, compile_: compile_(node.this),
    exp.And: conditions.both,
    exp.Or: conditions.either,
    exp.Not: lambda node, compile_: compiled.negated(conditions.truth(compile_(node.this))),
    exp.Is: conditions.is_null,
    exp.Case: conditions.case,
    exp.If: conditions.case,
    exp.EQ: conditions.comparison("equal"),
    exp.NEQ: conditions.comparison("not_equal"),
    exp.GT: conditions.comparison("greater"),
    exp.GTE: conditions.comparison("greater_equal"),
    exp.LT: conditions.comparison("less"),
    exp.LTE: conditions.comparison("less_equal"),
    exp.In: conditions.is_in,
    exp.Between: conditions.between,
    exp.Neg: functions.minus,
    exp.Add: functions.sum_or_product("add"),
    exp.Sub: functions.sum_or_product("subtract"),
    exp.Mul: functions.sum_or_product("multiply"),
    exp.Div: functions.quotient,
    exp.IntDiv: functions.integer_division("divide_checked", pa.int64()),
    exp.Mod: functions.integer_division("remainder"),
    exp.Upper: functions.letters("upper"),
    exp.Lower: functions.letters("lower"),
    exp.Substring: functions.substring,
}
