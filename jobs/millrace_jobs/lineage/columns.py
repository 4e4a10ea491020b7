"""The columns of sources that each result column is computed from, as far as the SQL shows it without Spark.

What decides which records count, such as WHERE, is left out. A query whose columns cannot be followed has none at all,
which readers take for unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import StreamingSql
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.schema_ddl import Column
from millrace_jobs.lineage.datasets import Dataset

_WINDOW = "window"


def derived_columns(
    spec: Spec, columns: Mapping[str, Sequence[Column]], datasets: Mapping[str, Dataset]
) -> dict[str, list[tuple[Dataset, str]]]:
    """Return the columns of datasets that each result column comes from; empty if they are not known.

    Args:
        spec: the spec of the query.
        columns: the columns of each source.
        datasets: the dataset of each source that has just one.
    """
    if spec.query.sql is None:
        return {}
    names = tuple((name, tuple(each.name for each in listed)) for name, listed in columns.items())
    found = _followed(spec.query.sql, names)
    return {
        result: known
        for result, places in found.items()
        if (known := [(datasets[source], column) for source, column in places if source in datasets])
    }


@lru_cache(maxsize=8)
def _followed(sql: str, columns: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return source and column of all that each result column comes from."""
    from sqlglot.lineage import lineage

    schema = {name: dict.fromkeys(listed, "STRING") for name, listed in columns}
    known = {name: {each.lower(): each for each in listed} for name, listed in columns}
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        query = _plain_columns(parsed_query(sql).copy(), {each for listed in known.values() for each in listed})
        for result, node in lineage(None, query, schema, dialect=StreamingSql, trim_selects=False).items():
            ends = [each for each in node.walk() if not each.downstream and isinstance(each.source, exp.Table)]
            places = [(each.source.name.lower(), each.name.rpartition(".")[2].strip("`").lower()) for each in ends]
            found[result] = [(name, known[name][part]) for name, part in places if part in known.get(name, {})]
        return {result: list(dict.fromkeys(places)) for result, places in found.items() if places}
    except (SqlglotError, MillraceError, ValueError, KeyError, AttributeError, RecursionError):
        return {}


def _plain_columns(query: exp.Expr, known: set[str]) -> exp.Expr:
    """Replace what only Spark takes for a column: a window by its event time, and a field of a struct by the struct."""
    for select in list(query.find_all(exp.Select)):
        time = _event_time(select)
        for column in list(select.find_all(exp.Column)):
            first = column.parts[0].name.lower()
            if first == _WINDOW and time is not None and column.find_ancestor(exp.Select) is select:
                _replace(column, time.copy())
            elif len(column.parts) > 1 and first in known and first not in _tables(select):
                _replace(column, exp.column(column.parts[0].copy()))
    return query


def _replace(column: exp.Column, other: exp.Expr) -> None:
    """Replace a column; a result keeps the name that it has from it."""
    column.replace(exp.alias_(other, column.name) if isinstance(column.parent, exp.Select) else other)


def _event_time(select: exp.Select) -> exp.Expr | None:
    """Return the column that a SELECT makes windows of; None if it makes none."""
    group = select.args.get("group")
    for call in group.find_all(exp.Anonymous, exp.Func) if group is not None else ():
        name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
        if name.lower() in (_WINDOW, "session_window"):
            time: exp.Column | None = call.find(exp.Column)
            return time
    return None


def _tables(select: exp.Select) -> set[str]:
    """Return the names by which a SELECT refers to its tables."""
    return {each.alias_or_name.lower() for each in select.find_all(exp.Table, exp.Subquery)}
