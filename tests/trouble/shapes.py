"""The shapes of queries, and the drawing of a whole case from its name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace_api.model.deployment import Algorithm

from .arrivals import KAFKA
from .cases import PLACES, PLANS, ROUTED, Case, Query
from .doubts import EMITS, Doubtful, draw_doubtful
from .expressions import Both
from .joins import draw_join, draw_table_join, joined_relation, union_of
from .queries import (
    Distinct,
    Groups,
    Nested,
    PythonGroups,
    Question,
    Relation,
    StaticJoin,
    draw_groups,
    draw_projection,
)
from .sources import draw_sources
from .tables import Table
from .values import KINDS
from .windows import Hop, draw_hop
from .writers import FORMATS


@dataclass(frozen=True)
class Drawing:
    """What a shape draws its query from."""

    chance: random.Random
    tables: tuple[Table, ...]
    keys: list[str]
    step: int
    odd: bool
    """Whether lengths have odd spellings."""

    @property
    def relation(self) -> Relation:
        """The first source."""
        table = self.tables[0]
        return Relation(table.name, table.name, table.columns, self.chance.choice(["", "", f"{table.name}."]))

    def groups(self, relation: Relation, window: str | None) -> Query:
        return draw_groups(self.chance, relation, self.keys, self.step, window=window, odd=self.odd)


def _projection(of: Drawing) -> Query:
    return draw_projection(of.chance, of.relation)


def _chain(of: Drawing) -> Query:
    return replace(draw_projection(of.chance, of.relation), where=None)


def _groups(of: Drawing) -> Query:
    return of.groups(of.relation, None)


def _windows(of: Drawing) -> Query:
    return of.groups(of.relation, "hop")


def _session(of: Drawing) -> Query:
    return of.groups(of.relation, "session")


def _union(of: Drawing) -> Query:
    in_order = not any(table.late for table in of.tables)
    window = "session" if in_order and of.chance.random() < 0.2 else "hop"
    return of.groups(union_of(of.chance, of.tables), window)


def _union_projection(of: Drawing) -> Query:
    return draw_projection(of.chance, union_of(of.chance, of.tables))


def _distinct(of: Drawing) -> Query:
    columns = tuple(of.chance.sample(of.keys, of.chance.randrange(1, len(of.keys) + 1)))
    return Distinct(of.relation, columns if of.chance.random() < 0.5 else (of.relation.time.name, *columns))


def _nested(of: Drawing) -> Query:
    inner = draw_groups(of.chance, of.relation, of.keys, of.step, window="hop", odd=of.odd, having=False)
    assert isinstance(inner.window, Hop)
    outer = draw_hop(of.chance, of.chance.choice([of.step, inner.window.size, 6 * inner.window.size]), odd=of.odd)
    keys = tuple(key.name for key in inner.keys if of.chance.random() < 0.6)
    return Nested(inner, outer, of.chance.choice(["w", "window_time(w)", "g.w"]), keys)


def _join(of: Drawing) -> Query:
    return draw_join(of.chance, of.tables if len(of.tables) > 1 else of.tables * 2, of.keys, of.step)


def _join_windows(of: Drawing) -> Query:
    join = draw_join(of.chance, of.tables, of.keys, of.step, ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"))
    relation = joined_relation(join, of.tables)
    keys = [column.name for column in relation.columns[1:3]]
    return draw_groups(of.chance, relation, keys, of.step, window="hop", odd=of.odd)


def _static(of: Drawing) -> Query:
    stream, table = of.tables
    items = [f"a.{column.name}" for column in stream.columns] + [f"b.{column.name}" for column in table.columns]
    chosen = tuple(Both(f"c{index}", item, item) for index, item in enumerate(items))
    return StaticJoin(of.chance.choice(["JOIN", "LEFT JOIN"]), stream.name, table.name, of.keys[0], chosen)


def _table(of: Drawing) -> Query:
    return draw_table_join(of.chance, *of.tables)


def _doubtful(of: Drawing) -> Query:
    return draw_doubtful(of.chance)


def _python(of: Drawing) -> Query:
    table = of.tables[0]
    numbers = [c.name for c in table.columns if c.kind.is_integer]
    window = draw_hop(of.chance, of.step, odd=False) if of.chance.random() < 0.7 else None
    if window is not None:
        window = Hop(window.size, window.slide, 0, window.texts)
    keys = tuple(key for key in of.keys if of.chance.random() < 0.7)
    return PythonGroups(table.name, table.time.name, of.chance.choice(numbers), keys, window)


@dataclass(frozen=True)
class Shape:
    """How often a shape is drawn, its number of sources, and the strategies of emission that it has."""

    draw: Callable[[Drawing], Query]
    weight: int
    sources: tuple[int, ...] = (1,)
    emits: tuple[str, ...] = ("OnUpdate",)


_ANY = ("OnUpdate", "OnWindowClose", "OnWindowClose")
_CLOSE = ("OnWindowClose",)
SHAPES = {
    "projection": Shape(_projection, 2),
    "groups": Shape(_groups, 3),
    "windows": Shape(_windows, 6, emits=(*_ANY, "OnWindowEnd")),
    "session": Shape(_session, 2, emits=_CLOSE),
    "nested": Shape(_nested, 2, emits=_CLOSE),
    "union": Shape(_union, 2, (2, 2, 3), _CLOSE),
    "union projection": Shape(_union_projection, 1, (2, 3)),
    "distinct": Shape(_distinct, 1),
    "join": Shape(_join, 5, (2,), _ANY),
    "several joined": Shape(_join, 1, (3, 3, 4), _ANY),
    "join windows": Shape(_join_windows, 2, (2,), _CLOSE),
    "self join": Shape(_join, 1, (1,), _ANY),
    "static": Shape(_static, 1),
    "chain": Shape(_chain, 3),
    "table join": Shape(_table, 2, (2,), _ANY),
    "doubtful": Shape(_doubtful, 3, emits=EMITS),
    "python": Shape(_python, 2, emits=_ANY),
}


def draw_case(name: str, without: frozenset[str] = frozenset()) -> Case:
    """Return the case that the name stands for, without some of the axes."""
    chance = random.Random(name)

    def choose(options: list[str]) -> str:
        return chance.choice([option for option in options if option not in without])

    chosen = choose([name for name, shape in SHAPES.items() for _ in range(shape.weight)])
    shape = SHAPES[chosen]
    emit = chance.choice(shape.emits)
    sources = draw_sources(chance, chosen, chance.choice(shape.sources), choose, without)
    tables = sources.tables
    query = shape.draw(
        Drawing(chance, tables, [key for key, _ in sources.keys], sources.step, "odd_lengths" not in without)
    )
    also = ""
    if chosen == "windows" and "outputs" not in without and chance.random() < 0.25:
        also = chance.choice(sorted({*shape.emits} - {emit}))
        query = _of_sums(query)
    replicas = 0
    on_kafka = sources.arrivals[0].kind == KAFKA
    if chosen in ROUTED and on_kafka and "dedicated" not in without and chance.random() < 0.3:
        replicas = chance.choice([1, 2])
        # which messages are in a batch is left to the replicas, so that nothing may depend on it
        tables = (replace(tables[0], delay=10_000 * sources.step),)
    # a record of the second run may be late for a window, unless records come in the order of their files, and the
    # upserts of a table that come for the second run may be older than what the first one has emitted
    may_resume = (sources.is_in_order and chosen != "table join") or chosen in _WITHOUT_WINDOWS
    return Case(
        name,
        chosen,
        tables,
        sources.spellings,
        query,
        emit,
        _draw_sink(chance, choose, chosen, emit, query.question(), tables),
        sources.arrivals,
        query.settings if isinstance(query, Doubtful) else {},
        place=chance.choice(PLACES) if "places" not in without and chance.random() < 0.15 else "",
        workers=chance.choice([1, 1, 2, 3]),
        other_plan=chance.choice(OTHER_PLANS) if chance.random() < 0.2 else "",
        resumed=may_resume and sources.may_grow and not replicas and chance.random() < 0.2,
        chained=chosen == "chain",
        mixed_case=chosen not in ("python", "static") and chance.random() < 0.1,
        also=also,
        replicas=replicas,
    )


OTHER_PLANS = tuple(algorithm.value for algorithm in Algorithm if algorithm.value not in PLANS)


def _draw_sink(
    chance: random.Random,
    choose: Callable[[list[str]], str],
    shape: str,
    emit: str,
    question: Question,
    tables: tuple[Table, ...],
) -> str:
    """Return the format of the files of results, or the kind of a sink on Kafka."""
    if shape == "doubtful":
        return "parquet"
    sink = choose([*FORMATS, "kafka"])
    has_bytes = any(column.kind is KINDS["binary"] for table in tables for column in table.columns)
    if sink == "csv" and (question.has_window_column or has_bytes):  # which a run refuses, and validate does not
        return "json"
    if sink == "kafka" and question.keys and (shape, emit) in _KEPT and chance.random() < 0.5:
        return "table"
    return sink


def _of_sums(groups: Groups) -> Groups:
    """Return the groups without aggregates that only one output may have."""
    values = tuple(value for value in groups.values if not any(word in value.spark for word in _NOT_OF_SUMS))
    if values == groups.values:
        return groups
    return replace(groups, values=values or (Both("v0", "count(*)", "count(*)"),), having=None)


_NOT_OF_SUMS = ("stddev", "variance", "approx_count_distinct", "bool_and")
_KEPT = (("groups", "OnUpdate"), ("windows", "OnWindowClose"), ("windows", "OnWindowEnd"))
"""Shapes and strategies of emission whose rows stay in a table."""
_WITHOUT_WINDOWS = ("projection", "union projection", "groups", "distinct", "chain", "static")
