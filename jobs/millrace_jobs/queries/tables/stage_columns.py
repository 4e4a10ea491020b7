"""What stages read of their inputs beside the values of rows: the columns of groups, and the keys of joins."""

from __future__ import annotations

from collections.abc import Iterable

from millrace_api.sql.join_conditions import Side
from millrace_jobs.changes import CHANGE, NO_TIME
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.join_side import HIDDEN, MATCH_FROM, MATCH_TO
from millrace_jobs.queries.tables.relations import Grouping, Join


def group_columns(grouping: Grouping) -> list[tuple[str, str]]:
    """Return what a grouping reads of its rows, each as SQL with its name."""
    closing = grouping.closing
    closes = [] if closing is None else [(f"{closing.sql} + {closing.lag}L", CLOSING)]
    return [*grouping.keys, *closes, *((part.sql, part.name) for part in grouping.parts)]


def keyed_columns(join: Join, side: Side) -> list[tuple[str, str]]:
    """Return what a join reads of one side's rows beside their values, each as SQL with its name."""
    columns = list(zip(join.keys[side], key_names(join, side), strict=True))
    if join.match is not None:
        start, end = join.match.periods[side]
        if join.preserved(side):  # a row without a time is in the result, without a partner
            start, end = (f"coalesce({bound}, {NO_TIME}L)" for bound in (start, end))
        columns += [(start, MATCH_FROM), (end, MATCH_TO)]
    return [*columns, *join.operands(side)]


def key_names(join: Join, side: Side) -> tuple[str, ...]:
    """Return the names of the columns with the keys of a join."""
    return tuple(f"{HIDDEN}key{number}" for number in range(len(join.keys[side])))


def required_columns(join: Join, side: Side, columns: Iterable[str]) -> list[str]:
    """Return the columns in which a row that can be in the result of a join has a value."""
    if join.preserved(side):
        return []
    compared = {name for _, name in join.operands(side)}
    return [name for name in columns if name.startswith(HIDDEN) and name not in {*compared, *CHANGE.names}]


def not_null(columns: Iterable[str]) -> str:
    """Return the condition that columns have values."""
    return " AND ".join(f"{name} IS NOT NULL" for name in columns)  # dropna() would drop NaN, too
