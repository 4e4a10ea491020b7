"""Conditions of joins on columns of both sides, such as ``a.v > t.v``, which an operator checks for each pair of rows.

Spark computes what belongs to one side alone, as a hidden column of that side. Arrow evaluates the rest as Spark would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType, TimestampType
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.join_conditions import Side, SideOf
from millrace_jobs.pipeline.expressions.compiler import compile_expression
from millrace_jobs.pipeline.expressions.programs import Program, evaluate
from millrace_jobs.queries.tables.grouping import TypesOf
from millrace_jobs.queries.tables.operators.join_side import HIDDEN
from millrace_jobs.queries.tables.operators.matching import Mask
from millrace_jobs.queries.tables.relations import PairFilter
from millrace_jobs.queries.tables.scopes import NotATableQueryError


@dataclass(frozen=True)
class ArrowCondition:
    """A condition on pairs of rows, compiled to Arrow; see ``operators.matching.PairCondition``."""

    program: Program
    columns: tuple[str, ...]

    def __call__(self, pairs: pa.RecordBatch) -> Mask:
        """Return which pairs fulfil the condition."""
        found = evaluate(self.program, pairs)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, pairs.num_rows)
        mask: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
        return mask


def compiled_condition(found: PairFilter, schema: pa.Schema) -> ArrowCondition:
    """Return the condition over hidden columns with the types of this schema, which has those of both sides.

    Raises:
        NotATableQueryError: only Spark can evaluate it.
    """
    compiled = compile_expression(found.sql, schema)
    if compiled is None or compiled.type != pa.bool_():
        raise NotATableQueryError(
            f"its join combines columns of both sides in a way that only Spark can evaluate: {found.text}: compare an "
            "expression over one side with one over the other, and CAST both to the same type"
        )
    return ArrowCondition(compiled.program, found.columns)


def pair_filter(
    parts: Sequence[exp.Expr],
    one_sided: Mapping[Side, Sequence[exp.Expr]],
    side_of: SideOf,
    types: Mapping[str, DataType],
    types_of: TypesOf,
) -> PairFilter:
    """Return the condition of a join that has columns of both sides.

    Args:
        parts: its conjuncts.
        one_sided: the other conjuncts, by the side that they are about.
        side_of: returns the side that all columns of an expression belong to.
        types: types of the columns.
        types_of: asks Spark for types.

    Raises:
        NotATableQueryError: only Spark can evaluate it.
    """
    text = " AND ".join(f"({to_sql(part)})" for part in parts)
    # columns alone first: what Spark computes for a side, it computes for rows without a partner, too
    attempts = [_taken_apart(text, one_sided, side_of, whole=whole) for whole in (False, True)]
    for attempt in attempts:
        operands = [operand for side in attempt.operands.values() for operand in side]
        kinds = types_of(types, [sql for sql, _ in operands])
        fields = [StructField(name, kind) for (_, name), kind in zip(operands, kinds, strict=True)]
        try:
            compiled_condition(attempt, to_arrow_schema(StructType(fields), timezone="UTC"))
        except NotATableQueryError:
            # a time may stand for a type that is not known before the run, which checks again
            if attempt is attempts[-1] and not any(isinstance(kind, TimestampType) for kind in kinds):
                raise
            continue
        return attempt
    return attempts[-1]


def _taken_apart(
    text: str, one_sided: Mapping[Side, Sequence[exp.Expr]], side_of: SideOf, *, whole: bool
) -> PairFilter:
    """Return a condition over hidden columns: the columns of each side, or the largest expressions over one side."""
    names: dict[Side, dict[str, str]] = {"left": {}, "right": {}}
    numbers = iter(range(len(text)))

    def hidden(node: exp.Expr) -> exp.Expr:
        side = side_of(node) if whole or isinstance(node, exp.Column) else None
        if side is None:
            return node
        sql = to_sql(node)
        guards = " AND ".join(f"({to_sql(part)})" for part in one_sided[side])
        if guards and not isinstance(node, exp.Column):  # no error where the side's own conditions exclude a row
            sql = f"CASE WHEN {guards} THEN {sql} END"
        if sql not in names[side]:
            names[side][sql] = f"{HIDDEN}operand{next(numbers)}"
        return exp.column(names[side][sql])

    condition = to_sql(parse_expression(text).transform(hidden))
    if not any(names.values()):  # a condition without columns, which needs to know how many pairs there are
        names["left"]["true"] = f"{HIDDEN}operand{next(numbers)}"
    return PairFilter(text, condition, {side: tuple(each.items()) for side, each in names.items()})
