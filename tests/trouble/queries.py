"""Questions about one relation: projections, groups with windows or sessions, groups of windows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .expressions import Both, draw_aggregate, draw_condition, draw_key
from .lateness import MARK, on_time
from .tables import Column
from .windows import Hop, Session, draw_hop, draw_session


@dataclass(frozen=True)
class Relation:
    """What a query reads: SQL for FROM in both engines, and columns, the event time first."""

    spark: str
    duckdb: str
    columns: tuple[Column, ...]
    prefix: str = ""
    """What may stand before a column's name in Spark, with its dot."""

    @property
    def time(self) -> Column:
        return self.columns[0]


@dataclass(frozen=True)
class Question:
    """A query in both engines; ``keys`` is the number of leading columns that identify a row, None for a bag of rows."""

    spark: str
    duckdb: str
    keys: int | None
    approximate: frozenset[int] = frozenset()
    python: Mapping[str, Any] | None = None
    """The field ``query.python`` of a query that is not SQL."""
    has_window_column: bool = False
    """Whether a result is a window, which CSV cannot hold."""

    @property
    def spec(self) -> dict[str, Any]:
        """The field ``query``."""
        return {"sql": self.spark} if self.python is None else {"python": dict(self.python)}


@dataclass(frozen=True)
class Projection:
    """``SELECT columns FROM relation WHERE condition``, each record by itself."""

    relation: Relation
    items: tuple[Both, ...]
    where: tuple[str, str] | None

    def question(self) -> Question:
        texts = [
            f"SELECT {', '.join(items)} FROM {relation}" + (f" WHERE {self.where[engine]}" if self.where else "")
            for engine, relation, items in (
                (0, self.relation.spark, [f"{item.spark} AS {item.name}" for item in self.items]),
                (1, self.relation.duckdb, [f"{item.duckdb} AS {item.name}" for item in self.items]),
            )
        ]
        return Question(texts[0], texts[1], None)

    def smaller(self) -> Iterator[Projection]:
        if self.where is not None:
            yield replace(self, where=None)
        for items in without_one(self.items):
            if items:
                yield replace(self, items=items)


@dataclass(frozen=True)
class Groups:
    """``SELECT window, keys, values FROM relation WHERE ... GROUP BY window, keys HAVING ...``."""

    relation: Relation
    window: Hop | Session | None
    keys: tuple[Both, ...]
    values: tuple[Both, ...]
    where: tuple[str, str] | None = None
    having: tuple[str, str] | None = None
    style: int = 0
    """How the window is written: its start and end, the fields of an alias, or those of the call."""

    def question(self) -> Question:
        items = [*self._window_items(), *self.keys, *self.values]
        first = int(self.style == 1)  # the column w
        keys = first + len(items) - len(self.values)
        approximate = frozenset(index for index, item in enumerate(items, first) if item.approximate)
        return Question(self._spark(items), self._duckdb(items), keys, approximate, has_window_column=self.style == 1)

    def _window_items(self) -> list[Both]:
        name = "session_window" if isinstance(self.window, Session) else "window"
        bounds = [Both("ws", f"{name}.start", "make_timestamp(ws)"), Both("we", f"{name}.end", "make_timestamp(we)")]
        if self.window is None:
            return []
        if self.style == 1:
            return [Both("ws", "w.start", bounds[0].duckdb), Both("we", "w.end", bounds[1].duckdb)]
        if self.style == 2:
            call = self.window.spark(self._time)
            return [Both(b.name, f"{call}.{part}", b.duckdb) for b, part in zip(bounds, ("start", "end"), strict=True)]
        return bounds

    @property
    def _time(self) -> str:
        return self.relation.prefix + self.relation.time.name

    def _spark(self, items: list[Both]) -> str:
        shown = [f"{item.spark} AS {item.name}" for item in items]
        groups = [key.spark for key in self.keys]
        if self.window is not None:
            call = self.window.spark(self._time)
            if self.style == 1:
                shown, groups = [f"{call} AS w", *shown], ["w", *groups]
            else:
                groups = [call, *groups]
        text = f"SELECT {', '.join(shown)} FROM {self.relation.spark}"
        text += f" WHERE {self.where[0]}" if self.where else ""
        text += f" GROUP BY {', '.join(groups)}" if groups else ""
        return text + (f" HAVING {self.having[0]}" if self.having else "")

    def _duckdb(self, items: list[Both]) -> str:
        relation = self.relation.duckdb
        if self.where:
            relation = f"(SELECT * FROM {relation} WHERE {self.where[1]})"
        shown = [f"{item.duckdb} AS {item.name}" for item in items]
        groups = [key.duckdb for key in self.keys]
        if self.window is not None:
            time = self.relation.time.name
            if isinstance(self.window, Session):
                relation = self.window.duckdb(relation, time, tuple(groups))
            else:
                relation = self.window.duckdb(relation, time)
            groups = ["ws", "we", *groups]
            if self.style == 1:
                shown = ["{'start': make_timestamp(ws), 'end': make_timestamp(we)} AS w", *shown]
        text = f"SELECT {', '.join(shown)} FROM {relation} AS t"
        text += f" GROUP BY {', '.join(groups)}" if groups else ""
        return text + (f" HAVING {self.having[1]}" if self.having else "")

    def smaller(self) -> Iterator[Groups]:
        for name in ("having", "where"):
            if getattr(self, name) is not None:
                yield replace(self, **{name: None})
        for values in without_one(self.values):
            if values:
                yield replace(self, values=values)
        for keys in without_one(self.keys):
            if keys or self.window is not None:
                yield replace(self, keys=keys)
        if self.style:
            yield replace(self, style=0)


@dataclass(frozen=True)
class Nested:
    """Groups of the windows of other groups: ``inner`` has windows, keys and values, and ``outer`` windows of these."""

    inner: Groups
    outer: Hop
    on: str
    """What the outer window is on: the inner window, or its time."""
    keys: tuple[str, ...]

    def question(self) -> Question:
        inner = replace(self.inner, style=0)
        call = inner.window.spark(inner.relation.prefix + inner.relation.time.name)
        shown = [f"{item.spark} AS {item.name}" for item in (*inner.keys, *inner.values)]
        lower = f"SELECT {call} AS w, {', '.join(shown)} FROM {inner.relation.spark}"
        lower += f" WHERE {inner.where[0]}" if inner.where else ""
        lower += f" GROUP BY {', '.join([call, *(key.spark for key in inner.keys)])}"
        totals = ["count(*) AS records", *(f"count({item.name}) AS n{item.name}" for item in inner.values)]
        window = self.outer.spark(self.on)
        spark = (
            f"SELECT {', '.join(['window.start AS ws, window.end AS we', *self.keys, *totals])} FROM ({lower}) AS g "
        )
        spark += f"GROUP BY {', '.join([window, *self.keys])}"
        answer = inner.question().duckdb
        rest = ", ".join(item.name for item in (*inner.keys, *inner.values))
        times = f"(SELECT make_timestamp(epoch_us(we) - 1) AS ts, {rest}, 0 AS {MARK} FROM ({answer}))"
        bounds = "make_timestamp(ws) AS ws, make_timestamp(we) AS we"
        duckdb = f"SELECT {', '.join([bounds, *self.keys, *totals])} FROM {self.outer.duckdb(times, 'ts')} AS t "
        duckdb += f"GROUP BY {', '.join(['ws', 'we', *self.keys])}"
        return Question(spark, duckdb, 2 + len(self.keys))

    def smaller(self) -> Iterator[Nested]:
        for inner in self.inner.smaller():
            yield replace(self, inner=inner, keys=tuple(k for k in self.keys if k in [key.name for key in inner.keys]))
        for index in range(len(self.keys)):
            yield replace(self, keys=self.keys[:index] + self.keys[index + 1 :])


@dataclass(frozen=True)
class StaticJoin:
    """A stream with a static table, by its first column."""

    kind: str
    stream: str
    table: str
    key: str
    items: tuple[Both, ...]

    def question(self) -> Question:
        shown = ", ".join(f"{item.spark} AS {item.name}" for item in self.items)
        text = f"SELECT {shown} FROM {self.stream} AS a {self.kind} {self.table} AS b ON a.{self.key} = b.{self.key}"
        return Question(text, text, None)

    def smaller(self) -> Iterator[StaticJoin]:
        for items in without_one(self.items):
            if items:
                yield replace(self, items=items)


@dataclass(frozen=True)
class Distinct:
    """``SELECT DISTINCT columns FROM relation``."""

    relation: Relation
    columns: tuple[str, ...]

    def question(self) -> Question:
        columns = ", ".join(self.columns)
        records = self.relation.duckdb
        if self.relation.time.name in self.columns:
            records = on_time(records)
        texts = [f"SELECT DISTINCT {columns} FROM {name}" for name in (self.relation.spark, records)]
        return Question(texts[0], texts[1], len(self.columns))

    def smaller(self) -> Iterator[Distinct]:
        for index in range(len(self.columns)):
            if len(self.columns) > 1:
                yield replace(self, columns=self.columns[:index] + self.columns[index + 1 :])


@dataclass(frozen=True)
class PythonGroups:
    """The aggregator ``Extremes`` over an integer column, by key and perhaps by window."""

    source: str
    time: str
    column: str
    keys: tuple[str, ...]
    window: Hop | None

    def question(self) -> Question:
        spec: dict[str, Any] = {"aggregator": "trouble.aggregators:Extremes", "options": {"column": self.column}}
        if self.keys:
            spec["groupBy"] = list(self.keys)
        groups, relation, shown = [*self.keys], self.source, [*self.keys]
        if self.window is not None:
            spec["window"] = {"column": self.time, "size": f"{self.window.size} us"}
            spec["window"] |= {"slide": f"{self.window.slide} us"} if self.window.slide != self.window.size else {}
            relation, groups = self.window.duckdb(self.source, self.time), ["ws", "we", *groups]
            shown = ["make_timestamp(ws) AS window_start", "make_timestamp(we) AS window_end", *shown]
        values = (
            f"count(*) AS records, count({self.column}) AS known, min({self.column}) AS low, max({self.column}) AS high"
        )
        duckdb = f"SELECT {', '.join([*shown, values])} FROM {relation} AS t"
        duckdb += f" GROUP BY {', '.join(groups)}" if groups else ""
        return Question("", duckdb, len(shown), python=spec)

    def smaller(self) -> Iterator[PythonGroups]:
        for index in range(len(self.keys)):
            yield replace(self, keys=self.keys[:index] + self.keys[index + 1 :])


def without_one(items: tuple[Both, ...]) -> Iterator[tuple[Both, ...]]:
    """Yield the items without each half, and without each one."""
    half = len(items) // 2
    if half > 1:
        yield items[:half]
        yield items[half:]
    for index in range(len(items)):
        yield items[:index] + items[index + 1 :]


def draw_projection(chance: random.Random, relation: Relation) -> Projection:
    """Return a projection with all columns, so that each value is compared."""
    columns = list(relation.columns)
    items = tuple(Both(f"c{index}", column.name, column.name) for index, column in enumerate(columns))
    return Projection(relation, items, draw_condition(chance, columns) if chance.random() < 0.4 else None)


def draw_groups(
    chance: random.Random,
    relation: Relation,
    key_names: list[str],
    step: int,
    *,
    window: str | None,
    odd: bool,
    having: bool = True,
) -> Groups:
    """Return a query with groups; ``window`` is hop, session or None, its length in an odd spelling if ``odd``."""
    columns = {column.name: column for column in relation.columns}
    chosen = [name for name in key_names if chance.random() < 0.7]
    keys = tuple(draw_key(chance, f"k{index}", columns[name]) for index, name in enumerate(chosen))
    over = [column for column in relation.columns[1:] if column.name not in key_names] or list(relation.columns[1:])
    values = tuple(draw_aggregate(chance, f"v{index}", over) for index in range(chance.randrange(1, 9)))
    where = draw_condition(chance, list(relation.columns)) if chance.random() < 0.3 else None
    not_null = (f"{values[0].spark} IS NOT NULL", f"{values[0].duckdb} IS NOT NULL")
    some_having = chance.choice([("count(*) >= 2",) * 2, not_null])
    made: Hop | Session | None = None
    if window == "hop":
        made = draw_hop(chance, step, odd=odd)
    elif window == "session":
        conditions = [draw_condition(chance, over) for _ in range(2)]
        made = draw_session(chance, step, conditions, odd=odd)
    style = chance.choice([0, 0, 1, 2]) if made else 0
    with_having = having and chance.random() < 0.2
    return Groups(relation, made, keys, values, where, some_having if with_having else None, style)
