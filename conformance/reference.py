"""The right outcome of a case, by the reference interpreter of the Dual Streaming Model.

A query's ``model`` is a tree of operators. Each operator is a mapping with one name; its parameters are inputs, columns
and further operators. All of them are here, each with the definitions that it follows. A result has the columns of
``select``, each an expression over the columns of the operator below.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tests.dual_streaming import aggregation, emission, joins, table_operators
from tests.dual_streaming.streams import Record, Stream, StreamRecord, keep, stream
from tests.dual_streaming.tables import EvolvingTable

from .cases import Arrival, Case, Change, Outcome, Query, Row

Values = tuple[tuple[str, Any], ...]
"""The columns of a row, hashable, as the interpreter needs values."""

_AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda values: sum(values) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "countDistinct": lambda values: len(set(values)),
    "stddev": lambda values: statistics.stdev(values) if len(values) > 1 else None,
    "median": lambda values: float(statistics.median(values)) if values else None,
}
"""Aggregates of the values of a column that are not NULL."""

_SET_OPERATIONS: dict[str, Callable[[set[Any], set[Any]], set[Any]]] = {
    "union": operator.or_,
    "except": operator.sub,
    "intersect": operator.and_,
}


class Reference:
    """The interpreter with the arrivals of one case."""

    def __init__(self, query: Query, case: Case) -> None:
        self._query = query
        self._case = case

    def outcome(self) -> Outcome:
        """Return the right outcome.

        Raises:
            ValueError: if the outcome depends on how arrivals are cut into rounds, so that the case is none.
        """
        found = self.evaluated(self._query.model)
        self._require_grace()
        if isinstance(found, EvolvingTable):
            return Outcome([dict(each.v) for each in found.latest.values()], self._changes(found))
        return Outcome([dict(each.v) for each in found])

    def _require_grace(self) -> None:
        """Raise ValueError if an arrival is later than the grace, and the query does not say what happens then."""
        newest = -(10**9)
        for each in self._case.arrivals:
            if each.at < newest - self._query.grace and "windows" not in repr(self._query.model):
                raise ValueError(f"{self._case.id}: later than the grace of {self._query.grace} s: {each}")
            newest = max(newest, each.at)

    def _changes(self, table: EvolvingTable) -> list[Change]:
        """Return the changelog without updates that change nothing, by the key of the query's result."""
        changes: list[Change] = []
        before: dict[Any, Row] = {}
        for time in table.times:
            rows = [dict(each.v) for each in table.at(time).values()]
            now = {tuple((column, row[column]) for column in self._query.key): row for row in rows}
            if len(now) < len(rows):
                raise ValueError(f"{self._case.id}: {self._query.key} does not identify the rows of {rows}")
            for key in sorted({*before, *now}, key=repr):
                if before.get(key) != now.get(key):
                    changes.append((int(time), dict(key), now.get(key)))
            before = now
        return changes

    def evaluated(self, model: Mapping[str, Any]) -> Stream | EvolvingTable:
        """Return the stream or the table that an operator makes."""
        ((name, parameters),) = model.items()
        made: Stream | EvolvingTable = getattr(self, f"_{name}")(**parameters)
        return made

    def _input(self, name: str) -> Stream | EvolvingTable:
        """Definitions 53 to 58: facts, and tables by their updates in the order of arrival."""
        arrivals = [each for each in self._case.arrivals if each.to == name]
        if self._query.inputs[name] == "table":
            return EvolvingTable(_updates(arrivals))
        return stream(Record(each.at, each.k, _columns(each)) for each in arrivals)

    def _filter(self, of: Mapping[str, Any], where: str) -> Stream | EvolvingTable:
        """Definitions 63 and 72."""
        found = self.evaluated(of)
        if isinstance(found, EvolvingTable):
            return table_operators.keep(found, lambda record: bool(_value(where, record.v)))
        return keep(found, lambda record: bool(_value(where, record.v)))

    def _select(self, of: Mapping[str, Any], columns: Mapping[str, str]) -> Stream | EvolvingTable:
        """Definitions 62 and 71."""
        found = self.evaluated(of)

        def selected(values: Values) -> Values:
            return tuple((name, _value(expression, values)) for name, expression in columns.items())

        if isinstance(found, EvolvingTable):
            return table_operators.map_values(found, lambda record: selected(record.v))
        return tuple(each._replace(v=selected(each.v)) for each in found)

    def _union(self, of: Sequence[Mapping[str, Any]]) -> Stream:
        """All records of streams."""
        return stream(each.record for model in of for each in self._stream(model))

    def _rows(self, of: Any) -> EvolvingTable:
        """Return the records of a stream as rows that stay, each from its own time on."""
        return EvolvingTable(Record(each.t, each.o, each.v) for each in self._stream(of))

    def _unionAll(self, left: Any, right: Any) -> EvolvingTable:  # noqa: N802 - named as in the files
        """All rows of two tables, also those that are equal."""
        return table_operators.union_all(self._table(left), self._table(right))

    def _setOperation(self, of: str, left: Any, right: Any) -> EvolvingTable:  # noqa: N802
        """``of`` the sets of rows of two tables, in each version: their union, difference or intersection."""
        return table_operators.set_operation(self._table(left), self._table(right), _SET_OPERATIONS[of])

    def _shown(self, of: Any, strategy: str, within: int, until: int) -> Stream:
        """Section 5.3.2: the results of a join of streams that are emitted when event time is ``until``."""
        return emission.shown(
            self._stream(of),
            lambda result: None in (_value("l_k", result.v), _value("r_k", result.v)),
            within,
            emission.Strategy(strategy),
            event_time=until,
            delay=self._query.grace,
        )

    def _joinStreams(  # noqa: N802
        self, left: Any, right: Any, type: str, keys: Sequence[str], within: int, shift: int = 0, where: str = ""
    ) -> Stream:
        """Definition 67; ``shift`` is added to the times of the left stream, for ranges that are not symmetric."""
        shifted = tuple(each._replace(t=each.t + shift) for each in self._stream(left))
        band = joins.Band(_key(keys[0]), _key(keys[1]), within, _condition(where))
        return _merged(joins.of_streams(shifted, self._stream(right), band, joins.JoinType(type)))

    def _withPartner(self, left: Any, right: Any, keys: Sequence[str], within: int) -> Stream:  # noqa: N802
        """Definition 67, with each record of the left stream once if it has a partner: a semi join."""
        band, partners = joins.Band(_key(keys[0]), _key(keys[1]), within, _condition("")), self._stream(right)
        return tuple(
            each for each in self._stream(left) if joins.of_streams((each,), partners, band, joins.JoinType.INNER)
        )

    def _joinTable(  # noqa: N802
        self, stream: Any, table: Any, type: str, keys: Sequence[str], where: str = ""
    ) -> Stream:
        """Definitions 68 and 69; the key of the table is the second of ``keys``."""
        records, found, key = self._stream(stream), self._table(table), _key(keys[0])
        return _merged(joins.of_stream_and_table(records, found, key, joins.JoinType(type), _condition(where)))

    def _joinTables(  # noqa: N802
        self, left: Any, right: Any, type: str, keys: Sequence[str], where: str = ""
    ) -> EvolvingTable:
        """Definition 74."""
        tables, attributes = (self._table(left), self._table(right)), (_key(keys[0]), _key(keys[1]))
        found = joins.of_tables(*tables, attributes, joins.JoinType(type), _condition(where))
        return table_operators.map_values(found, lambda record: _both(record.v))

    def _greatest(self, of: Any, by: str, rows: int) -> EvolvingTable:
        """The rows of each version of a table with the greatest values of a column; the smaller key is first of two."""

        def order(record: Record) -> tuple[bool, Any, str]:
            value = dict(record.v)[by]
            return value is None, 0 if value is None else -value, repr(record.k)

        return table_operators.first(self._table(of), order, rows)

    def _group(self, of: Any, by: Sequence[str], aggregates: Mapping[str, str]) -> EvolvingTable:
        """Definitions 64 and 73."""
        found = self.evaluated(of)

        def key(record: Record | StreamRecord) -> Values:
            return tuple((name, dict(record.v)[name]) for name in by)

        def result(records: Sequence[Record | StreamRecord]) -> Values:
            return (*key(records[0]), *_aggregated([dict(each.v) for each in records], aggregates))

        if isinstance(found, EvolvingTable):
            return table_operators.aggregate(found, key, result)
        return aggregation.aggregate(found, lambda record: {key(record)}, result)

    def _windows(
        self, of: Any, by: Sequence[str], aggregates: Mapping[str, str], size: int, advance: int = 0
    ) -> Stream:
        """Definition 64 with windows (example 16), each once, final: later records count until the grace is over."""
        group = aggregation.hopping(size, advance or size, lambda record: {_part(record.v, by)})

        def ends(record: StreamRecord) -> set[tuple[Values, float]]:
            return {(key, start + size) for key, start in cast(set[tuple[Values, float]], group(record))}

        in_time = self._in_time(self._stream(of), ends)
        results = []
        for key, end in sorted(in_time, key=repr):
            values = _aggregated([dict(each.v) for each in in_time[(key, end)]], aggregates)
            results.append(Record(end, None, (*key, ("since", int(end - size)), *values)))
        return stream(results)

    def _sessions(self, of: Any, by: Sequence[str], aggregates: Mapping[str, str], gap: int) -> Stream:
        """Sessions, each once, final: records of a group with at most ``gap`` from one to the next.

        All records must be in time for a session of their own, since engines differ in what a late record may extend.
        """
        records = self._stream(of)
        in_time = self._in_time(records, lambda record: {(_part(record.v, by), record.t + gap)})
        if sum(map(len, in_time.values())) < len(records):
            raise ValueError(f"{self._case.id}: a record is later than the grace for a session of its own")
        function = _session_values(by, aggregates)
        table = aggregation.sessions(records, lambda record: {_part(record.v, by)}, gap, function)
        return stream(Record(each.t, None, each.v) for each in table.latest.values())

    def _in_time(
        self, records: Stream, groups: Callable[[StreamRecord], set[tuple[Values, float]]]
    ) -> dict[tuple[Values, float], list[StreamRecord]]:
        """Return the records of each group and end of window whose grace was not over when they arrived."""
        found: dict[tuple[Values, float], list[StreamRecord]] = {}
        known = {_columns(each) for each in self._case.arrivals}
        for record in records:
            for key, end in groups(record):
                if record.v not in known:  # a result of an operator, whose inputs came within the grace
                    found.setdefault((key, end), []).append(record)
                    continue
                verdicts = {end > time - self._query.grace for time in self._times_before(record)}
                if len(verdicts) > 1:
                    raise ValueError(f"{self._case.id}: whether {record} is late depends on the cut into rounds")
                if verdicts == {True}:
                    found.setdefault((key, end), []).append(record)
        return found

    def _times_before(self, record: StreamRecord) -> list[float]:
        """Return the newest time of all arrivals before a record, and of those in earlier rounds."""
        first = next(
            number
            for number, each in enumerate(self._case.arrivals)
            if each.at == record.t and _columns(each) == record.v
        )
        count = 0
        for arrivals in self._case.rounds:
            if count + len(arrivals) > first:
                break
            count += len(arrivals)
        before = [self._case.arrivals[:first], self._case.arrivals[:count]]
        return [max((each.at for each in arrivals), default=-(10**9)) for arrivals in before]

    def _stream(self, model: Mapping[str, Any]) -> Stream:
        found = self.evaluated(model)
        assert not isinstance(found, EvolvingTable), f"{self._query.name}: a table where a stream is meant: {model}"
        return found

    def _table(self, model: Mapping[str, Any]) -> EvolvingTable:
        found = self.evaluated(model)
        assert isinstance(found, EvolvingTable), f"{self._query.name}: a stream where a table is meant: {model}"
        return found


def right_outcome(query: Query, case: Case) -> Outcome:
    """Return the right outcome of a case."""
    return Reference(query, case).outcome()


def is_case(query: Query, case: Case) -> bool:
    """Return whether a case has one right outcome, however its arrivals are cut into rounds."""
    try:
        right_outcome(query, case)
    except ValueError:
        return False
    return True


def without(case: Case, arrival: Arrival) -> Case:
    """Return a case without one arrival."""
    rounds = tuple(tuple(each for each in arrivals if each is not arrival) for arrivals in case.rounds)
    return replace(case, rounds=tuple(each for each in rounds if each))


def _updates(arrivals: Sequence[Arrival]) -> Iterator[Record]:
    """Yield the updates of a table.

    A tombstone without an event time of its own removes the row that arrived before it, also one that is newer.
    """
    newest: dict[str, int] = {}
    for each in arrivals:
        at = each.at if each.exact else max(each.at, newest.get(each.k, each.at))
        yield Record(at, each.k, None if each.delete else _columns(each))
        if each.delete:
            newest.pop(each.k, None)
        else:
            newest[each.k] = at


def _columns(arrival: Arrival) -> Values:
    return (("k", arrival.k), ("f", arrival.f), ("v", arrival.v), ("at", arrival.at))


def _part(values: Values, names: Sequence[str]) -> Values:
    return tuple((name, dict(values)[name]) for name in names)


def _key(column: str) -> joins.JoinKey:
    return lambda record: dict(record.v)[column]


def _both(value: tuple[Values | None, Values | None]) -> Values:
    """Return the columns of both sides of a join as ``l_`` and ``r_``; those of an absent side are None."""
    return tuple(
        (f"{side}_{name}", None if values is None else dict(values).get(name))
        for side, values in zip("lr", value, strict=True)
        for name in _names(value)
    )


def _names(value: tuple[Values | None, Values | None]) -> list[str]:
    return sorted({name for values in value if values is not None for name, _ in values})


def _merged(joined: Stream) -> Stream:
    return tuple(each._replace(v=_both(each.v)) for each in joined)


def _condition(where: str) -> joins.Condition:
    """Return a condition on the columns of both sides of a join; without a text, one that always holds."""
    return (lambda left, right: bool(_value(where, _both((left, right))))) if where else joins.always


def _aggregated(rows: Sequence[Row], aggregates: Mapping[str, str]) -> Values:
    """Return aggregates such as ``{n: count, total: sum v}``, which leave out NULL, as in SQL.

    ``nth 2 k v`` is the k of the row with the second largest v; of rows with the same v, the larger k comes first.
    """
    found: list[tuple[str, Any]] = []
    for name, text in aggregates.items():
        function, *words = text.split()
        if function == "nth":
            number, value, by = words
            largest = sorted(((row[by], row[value]) for row in rows), reverse=True)[int(number) - 1 :]
            found.append((name, largest[0][1] if largest else None))
        elif not words:
            found.append((name, len(rows)))
        else:
            given = [row[words[0]] for row in rows if row[words[0]] is not None]
            found.append((name, len(given) if function == "count" else _AGGREGATES[function](given)))
    return tuple(found)


def _session_values(by: Sequence[str], aggregates: Mapping[str, str]) -> Callable[[Stream], Values]:
    def function(records: Stream) -> Values:
        values = _aggregated([dict(each.v) for each in records], aggregates)
        return (*_part(records[0].v, by), ("since", int(records[0].t)), ("until", int(records[-1].t)), *values)

    return function


def _value(expression: str, values: Values) -> Any:
    """Return the value of a column, a text such as ``'a'``, or one of the forms below.

    ``coalesce a b``; ``a absent``; ``a > 10`` and ``a > b``; ``a floor 10``, the multiple of 10 that a has reached.
    """
    row = dict(values)
    words = expression.split()
    if len(words) == 1:
        return expression.strip("'") if expression.startswith("'") else _column(row, words[0])
    if words[0] == "coalesce":
        return next((value for name in words[1:] if (value := _column(row, name)) is not None), None)
    if words[1:] == ["absent"]:
        return _column(row, words[0]) is None
    column, sign, operand = words
    value, other = _column(row, column), int(operand) if operand.isdigit() else _column(row, operand)
    if value is None or other is None:
        return None
    return {">": operator.gt, "<": operator.lt, "=": operator.eq, "floor": _floor}[sign](value, other)


def _floor(value: int, step: int) -> int:
    return value - value % step


def _column(row: Row, name: str) -> Any:
    """Return the value of a column; one of a side of a join that is absent is None."""
    return row.get(name) if name.startswith(("l_", "r_")) else row[name]
