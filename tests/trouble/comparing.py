"""Comparison of the rows that came with those that are right."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any

from .answers import Row
from .queries import Question


def newest(rows: list[Row], batch: int, keys: int) -> tuple[list[Row], list[Row]]:
    """Return the row of each key with the highest batch, and keys with two rows in one batch."""
    of_key: defaultdict[Row, list[tuple[int, Row]]] = defaultdict(list)
    for row in rows:
        plain = row[:batch] + row[batch + 1 :]
        of_key[normal(plain[:keys])].append((row[batch], plain))
    twice = [key for key, found in of_key.items() if len({number for number, _ in found}) != len(found)]
    return [max(found, key=lambda each: each[0])[1] for found in of_key.values()], twice


def normal(row: Sequence[Any]) -> Row:
    """Return values so that equal ones are equal in Python: NaN, zeros, DECIMALs of any scale."""
    return tuple(map(_normal, row))


def _normal(value: Any) -> Any:
    if isinstance(value, bool):
        return f"{value}"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, dict):
        return normal(list(value.values()))
    return normal(value) if isinstance(value, tuple) else value


def compare(actual: list[Row], answers: Sequence[list[Row]], question: Question) -> tuple[str, str] | None:
    """Return what is in none of the answers, and examples; None if nothing is."""
    if question.keys is None:
        ours, *theirs = (Counter(map(normal, rows)) for rows in (actual, *answers))
        missing = list((reduce(and_, theirs) - ours).elements())
        return _described(missing, list((ours - reduce(or_, theirs)).elements()), [])
    by_key, *theirs_by_key = (_grouped(rows, question.keys) for rows in (actual, *answers))
    missing = [key for key in theirs_by_key[0] if key not in by_key and all(key in each for each in theirs_by_key)]
    extra, different = [], []
    for key, rows in by_key.items():
        right = [each[key] for each in theirs_by_key if key in each]
        if not right:
            extra += [key] * len(rows)
        elif not any(_same_rows(rows[0], row, question) for row, *_ in right):
            different.append((key, rows, right[0] if all(each == right[0] for each in right) else right))
        elif len(rows) > max(map(len, right)):
            extra.append(key)
    return _described(missing, extra, different)


def _grouped(rows: list[Row], keys: int) -> dict[Row, list[Row]]:
    found: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        found[normal(row[:keys])].append(normal(row[keys:]))
    return found


def _same_rows(one: Row, other: Row, question: Question) -> bool:
    assert question.keys is not None
    return len(one) == len(other) and all(
        _same(a, b, approximate=index in question.approximate)
        for index, (a, b) in enumerate(zip(one, other, strict=True), question.keys)
    )


def _same(one: Any, other: Any, *, approximate: bool) -> bool:
    if approximate and isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= max(1, 0.2 * other)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)


def _described(missing: list[Any], extra: list[Any], different: list[Any]) -> tuple[str, str] | None:
    parts = [(name, rows) for name, rows in (("missing", missing), ("extra", extra), ("different", different)) if rows]
    if not parts:
        return None
    details = "\n".join(f"{len(rows)} {name}:\n" + "\n".join(f"  {row!r}" for row in rows[:5]) for name, rows in parts)
    return "rows " + " and ".join(name for name, _ in parts), details
