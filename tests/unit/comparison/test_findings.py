"""What a comparison says of differences: in which rows, in which columns, and by how much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from millrace_jobs.comparison.digest import digest
from millrace_jobs.comparison.findings import FindingKind, OutputComparison, compare_output
from millrace_jobs.comparison.rows import FinalRows

TYPES = {"since": "TIMESTAMP", "city": "STRING", "total": "DOUBLE", "parts": "ARRAY<STRUCT<N:BIGINT>>"}
SCHEMA = pa.schema(
    [
        ("since", pa.timestamp("us", tz="UTC")),
        ("city", pa.string()),
        ("total", pa.float64()),
        ("parts", pa.list_(pa.struct([("n", pa.int64())]))),
    ]
)
START = datetime(2024, 3, 1, tzinfo=UTC)
ROWS = [
    {"since": START + timedelta(minutes=minute), "city": city, "total": minute + 0.5, "parts": [{"n": minute}]}
    for minute in range(4)
    for city in ("a", "b", None)
]


def compared(old: list[dict[str, Any]], new: list[dict[str, Any]], **settings: Any) -> OutputComparison:
    limits: dict[str, Any] = {"ignored": (), "tolerance": 1e-9, "examples": 4} | settings
    pair = [(FinalRows(pa.Table.from_pylist(rows, SCHEMA), ("since", "city")), TYPES) for rows in (old, new)]
    return compare_output("spec", *pair, **limits)


def changed(**values: Any) -> list[dict[str, Any]]:
    return [row | {name: value(row[name]) for name, value in values.items()} for row in ROWS]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ([row for row in ROWS if row["city"]], "4 rows; all of them have NULL in city, and none of the other"),
        ([], "12 rows; the other one has no rows at all"),
        (ROWS[1:], "only the old version has 1 row"),
        (changed(since=lambda since: since + timedelta(seconds=1)), "since is 1 s later in the new version"),
        (changed(since=lambda since: since - timedelta(hours=1)), "since is 3600 s earlier in the new version"),
        (
            changed(total=lambda total: total + 0.25),
            "total: 12 rows of 12 in both versions differ: the new one is 0.25 more",
        ),
        (changed(total=lambda total: total * (total - 2)), "the new one is 2.25 less to 1.75 more"),
        (changed(total=lambda total: total + 99_987_100), "the new one is 99987100 more"),
        (changed(total=lambda total: None), "all are NULL in the new version"),
        (changed(parts=lambda parts: [*parts, None]), "parts: 12 rows of 12 in both versions differ"),
    ],
)
def test_a_difference_is_named(new: list[dict[str, Any]], said: str) -> None:
    found = compared(ROWS, new)
    assert not found.is_equal
    assert said in "\n".join(each.text for each in found.findings)
    assert found.old_digest != found.new_digest


def test_rows_in_another_order_are_equal_and_have_one_digest() -> None:
    found = compared(ROWS, ROWS[::-1])
    assert found.is_equal
    assert not found.findings
    assert found.old_digest == found.new_digest
    assert digest(pa.Table.from_pylist(ROWS, SCHEMA).select(SCHEMA.names[::-1])) == found.old_digest


def test_floats_within_the_tolerance_are_equal_and_counted() -> None:
    new = changed(total=lambda total: total * (1 + 1e-12))
    found = compared(ROWS, new)
    assert found.is_equal
    assert found.tolerated == len(ROWS)
    assert not compared(ROWS, new, tolerance=1e-15).is_equal


def test_a_few_rows_of_each_kind_are_shown_in_both_versions() -> None:
    new = [*changed(total=lambda total: total + 1)[1:], ROWS[0] | {"city": "z"}]
    found = compared(ROWS, new)
    assert [(each.old is None, each.new is None) for each in found.examples] == [
        (False, False),
        (False, False),
        (False, True),
        (True, False),
    ]
    first = found.examples[0]
    assert first.old is not None
    assert first.new is not None
    assert first.old["since"] == "2024-03-01T00:00:00.000000Z"
    assert first.new["total"] - first.old["total"] == 1
    assert not compared(ROWS, new, examples=0).examples


def test_a_column_more_is_named_and_allowed_and_one_less_is_not() -> None:
    rows = FinalRows(pa.Table.from_pylist(ROWS, SCHEMA), ("since", "city"))
    fewer = FinalRows(rows.rows.drop_columns(["total"]), rows.key)
    types = {name: kind for name, kind in TYPES.items() if name != "total"}
    limits: dict[str, Any] = {"ignored": (), "tolerance": 0, "examples": 0}
    added = compare_output("spec", (fewer, types), (rows, TYPES), **limits)
    assert [each.kind for each in added.findings] == [FindingKind.COLUMN_ADDED]
    assert added.is_equal
    gone = compare_output("spec", (rows, TYPES), (fewer, types), **limits)
    assert [each.kind for each in gone.findings] == [FindingKind.COLUMN_GONE]
    assert not gone.is_equal
    assert compare_output("spec", (rows, TYPES), (fewer, types), **limits | {"ignored": ["total"]}).is_equal
    other = compare_output("spec", (rows, TYPES), (rows, TYPES | {"total": "FLOAT"}), **limits)
    assert [each.text for each in other.findings] == ["total: its type is FLOAT, and was DOUBLE"]
