"""Questions about several relations: UNION ALL, joins of streams within a range of time, groups over either."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .expressions import Both, conditions_over
from .queries import Question, Relation, without_one
from .tables import Column, Table
from .windows import length_text

KINDS_OF_JOIN = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN")


def union_of(chance: random.Random, tables: tuple[Table, ...]) -> Relation:
    """Return the records of several sources as one relation."""
    columns = tables[0].columns
    names = ", ".join(column.name for column in columns)
    parts = [f"SELECT {names} FROM {table.name}" for table in tables]
    both = f"({' UNION ALL '.join(parts)})"
    return Relation(f"{both} AS u", f"{both} AS u", columns, chance.choice(["", "u."]))


@dataclass(frozen=True)
class Join:
    """A join of two streams by keys and a range of time: ``b.ts`` is from ``low`` before ``a.ts`` to ``high`` after it."""

    kind: str
    tables: tuple[str, str]
    keys: tuple[tuple[str, str], ...]
    low: int
    high: int
    bounds: tuple[str, str]
    """The two bounds of the range in Spark."""
    items: tuple[Both, ...]
    extra: tuple[str, str] | None = None

    def question(self) -> Question:
        return Question(*self._texts([", ".join(f"{item.spark} AS {item.name}" for item in self.items)] * 2), None)

    def relation(self) -> Relation:
        """Return the join as a relation with the event time of the left side first."""
        raise NotImplementedError

    def _texts(self, items: list[str]) -> tuple[str, str]:
        left, right = self.tables
        names = f"{left} AS a {self.kind} {right} AS b"
        keys = [f"a.{one} = b.{other}" for one, other in self.keys]
        at, low, high = "epoch_us(a.ts)", self.low, self.high
        texts = []
        for engine in (0, 1):
            span = (
                self.bounds if engine == 0 else (f"epoch_us(b.ts) >= {at} - {low}", f"epoch_us(b.ts) <= {at} + {high}")
            )
            on = [*keys, *span, *([self.extra[engine]] if self.extra else [])]
            joined = names if engine == 0 else names.replace("LEFT SEMI", "SEMI")
            texts.append(f"SELECT {items[engine]} FROM {joined} ON {' AND '.join(on)}")
        return texts[0], texts[1]

    def smaller(self) -> Iterator[Join]:
        if self.extra is not None:
            yield replace(self, extra=None)
        if len(self.keys) > 1:
            yield replace(self, keys=self.keys[:1])
        for items in without_one(self.items):
            if items:
                yield replace(self, items=items)


def draw_join(
    chance: random.Random, tables: tuple[Table, Table], key_names: list[str], step: int, *, kind: str | None = None
) -> Join:
    """Return a join of two sources, which may be one and the same."""
    kind = kind or chance.choice(KINDS_OF_JOIN)
    keys = tuple((name, name) for name in key_names[: chance.choice([1, 1, 2])])
    low, high = (chance.choice([0, step, 5 * step, 30 * step]) for _ in range(2))
    sides = "a" if "SEMI" in kind else "ab"
    items = []
    for side, table in zip(sides, tables, strict=False):
        items += [f"{side}.{column.name}" for column in table.columns]
    extra = None
    if chance.random() < 0.25:
        column = chance.choice([column for column in tables[0].columns[1:] if column.name not in key_names])
        side = chance.choice("ab")
        qualified = replace(column, name=f"{side}.{column.name}")
        extra = chance.choice(conditions_over(qualified))
        extra = (f"({extra[0]})", f"({extra[1]})")
    return Join(
        kind,
        (tables[0].name, tables[1].name),
        keys,
        low,
        high,
        _bounds(chance, low, high),
        tuple(Both(f"c{index}", item, item) for index, item in enumerate(items)),
        extra,
    )


def _bounds(chance: random.Random, low: int, high: int) -> tuple[str, str]:
    """Return the range in one of its spellings."""
    before, after = _interval(chance, low), _interval(chance, high)
    earliest = f"a.ts - {before}" if low else "a.ts"
    latest = f"a.ts + {after}" if high else "a.ts"
    match chance.randrange(3):
        case 0:
            return f"b.ts >= {earliest}", f"b.ts <= {latest}"
        case 1:
            return f"a.ts <= b.ts + {before}" if low else "a.ts <= b.ts", f"b.ts <= {latest}"
        case _:
            return f"b.ts BETWEEN {earliest} AND {latest}", "true" if chance.random() < 0.5 else "1 = 1"


def _interval(chance: random.Random, length: int) -> str:
    if length % 1_000_000 == 0 and chance.random() < 0.5:
        return f"INTERVAL {length // 1_000_000} SECONDS"
    return f"INTERVAL '{length_text(length, chance)}'" if length else "INTERVAL 0 SECONDS"


def joined_columns(tables: tuple[Table, Table]) -> list[Column]:
    """Return the columns of both sides."""
    return [
        replace(c, name=f"{side}.{c.name}") for side, table in zip("ab", tables, strict=True) for c in table.columns
    ]
