"""Operators on tables (definitions 71 to 73), and the set operations of relational algebra, which the paper leaves out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .streams import Key, Record
from .tables import EvolvingTable, Table


def map_values(table: EvolvingTable, function: Callable[[Record], Any]) -> EvolvingTable:
    """Return the table with the function's values; None drops a record (definition 71)."""
    return _by_version(
        [table], lambda version: {key: value for key, each in version.items() if (value := function(each)) is not None}
    )


def keep(table: EvolvingTable, predicate: Callable[[Record], bool]) -> EvolvingTable:
    """Return the records for which a predicate holds (``filter``, definition 72)."""
    return map_values(table, lambda record: record.v if predicate(record) else None)


def aggregate(
    table: EvolvingTable, group: Callable[[Record], Hashable], function: Callable[[list[Record]], Any]
) -> EvolvingTable:
    """Return the aggregates of the groups of each version (definition 73)."""

    def of_version(version: Table) -> dict[Key, Any]:
        groups: dict[Key, list[Record]] = {}
        for record in version.values():
            groups.setdefault(group(record), []).append(record)
        return {key: function(members) for key, members in groups.items()}

    return _by_version([table], of_version)


def first(table: EvolvingTable, order: Callable[[Record], Any], rows: int) -> EvolvingTable:
    """Return the first rows of each version, in an order."""
    return _by_version([table], lambda version: {each.k: each.v for each in sorted(version.values(), key=order)[:rows]})


def union_all(left: EvolvingTable, right: EvolvingTable) -> EvolvingTable:
    """Return the rows of two tables, in each version; a key is that of the row, with its side."""

    def of_versions(*versions: Table) -> dict[Key, Any]:
        return {(side, key): each.v for side, version in enumerate(versions) for key, each in version.items()}

    return _by_version((left, right), of_versions)


def set_operation(
    left: EvolvingTable, right: EvolvingTable, operation: Callable[[set[Any], set[Any]], set[Any]]
) -> EvolvingTable:
    """Return what a set operation makes of the values of two tables, in each version; a row's value is its key."""

    def of_versions(*versions: Table) -> dict[Key, Any]:
        values = operation(*({each.v for each in version.values()} for version in versions))
        return {value: value for value in values}

    return _by_version((left, right), of_versions)


def _by_version(tables: Sequence[EvolvingTable], operator: Callable[..., dict[Key, Any]]) -> EvolvingTable:
    """Return the table whose versions are those of others after an operator, with the keys that it changes."""
    result = EvolvingTable()
    before: dict[Key, Any] = {}
    for time in sorted({time for table in tables for time in table.times}):
        now = operator(*(table.at(time) for table in tables))
        for key in sorted({*before, *now}, key=repr):
            if before.get(key) != now.get(key):
                result.update(Record(time, key, now.get(key)))
        before = now
    return result
