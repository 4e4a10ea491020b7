"""Questions about several relations: UNION ALL, joins of streams within a range of time, groups over either."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .expressions import Both, conditions_over
from .lateness import MARK, on_time
from .queries import Question, Relation, without_one
from .tables import DELETED, Column, Table
from .windows import length_text

KINDS_OF_JOIN = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")


def union_of(chance: random.Random, tables: tuple[Table, ...]) -> Relation:
    """Return the records of several sources as one relation."""
    columns = tables[0].columns
    names = ", ".join(column.name for column in columns)
    spark, duckdb = (
        f"({' UNION ALL '.join(f'SELECT {shown} FROM {table.name}' for table in tables)}) AS u"
        for shown in (names, f"{names}, {MARK}")
    )
    return Relation(spark, duckdb, columns, chance.choice(["", "u."]))


@dataclass(frozen=True)
class Step:
    """A join with another table by keys and a range of time: its ``ts`` is from ``low`` before ``a.ts`` to ``high`` after."""

    kind: str
    table: str
    alias: str
    keys: tuple[str, ...]
    low: int
    high: int
    bounds: tuple[str, ...]
    """The bounds of the range in Spark."""
    extra: tuple[str, str] | None = None

    def spark(self) -> str:
        return self._text(self.kind, self.table, self.bounds, self.extra and self.extra[0])

    def duckdb(self) -> str:
        at, other = "epoch_us(a.ts)", f"epoch_us({self.alias}.ts)"
        span = (f"{other} >= {at} - {self.low}", f"{other} <= {at} + {self.high}")
        kind = self.kind.replace("LEFT SEMI", "SEMI")
        return self._text(kind, on_time(self.table), span, self.extra and self.extra[1])

    def _text(self, kind: str, table: str, span: tuple[str, ...], extra: str | None) -> str:
        keys = [f"a.{key} = {self.alias}.{key}" for key in self.keys]
        return f"{kind} {table} AS {self.alias} ON {' AND '.join([*keys, *span, *([extra] if extra else [])])}"

    def smaller(self) -> Iterator[Step]:
        if self.extra is not None:
            yield replace(self, extra=None)
        if len(self.keys) > 1:
            yield replace(self, keys=self.keys[:1])


@dataclass(frozen=True)
class Join:
    """A table ``a`` and the joins with others, one after the other."""

    first: str
    steps: tuple[Step, ...]
    items: tuple[Both, ...]

    def question(self) -> Question:
        items = ", ".join(f"{item.spark} AS {item.name}" for item in self.items)
        spark = " ".join([f"SELECT {items} FROM {self.first} AS a", *(step.spark() for step in self.steps)])
        first = on_time(self.first)
        duckdb = " ".join([f"SELECT {items} FROM {first} AS a", *(step.duckdb() for step in self.steps)])
        return Question(spark, duckdb, None)

    def smaller(self) -> Iterator[Join]:
        if len(self.steps) > 1:
            known = tuple(item for item in self.items if not item.spark.startswith(f"{self.steps[-1].alias}."))
            yield replace(self, steps=self.steps[:-1], items=known)
        for index, step in enumerate(self.steps):
            for smaller in step.smaller():
                yield replace(self, steps=(*self.steps[:index], smaller, *self.steps[index + 1 :]))
        for items in without_one(self.items):
            if items:
                yield replace(self, items=items)


@dataclass(frozen=True)
class TableJoin:
    """A stream with a table: each record with the row of its key that is valid at the record's time."""

    kind: str
    stream: str
    table: str
    key: str
    items: tuple[Both, ...]
    deletes: bool = False
    """Whether the table has a column with the records that are deletes."""

    def question(self) -> Question:
        on = f"a.{self.key} = b.{self.key}"
        items = ", ".join(f"{item.spark} AS {item.name}" for item in self.items)
        spark = f"SELECT {items} FROM {self.stream} AS a {self.kind} {self.table} AS b ON {on}"
        items = ", ".join(f"{item.duckdb} AS {item.name}" for item in self.items)
        asof = f"ASOF {self.kind} {self.table} AS b ON {on} AND a.ts >= b.ts"
        exists = f" WHERE NOT b.{DELETED}" if self.deletes and self.kind == "JOIN" else ""
        return Question(spark, f"SELECT {items} FROM {on_time(self.stream)} AS a {asof}{exists}", None)

    def smaller(self) -> Iterator[TableJoin]:
        for items in without_one(self.items):
            if items:
                yield replace(self, items=items)


def draw_table_join(chance: random.Random, stream: Table, table: Table) -> TableJoin:
    """Return the join of a stream with a table."""
    deletes = any(column.name == DELETED for column in table.columns)
    items = [(f"a.{column.name}",) * 2 for column in stream.columns]
    for name in [f"b.{column.name}" for column in table.columns if column.name != DELETED]:
        items.append((name, f"CASE WHEN NOT b.{DELETED} THEN {name} END" if deletes else name))
    shown = tuple(Both(f"c{index}", *item) for index, item in enumerate(items))
    return TableJoin(chance.choice(["JOIN", "LEFT JOIN"]), stream.name, table.name, table.key, shown, deletes)


def draw_join(
    chance: random.Random,
    tables: tuple[Table, ...],
    key_names: list[str],
    step: int,
    kinds: tuple[str, ...] = KINDS_OF_JOIN,
) -> Join:
    """Return a join of two to four sources, of which two may be the same."""
    steps = []
    for alias, table in zip("bcd", tables[1:], strict=False):
        kind = chance.choice(kinds if alias == "b" else ("JOIN", "LEFT JOIN"))
        low, high = (chance.choice([0, step, 5 * step, 30 * step]) for _ in range(2))
        keys = tuple(key_names[: chance.choice([1, 1, 2])])
        extra = _extra(chance, tables[0], alias, key_names) if chance.random() < 0.25 else None
        steps.append(Step(kind, table.name, alias, keys, low, high, _bounds(chance, alias, low, high), extra))
    shown = [("a", tables[0])]
    shown += [(s.alias, table) for s, table in zip(steps, tables[1:], strict=True) if "SEMI" not in s.kind]
    items = [f"{alias}.{column.name}" for alias, table in shown for column in table.columns]
    return Join(tables[0].name, tuple(steps), tuple(Both(f"c{i}", item, item) for i, item in enumerate(items)))


def joined_relation(join: Join, tables: tuple[Table, ...]) -> Relation:
    """Return a join as a relation, with the event time of the side that it keeps first, as ``ts``."""
    side = "b" if join.steps[0].kind == "RIGHT JOIN" else "a"
    kinds = {f"{alias}.{c.name}": c.kind for alias, table in zip("abcd", tables, strict=False) for c in table.columns}
    items = [item for item in join.items if item.spark != f"{side}.ts"]
    join = replace(join, items=(Both("ts", f"{side}.ts", f"{side}.ts"), *items))
    columns = tuple(Column(item.name, kinds[item.spark]) for item in join.items)
    question = join.question()
    duckdb = f"(SELECT *, 0 AS {MARK} FROM ({question.duckdb})) AS j"  # windows wait for the joins before them
    return Relation(f"({question.spark}) AS j", duckdb, columns)


def _extra(chance: random.Random, table: Table, alias: str, key_names: list[str]) -> tuple[str, str]:
    """Return one more condition, on a column of one of the sides."""
    column = chance.choice([column for column in table.columns[1:] if column.name not in key_names])
    extra = chance.choice(conditions_over(replace(column, name=f"{chance.choice(['a', alias])}.{column.name}")))
    return f"({extra[0]})", f"({extra[1]})"


def _bounds(chance: random.Random, alias: str, low: int, high: int) -> tuple[str, ...]:
    """Return the range in one of its spellings."""
    before, after = _interval(chance, low), _interval(chance, high)
    earliest = f"a.ts - {before}" if low else "a.ts"
    latest = f"a.ts + {after}" if high else "a.ts"
    match chance.randrange(3):
        case 0:
            return f"{alias}.ts >= {earliest}", f"{alias}.ts <= {latest}"
        case 1:
            return f"a.ts <= {alias}.ts + {before}" if low else f"a.ts <= {alias}.ts", f"{alias}.ts <= {latest}"
        case _:
            return (f"{alias}.ts BETWEEN {earliest} AND {latest}",)


def _interval(chance: random.Random, length: int) -> str:
    if length % 1_000_000 == 0 and chance.random() < 0.5:
        return f"INTERVAL {length // 1_000_000} SECONDS"
    return f"INTERVAL '{length_text(length, chance)}'" if length else "INTERVAL 0 SECONDS"
