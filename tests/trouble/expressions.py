"""Keys, aggregates and conditions over a column, each in the SQL of both engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .tables import Column
from .values import KINDS


@dataclass(frozen=True)
class Both:
    """An expression with its name in the result; ``approximate`` allows the error of an estimate."""

    name: str
    spark: str
    duckdb: str
    approximate: bool = False


def keys_over(column: Column) -> list[tuple[str, str]]:
    """Return a column as a key, and keys that are made of it."""
    name, kind = column.name, column.kind
    found = [(name, name)] * 4 + [(f"{name} IS NULL", f"{name} IS NULL")]
    if kind is KINDS["string"]:
        found += [(f"coalesce({name}, 'none')",) * 2, (f"CASE WHEN {name} = 'a' THEN 'A' ELSE {name} END",) * 2]
        found += [(f"substring({name}, 1, 1)",) * 2]
    elif kind is KINDS["timestamp"]:
        found += [(f"CAST({name} AS DATE)",) * 2]
    elif kind in (KINDS["tinyint"], KINDS["smallint"], KINDS["int"]):
        found += [(f"{name} % 3",) * 2, (f"CAST({name} AS BIGINT) + 1",) * 2, (f"CAST({name} AS DOUBLE)",) * 2]
    elif kind is KINDS["double"]:
        found += [
            (f"CASE WHEN {name} > 0 THEN {name} ELSE -0.0D END", f"CASE WHEN {name} > 0 THEN {name} ELSE -0.0 END")
        ]
    return found


def aggregates_over(column: Column) -> Iterator[tuple[str, str, bool]]:
    """Yield the aggregates over a column, in both engines, and whether they are estimates."""
    name, kind = column.name, column.kind
    yield f"count({name})", f"count({name})", False
    yield f"approx_count_distinct({name})", f"count(DISTINCT {name})", True
    for extreme in ("min", "max"):
        yield f"{extreme}({name})", f"{extreme}({name})", False
    if kind in (KINDS["tinyint"], KINDS["smallint"], KINDS["int"]):
        yield f"sum({name})", f"sum({name})", False
        yield f"avg({name})", f"avg({name})", False
        yield f"stddev({name})", f"stddev({name})", False
        yield (*[f"sum(CAST({name} AS BIGINT) * 2 - 1)"] * 2, False)
    if kind is KINDS["bigint"]:
        yield f"sum(CAST({name} AS DECIMAL(38, 0)))", f"sum({name})", False
    if kind is KINDS["money"]:
        yield f"sum({name})", f"sum({name})", False
        yield f"avg({name})", _decimal_average(name, 2), False
    if kind in (KINDS["double"], KINDS["float"]):
        spark, duckdb = _moderate(name)
        for function in ("sum", "avg"):
            yield f"{function}({spark})", f"{function}({duckdb})", False
        finite = f"CASE WHEN {name} BETWEEN -1000000 AND 1000000 THEN {name} END"
        yield f"variance({finite})", f"variance({finite})", False
    if kind is KINDS["boolean"]:
        yield f"count(*) FILTER (WHERE {name})", f"count(*) FILTER (WHERE {name})", False
        yield f"bool_and({name})", f"bool_and({name})", False


def conditions_over(column: Column) -> list[tuple[str, str]]:
    """Return conditions on a column."""
    name, kind = column.name, column.kind
    found = [(f"{name} IS NOT NULL",) * 2]
    if kind.is_integer:
        found += [(f"{name} > 0",) * 2, (f"{name} % 2 = 0 OR {name} IS NULL",) * 2, (f"{name} IN (0, 1, -1, 7)",) * 2]
    elif kind.is_floating:
        found += [(f"{name} > 0",) * 2, (f"{name} = {name}",) * 2, (f"NOT ({name} < 1.5)",) * 2, (f"{name} <> 0",) * 2]
    elif kind is KINDS["string"]:
        found += [(f"{name} > 'a'",) * 2, (f"{name} <> 'oslo'",) * 2, (f"{name} IN ('a', 'A', 'é', NULL)",) * 2]
    elif kind is KINDS["boolean"]:
        found += [(name, name), (f"NOT {name}",) * 2]
    elif kind is KINDS["date"]:
        found += [(f"{name} >= DATE '1970-01-01'",) * 2]
    elif kind is KINDS["timestamp"]:
        found += [(f"{name} >= TIMESTAMP '1970-01-01 00:00:00'",) * 2]
    elif kind.is_decimal:
        found += [(f"{name} > 0",) * 2]
    return found


def draw_key(chance: random.Random, name: str, column: Column) -> Both:
    return Both(name, *chance.choice(keys_over(column)))


def draw_aggregate(chance: random.Random, name: str, columns: list[Column]) -> Both:
    """Return an aggregate over one of the columns, perhaps only over the records that meet a condition."""
    if not columns or chance.random() < 0.1:
        return Both(name, "count(*)", "count(*)")
    spark, duckdb, approximate = chance.choice(list(aggregates_over(chance.choice(columns))))
    if chance.random() < 0.15 and "HUGEINT" not in duckdb and "FILTER" not in spark:
        condition = chance.choice(conditions_over(chance.choice(columns)))
        spark, duckdb = f"{spark} FILTER (WHERE {condition[0]})", f"{duckdb} FILTER (WHERE {condition[1]})"
    return Both(name, spark, duckdb, approximate)


def draw_condition(chance: random.Random, columns: list[Column]) -> tuple[str, str]:
    """Return a condition on one or two of the columns."""
    one = chance.choice(conditions_over(chance.choice(columns)))
    if chance.random() < 0.7:
        return one
    other, joined = chance.choice(conditions_over(chance.choice(columns))), chance.choice(["AND", "OR"])
    return f"({one[0]}) {joined} ({other[0]})", f"({one[1]}) {joined} ({other[1]})"


def _moderate(name: str) -> tuple[str, str]:
    """Return a column without the numbers so large that the sum would depend on the order, but with NaN and infinity."""
    small = f"{name} BETWEEN -1000000 AND 1000000"
    spark = f"CASE WHEN {small} OR {name} IN (double('NaN'), double('Infinity')) THEN {name} END"
    return spark, f"CASE WHEN {small} OR {name} IN ('nan'::DOUBLE, 'infinity'::DOUBLE) THEN {name} END"


def _decimal_average(name: str, scale: int) -> str:
    """Return Spark's average of a DECIMAL in DuckDB: four digits more, rounded half away from zero."""
    units = f"(sum({name}) * {10**scale})::HUGEINT * 10000"
    rounded = f"((2 * abs({units}) + count({name})) // (2 * count({name})))"
    signed = f"({rounded} * sign({units}))"
    return f"({signed})::DECIMAL(28, 0) * 1e-{scale + 4}::DECIMAL({scale + 4}, {scale + 4})"
