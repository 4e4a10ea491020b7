"""Tables of records: the columns of an input, its records, and the files in which they arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa

from .values import DAY, EARLIEST, KINDS, LATEST, SECOND, Kind, Value, arrow_array, micros

ERAS = {
    "today": micros(2024, 5, 1, 12),
    "summer_time": micros(2024, 3, 31, 1, 30),
    "leap_second": micros(2016, 12, 31, 23, 59, 30),
    "before_1970": micros(1965, 7, 1, 6),
    "around_1970": micros(1969, 12, 31, 23, 59),
    "julian": micros(1582, 10, 4, 12),
    "far": micros(2300, 6, 1),
    "first_day": EARLIEST + 3 * DAY,
    "last_day": LATEST - 3 * DAY,
}
"""Event times around which the records of an input lie."""

Row = tuple[Value, ...]
KEY, TIMESTAMP, DELETED = "_key", "_timestamp", "_deleted"
"""Columns that are not in a message's value: its key, its time, and whether it deletes the row of its key."""


@dataclass(frozen=True)
class Column:
    """A column of an input."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Table:
    """The records of a source, in the files in which they arrive, each of them a batch unless ``at_once``."""

    name: str
    columns: tuple[Column, ...]
    files: tuple[tuple[Row, ...], ...]
    delay: int
    """The delay of the watermark on the first column, in microseconds."""
    at_once: bool = True
    static: bool = False
    """Whether it is a static table, whose first column is its key."""
    key: str = ""
    """The key of a table whose rows change, each from a record on."""
    late: bool = False
    """Whether records may come later than the delay."""

    @property
    def rows(self) -> list[Row]:
        return [row for file in self.files for row in file]

    @property
    def time(self) -> Column:
        """The column with the event time."""
        return self.columns[0]

    @property
    def in_files(self) -> tuple[Column, ...]:
        """The columns of the schema, which come before those that are not in a message's value."""
        return tuple(column for column in self.columns if column.name not in (KEY, TIMESTAMP, DELETED))

    @property
    def schema(self) -> str:
        return ", ".join(f"{column.name} {column.kind.spark}" for column in self.in_files)

    def numbers(self, run: int, runs: int) -> range:
        """Return the numbers of the files that come for one of the runs."""
        middle = len(self.files) // 2 if runs > 1 and not self.static else len(self.files)
        return range(middle) if run == 0 else range(middle, len(self.files))

    def of_kind(self, *names: str) -> list[Column]:
        """Return the columns of these types, without the event time."""
        return [column for column in self.columns[1:] if column.kind in [KINDS[name] for name in names]]

    def arrow(self, rows: Sequence[Row] | None = None) -> pa.Table:
        """Return these records, or all of them."""
        rows = self.rows if rows is None else rows
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        arrays = [arrow_array(list(values), c.kind.arrow) for values, c in zip(columns, self.columns, strict=True)]
        return pa.table(dict(zip([c.name for c in self.columns], arrays, strict=True)))

    def with_files(self, files: Sequence[Sequence[Row]]) -> Table:
        return replace(self, files=tuple(tuple(file) for file in files))


@dataclass
class TableMaker:
    """What the inputs of one case have in common: event times, and the values of their keys."""

    chance: random.Random
    era: int
    step: int
    """About the distance between event times, in microseconds."""
    keys: tuple[tuple[str, Kind], ...]
    texts: tuple[str, ...]
    """The texts that the format can hold."""
    oddity: float = 0.3
    nulls: float = 0.15
    _pools: dict[str, list[Value]] = field(default_factory=dict)

    def table(
        self, name: str, values: Sequence[tuple[str, Kind]], *, at_once: bool, late: bool = False, most: int = 40
    ) -> Table:
        """Return an input with event times ``ts``, the keys, and columns of values."""
        chance = self.chance
        columns = [Column("ts", KINDS["timestamp"]), *(Column(*c) for c in self.keys), *(Column(*c) for c in values)]
        empty = {column.name for column in columns[1:] if chance.random() < 0.04}
        count = chance.choice([0, 1, 2, chance.randrange(3, 12), chance.randrange(3, most), chance.randrange(3, most)])
        times = sorted(self._time() for _ in range(count))
        rows = [
            (time, *(None if c.name in empty else self._value(c.name, c.kind) for c in columns[1:])) for time in times
        ]
        delay = chance.choice([0, self.step, 10 * self.step])
        rows = self._disordered(rows, 10**18 if at_once else delay + 20 * self.step if late else delay // 2)
        if chance.random() < 0.2:
            rows = [(None, *row[1:]) if chance.random() < 0.1 else row for row in rows]
        return Table(
            name, tuple(columns), self._cut(rows, [2, 3, 4, 6] if late else [1, 1, 2, 3]), delay, at_once, late=late
        )

    def static_table(self, name: str) -> Table:
        """Return a static table with rows for some values of the first key, and NULL."""
        key, kind = self.keys[0]
        columns = (Column(key, kind), Column("label", KINDS["string"]), Column("amount", KINDS["int"]))
        pool = {repr(_equal(value)): value for value in [*self._pools.get(key, []), self._drawn(kind, 0.5), None]}
        label = lambda: self._drawn(KINDS["string"], 0.5)  # noqa: E731
        rows = [
            (value, label(), self.chance.choice([None, 1, 2])) for value in pool.values() if self.chance.random() < 0.8
        ]
        return Table(name, columns, (tuple(rows),), 0, static=True)

    def _time(self) -> int:
        chance = self.chance
        whole = chance.random() < 0.3
        distance = chance.randrange(24) * self.step if whole else chance.randrange(24 * self.step)
        if chance.random() < 0.05:
            distance += chance.choice([1, 7, 40]) * 50 * self.step
        return min(max(self.era + distance, EARLIEST), LATEST)

    def _value(self, name: str, kind: Kind) -> Value:
        chance = self.chance
        if chance.random() < self.nulls:
            return None
        if name in dict(self.keys):
            if name not in self._pools:
                self._pools[name] = [self._drawn(kind, 0.6) for _ in range(4)]
            return chance.choice(self._pools[name])
        return self._drawn(kind, self.oddity)

    def _drawn(self, kind: Kind, oddity: float) -> Value:
        value = kind.draw(self.chance, oddity)
        while isinstance(value, str) and value not in self.texts:
            value = kind.draw(self.chance, oddity)
        return value

    def _disordered(self, rows: list[Row], spread: int) -> list[Row]:
        """Return rows in an order in which each is after those that are older by more than this time."""
        return sorted(rows, key=lambda row: row[0] + self.chance.randrange(spread + 1))

    def _cut(self, rows: list[Row], pieces_of: list[int]) -> tuple[tuple[Row, ...], ...]:
        pieces = self.chance.choice(pieces_of)
        cuts = sorted(self.chance.randrange(len(rows) + 1) for _ in range(pieces - 1))
        return tuple(tuple(rows[a:b]) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True))


def as_recording(table: Table) -> Table:
    """Return a table with all records in one file."""
    return table.with_files([table.rows])


def with_message_times(table: Table) -> Table:
    """Return a table whose ``TIMESTAMP`` is a time that a message may have: milliseconds after 1970."""
    names = [column.name for column in table.columns]
    if TIMESTAMP not in names:
        return table
    index = names.index(TIMESTAMP)
    times = lambda row: max((row[index] or 0) // 1000, 1) * 1000  # noqa: E731
    return table.with_files([[(*row[:index], times(row), *row[index + 1 :]) for row in file] for file in table.files])


def with_deletes(table: Table, chance: random.Random) -> Table:
    """Return a table some of whose records delete the row of their key, at times in whole milliseconds."""
    files = []
    for file in table.files:
        deleted = [row[0] is not None and chance.random() < 0.25 for row in file]
        files.append(
            [
                (row[0] // 1000 * 1000 if gone else row[0], *row[1:], gone)
                for row, gone in zip(file, deleted, strict=True)
            ]
        )
    return replace(table.with_files(files), columns=(*table.columns, Column(DELETED, KINDS["boolean"])))


def changing(table: Table, key: str) -> Table:
    """Return a source as a table with this key: no two records set the row of a key at one time, and none is without."""
    names = [column.name for column in table.columns]
    index, seen, files = names.index(key), set(), []
    for file in table.files:
        kept = []
        for row in file:
            place = (repr(_equal(row[index])), row[0])
            if row[0] is not None and row[index] is not None and place not in seen:
                seen.add(place)
                kept.append(row)
        files.append(kept)
    return replace(table.with_files(files), key=key)


def _equal(value: Value) -> Value:
    """Return one value for all that are equal in SQL."""
    return value + 0 if isinstance(value, float | Decimal) else value


STEPS = (SECOND // 1000, SECOND, 60 * SECOND, 3600 * SECOND)
"""Distances between event times, from a millisecond to an hour."""
