"""Construction of what both sides of a join read (``shared_reads``): its changes once, with the columns of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.sql.join_conditions import Side
from millrace_jobs.changes import CHANGE
from millrace_jobs.queries.tables.operators.carrying import CARRIED, READ, Carrying
from millrace_jobs.queries.tables.operators.join_side import HIDDEN
from millrace_jobs.queries.tables.relations import Join
from millrace_jobs.queries.tables.scopes import columns_in
from millrace_jobs.queries.tables.shared_reads import Branch, CommonInput, kept_only, narrowed
from millrace_jobs.queries.tables.stage_columns import (
    group_columns,
    key_names,
    keyed_columns,
    not_null,
    required_columns,
)
from millrace_jobs.queries.tables.stages import Fork, ForkInput, values_schema

if TYPE_CHECKING:
    from millrace_jobs.queries.tables.build import RelationBuilder

_SIDES: tuple[Side, Side] = ("left", "right")
_KEEPS: Mapping[Side, str] = {"left": f"{HIDDEN}left", "right": f"{HIDDEN}right"}
"""BOOLEAN columns of the rows: whether a side has the row."""


def fork_of(
    builder: RelationBuilder,
    join: Join,
    shared: CommonInput,
    needed: Mapping[Side, frozenset[str]],
    kept: Mapping[Side, frozenset[str]],
    *,
    versions: bool,
) -> Fork:
    """Return the rows that both sides of a join read, with the columns that each side has beside those of the other.

    Args:
        builder: builds what both sides read.
        join: the join.
        shared: what both sides read.
        needed: the columns that each side needs.
        kept: those of them that its rows keep.
        versions: whether all versions are needed, or the latest one.
    """
    rows, own_columns = _shared_rows(builder, shared, needed, versions=versions)
    columns: dict[Side, dict[str, str]] = {}
    for side in _SIDES:
        made = keyed_columns(join, side)
        own = [name for name in rows.columns if name in kept[side] & own_columns[side]]
        columns[side] = {name: f"{side}_{name}" for name in (*(name for _, name in made), *own)}
        copies = (f"{name} AS {columns[side][name]}" for name in own)
        rows = rows.selectExpr(*rows.columns, *kept_only(_KEEPS[side], made, f"{side}_"), *copies)
        required = [columns[side][name] for name in required_columns(join, side, columns[side])]
        if required:
            rows = narrowed(rows, _KEEPS[side], not_null(required))
    for name in key_names(join, "left"):
        pair = [columns[side][name] for side in _SIDES]
        one, other = (rows.schema[each].dataType for each in pair)
        if one != other:
            common = builder.common_type(one, other)
            rows = rows.withColumns({each: F.col(each).cast(common) for each in pair})
    changes = {name: name for name in CHANGE.names}
    return Fork(rows, tuple(ForkInput(_KEEPS[side], {**columns[side], **changes}) for side in _SIDES))


def _shared_rows(
    builder: RelationBuilder, shared: CommonInput, needed: Mapping[Side, frozenset[str]], *, versions: bool
) -> tuple[DataFrame, dict[Side, frozenset[str]]]:
    """Return rows with those of both sides and the columns that say which side has a row; and each side's columns."""
    if shared.through is not None:
        return _carried_rows(builder, shared, needed, versions=versions)
    branches = {side: Branch(shared.above[side], needed[side]) for side in _SIDES}
    read = branches["left"].needed | branches["right"].needed
    rows = builder.rows(shared.relation, read, versions=versions)
    columns = {side: branches[side].columns(rows.columns) for side in _SIDES}
    rows = rows.selectExpr(*rows.columns, *(f"true AS {_KEEPS[side]}" for side in _SIDES))
    for side in _SIDES:
        rows = branches[side].over(rows, _KEEPS[side])
    return rows, columns


def _carried_rows(
    builder: RelationBuilder, shared: CommonInput, needed: Mapping[Side, frozenset[str]], *, versions: bool
) -> tuple[DataFrame, dict[Side, frozenset[str]]]:
    """Return the rows of a grouping, and beside them those of its input that the other side reads."""
    grouping, own = shared.through, shared.grouped
    assert grouping is not None
    other: Side = "right" if own == "left" else "left"
    items = group_columns(grouping)
    grouped = Branch(shared.below, columns_in(sql for sql, _ in items))
    carried = Branch(shared.above[other], needed[other])
    rows = builder.rows(shared.relation, grouped.needed | carried.needed, versions=versions)
    beside = carried.columns(rows.columns) & needed[other]
    rows = rows.selectExpr(*rows.columns, *(f"true AS {field.name}" for field in (READ, CARRIED)))
    rows = carried.over(grouped.over(rows, READ.name), CARRIED.name)
    names = [name for name in rows.columns if name in beside]
    marks = (READ.name, CARRIED.name, *CHANGE.names)
    rows = rows.selectExpr(*kept_only(READ.name, items), *names, *marks).where(f"{READ.name} OR {CARRIED.name}")
    values = values_schema(rows)
    groups = builder.groups(grouping, values, versions=versions)
    operator = Carrying(groups, pa.schema([values.field(name) for name in names]))
    rows = builder.stage(operator, [rows], [[name for _, name in grouping.keys]])
    columns = [name for name in rows.columns if name != CARRIED.name]
    sides = (f"NOT {CARRIED.name} AS {_KEEPS[own]}", f"{CARRIED.name} AS {_KEEPS[other]}")
    above = Branch(shared.above[own], needed[own])
    columns_of = {own: above.columns(groups.output.names), other: beside}
    return above.over(rows.selectExpr(*columns, *sides), _KEEPS[own]), columns_of
