"""The sources of a case: their records, how these are written, and how they arrive."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from .arrivals import KAFKA, REPLAY, Arrival, draw_arrivals
from .tables import (
    ERAS,
    KEY,
    STEPS,
    TIMESTAMP,
    Table,
    TableMaker,
    as_recording,
    changing,
    with_deletes,
    with_message_times,
)
from .values import KINDS, Kind
from .writers import FORMATS, Spelling, draw_fitting, draw_messages, draw_spelling

Named = tuple[str, Kind]


@dataclass(frozen=True)
class Sources:
    """The sources of a case, and what their records have in common."""

    tables: tuple[Table, ...]
    spellings: tuple[Spelling, ...]
    arrivals: tuple[Arrival, ...]
    keys: tuple[Named, ...]
    step: int
    """About the distance between event times, in microseconds."""

    @property
    def is_in_order(self) -> bool:
        """Whether no record of a later batch is older than the delay, however the batches are cut."""
        return not any(table.at_once or table.late for table in self.tables if not table.static)

    @property
    def may_grow(self) -> bool:
        """Whether records can come for a second run."""
        return all(arrival.kind != REPLAY for arrival in self.arrivals)


def draw_sources(
    chance: random.Random, shape: str, count: int, choose: Callable[[list[str]], str], without: frozenset[str]
) -> Sources:
    """Return as many sources for a shape of queries, without some of the axes."""
    spelling = draw_spelling(chance, choose(list(FORMATS)))
    step, era = chance.choice(STEPS), ERAS[choose(["today"] * 3 + list(ERAS))]
    kinds = [kind for kind in KINDS if spelling.holds(KINDS[kind]) and kind not in without]
    keys = tuple((f"k{index}", KINDS[chance.choice(kinds)]) for index in range(chance.randrange(1, 4)))
    values = _values(chance, shape, kinds)
    at_once = chance.random() < 0.5
    # a session that has ended takes no record that comes later than the delay: another one begins, by no rule of SQL
    late = not at_once and shape != "session" and "late" not in without and chance.random() < 0.4
    arrivals = draw_arrivals(chance, shape, count, without, at_once=at_once, late=late)
    if all(arrival.kind == KAFKA for arrival in arrivals) and shape not in ("table join", "static"):
        values += [each for each in ((KEY, KINDS["binary"]), (TIMESTAMP, KINDS["timestamp"])) if chance.random() < 0.4]
    maker = TableMaker(chance, era, step, keys, spelling.texts)
    tables = [maker.table(f"t{index}", values, at_once=at_once, late=late) for index in range(count)]
    tables = [_arriving(table, arrival, step) for table, arrival in zip(tables, arrivals, strict=True)]
    spellings = [spelling] if arrivals[0].kind != KAFKA else []
    for table, arrival in list(zip(tables, arrivals, strict=True))[len(spellings) :]:
        spellings.append(draw_fitting(chance, table, draw_messages if arrival.kind == KAFKA else draw_spelling))
    if shape == "table join":
        key, kind = keys[0]
        if arrivals[1].kind == KAFKA and era > 0 and kind is not KINDS["timestamp"] and chance.random() < 0.8:
            tables[1] = with_deletes(tables[1], chance)
            spellings[1] = replace(spellings[1], timestamps="iso", broken=False)
        tables[1] = changing(tables[1], key)
    if shape == "static":
        tables.append(maker.static_table("names"))
        spellings.append(draw_fitting(chance, tables[-1]))
        arrivals = (*arrivals, Arrival())
    return Sources(tuple(tables), tuple(spellings), arrivals, keys, step)


def _values(chance: random.Random, shape: str, kinds: list[str]) -> list[Named]:
    if shape == "doubtful":
        return [("x0", KINDS["int"]), ("s", KINDS["string"])]
    values = [(f"x{index}", KINDS[chance.choice(kinds)]) for index in range(chance.randrange(1, 6))]
    if shape == "python":
        values.append(("x", KINDS[chance.choice(["smallint", "int", "bigint"])]))
    return values


def _arriving(table: Table, arrival: Arrival, step: int) -> Table:
    """Return a table as it can arrive."""
    if arrival.kind == REPLAY:
        return as_recording(table)
    if arrival.most:  # a batch may end between two records of one time, and the later one must not be late
        table = replace(table, delay=max(step, table.delay))
    return with_message_times(table)
