"""The end of a bounded input: every result that waits for the watermark comes, whatever holds it back, under each plan.

Expected rows are worked out by hand. Each source has its own file; all of it is one batch, so that nothing is late.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from trouble.running import Outcome, run_once

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

PLANS = ["hash", "native"]
Rows = list[tuple[str, ...]]


def run(folder: Path, plan: str, sources: Mapping[str, tuple[str, str]], sql: str, **changes: Any) -> Outcome:
    """Run a query over csv files: for each source, its schema and its records; the last column is the event time."""
    definitions = {}
    for name, (schema, records) in sources.items():
        (folder / name).mkdir(exist_ok=True)
        columns = [column.split()[0] for column in schema.split(", ")]
        (folder / name / "records.csv").write_text("\n".join([",".join(columns), *records.split()]) + "\n", "utf-8")
        watermark = {"column": columns[-1], "delay": "1h"}
        definitions[name] = {"files": {"path": name, "format": "csv"}, "schema": schema, "watermark": watermark}
    spec = {
        "sources": {
            name: {field: value for field, value in (source | changes.pop(name, {})).items() if value is not None}
            for name, source in definitions.items()
        },
        "query": {"sql": sql},
        "sink": {"files": {"path": str(folder / "out"), "format": "csv"}},
        "emit": "OnWindowClose",
        "partitioner": {"algorithm": plan},
        "parallelism": {"initial": 1, "max": 2},
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    } | changes
    for source in spec["sources"].values():
        source["files"]["path"] = str(folder / source["files"]["path"])
    file = folder / "query.yaml"
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "query"}}
    file.write_text(yaml.safe_dump(document | {"spec": spec}, sort_keys=False), encoding="utf-8")
    return run_once(file)


def results(folder: Path) -> Counter[tuple[str, ...]]:
    """Count the rows of results, without the number of their batch, and with times as short as they can be."""
    found: Counter[tuple[str, ...]] = Counter()
    for file in (folder / "out").glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                row.pop("_batch_id", None)
                found[tuple(re.sub(r"(T00:00)?:00\.000000Z$", "", cell) for cell in row.values())] += 1
    return found


THREE_DAYS = "1,2024-01-01T00:00:00Z 2,2024-01-09T10:00:00Z 3,2024-01-10T10:30:00Z"
EVENTS = {"e": ("v INT, at TIMESTAMP", THREE_DAYS)}


def sums(length: str) -> str:
    return f"SELECT window.start AS since, sum(v) AS v FROM e GROUP BY window(at, {length})"


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        (sums("'1 week'"), [("2023-12-28", "1"), ("2024-01-04", "5")]),
        (
            sums("'1 hour 30 minutes'"),
            [("2024-01-01", "1"), ("2024-01-09T09:00", "2"), ("2024-01-10T10:30", "3")],
        ),
        (sums("'1 DAY'"), [("2024-01-01", "1"), ("2024-01-09", "2"), ("2024-01-10", "3")]),
        (sums("'1 week', '1 week', '3 days'"), [("2023-12-31", "1"), ("2024-01-07", "5")]),
        (
            "SELECT session_window.start AS since, v, count(*) AS n FROM e "
            "GROUP BY session_window(at, CASE WHEN v > 1 THEN '2 days' ELSE '1 hour' END), v",
            [("2024-01-01", "1", "1"), ("2024-01-09T10:00", "2", "1"), ("2024-01-10T10:30", "3", "1")],
        ),
    ],
)
def test_windows_of_any_length_close(tmp_path: Path, plan: str, sql: str, rows: Rows) -> None:
    assert run(tmp_path, plan, EVENTS, sql).how == "finished"
    assert results(tmp_path) == Counter(rows)


@pytest.mark.parametrize("plan", PLANS)
def test_windows_over_windows_close(tmp_path: Path, plan: str) -> None:
    """The hopping windows that start at 23:50, 00:00, 00:40 and 00:50 hold an event; the last one ends at 01:10."""
    inner = "SELECT window(at, '20 minutes', '10 minutes') AS w, count(*) AS n FROM e GROUP BY window(at, '20 minutes', '10 minutes')"
    sql = f"SELECT window(w, '1 hour').start AS since, sum(n) AS n FROM ({inner}) GROUP BY window(w, '1 hour')"
    sources = {"e": ("v INT, at TIMESTAMP", "1,2024-01-01T00:05:00Z 2,2024-01-01T00:55:00Z")}
    assert run(tmp_path, plan, sources, sql).how == "finished"
    assert results(tmp_path) == Counter([("2024-01-01", "3"), ("2024-01-01T01:00", "1")])


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("sources", [("a", "b"), ("b", "a")])
def test_windows_of_a_union_close_whichever_source_went_further(
    tmp_path: Path, plan: str, sources: tuple[str, str]
) -> None:
    union = " UNION ALL ".join(f"SELECT v, at FROM {name}" for name in sources)
    sql = f"SELECT window.start AS since, sum(v) AS v FROM ({union}) GROUP BY window(at, '1 hour')"
    records = {
        "a": ("v INT, at TIMESTAMP", "1,2024-01-01T00:10:00Z"),
        "b": ("v INT, at TIMESTAMP", "2,2024-01-01T00:20:00Z 4,2024-01-01T09:20:00Z"),
    }
    assert run(tmp_path, plan, records, sql).how == "finished"
    assert results(tmp_path) == Counter([("2024-01-01", "3"), ("2024-01-01T09:00", "4")])


L = ("id INT, lt TIMESTAMP", "1,2024-01-01T00:00:00Z 3,2024-01-01T05:00:00Z")
R = ("id INT, rt TIMESTAMP", "1,2024-01-01T00:00:02Z 2,2024-01-01T03:00:00Z")
WITHIN = "ON l.id = r.id AND r.rt BETWEEN l.lt AND l.lt + INTERVAL 5 SECONDS"
PAIR, LEFT, RIGHT = ("1", "1"), ("3", ""), ("", "2")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("join", "emit", "rows"),
    [
        ("LEFT JOIN", "OnUpdate", [PAIR, LEFT]),
        ("RIGHT JOIN", "OnWindowClose", [PAIR, RIGHT]),
        ("FULL JOIN", "OnUpdate", [PAIR, LEFT, RIGHT]),
        ("FULL JOIN", "OnWindowClose", [PAIR, LEFT, RIGHT]),
    ],
)
def test_rows_without_a_partner_are_emitted_at_the_end(
    tmp_path: Path, plan: str, emit: str, join: str, rows: Rows
) -> None:
    sql = f"SELECT l.id AS l, r.id AS r FROM l {join} r {WITHIN}"
    assert run(tmp_path, plan, {"l": L, "r": R}, sql, emit=emit).how == "finished"
    assert results(tmp_path) == Counter(rows)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("join", "last"), [("JOIN", []), ("LEFT JOIN", [("2024-01-01T05:00", "1")])])
def test_windows_over_a_join_close(tmp_path: Path, plan: str, join: str, last: Rows) -> None:
    within = "ON l.id = r.id AND r.rt BETWEEN l.lt AND l.lt + INTERVAL 1 DAY"
    sql = f"SELECT window.start AS since, count(*) AS n FROM l {join} r {within} GROUP BY window(l.lt, '1 hour')"
    assert run(tmp_path, plan, {"l": L, "r": R}, sql).how == "finished"
    assert results(tmp_path) == Counter([("2024-01-01", "1"), *last])


@pytest.mark.parametrize("plan", PLANS)
def test_a_record_of_the_last_day_that_there_is_closes_its_window(tmp_path: Path, plan: str) -> None:
    """Its window ends in the year 10000."""
    records = {"e": ("v INT, at TIMESTAMP", "1,2024-01-01T00:00:00Z 2,9999-12-31T23:59:59Z")}
    outcome = run(tmp_path, plan, records, sums("'1 day'"))
    assert outcome.how == "finished", outcome
    assert results(tmp_path) == Counter([("2024-01-01", "1"), ("9999-12-31", "2")])


@pytest.mark.parametrize("name", ["my project", "100%", 'a#b"c', "proj[1]", "größe", "a:b"])
def test_windows_close_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    outcome = run(folder, "hash", EVENTS, sums("'1 week'"))
    assert outcome.how == "finished", outcome
    assert results(folder) == Counter([("2023-12-28", "1"), ("2024-01-04", "5")])


@pytest.mark.parametrize("window", [None, {"column": "at", "size": "7d"}])
def test_python_aggregators_end_with_their_windows_and_without(tmp_path: Path, window: dict[str, str] | None) -> None:
    """Without a window there is no timer to ask for."""
    python = {"aggregator": "trouble.aggregators:Extremes", "options": {"column": "v"}, "groupBy": ["v"]}
    query = {"python": python | ({"window": window} if window else {})}
    emit = "OnWindowClose" if window else "OnUpdate"
    outcome = run(tmp_path, "hash", EVENTS, "", query=query, emit=emit)
    assert outcome.how == "finished", outcome
    assert sum(results(tmp_path).values()) == 3


BEFORE_1970 = (
    "1,1965-07-01T06:00:00Z 2,1965-07-01T18:00:00Z 3,1965-07-02T06:00:00Z 4,1969-12-31T23:00:00Z 5,1970-01-01T01:00:00Z"
)


@pytest.mark.parametrize("plan", ["pkg", "native"])
def test_records_before_1970_are_late_and_the_end_says_so(tmp_path: Path, plan: str) -> None:
    """Spark's watermark begins at 1970 and is never negative (``PropagateWatermarkSimulator``)."""
    outcome = run(tmp_path, plan, {"e": ("v INT, at TIMESTAMP", BEFORE_1970)}, sums("'1 day'"))
    assert outcome.how == "finished", outcome
    assert results(tmp_path) == Counter([("1970-01-01", "5")])
    late = 4 if plan == "pkg" else 3  # Spark counts groups
    assert f"late={late}: the windows of these records had closed: windows that ended before 1970" in outcome.said


@pytest.mark.parametrize("plan", PLANS)
def test_records_before_1970_are_late_for_a_join(tmp_path: Path, plan: str) -> None:
    sources = {
        "l": ("id INT, lt TIMESTAMP", "1,1965-07-01T06:00:00Z 2,1971-01-01T00:00:00Z 3,1970-01-01T00:00:00Z"),
        "r": ("id INT, rt TIMESTAMP", "1,1965-07-01T06:00:01Z 2,1971-01-01T00:00:01Z 3,1970-01-01T00:00:00Z"),
    }
    outcome = run(tmp_path, plan, sources, f"SELECT l.id AS l, r.id AS r FROM l FULL JOIN r {WITHIN}")
    assert results(tmp_path) == Counter([("2", "2")])
    assert "late=4: the windows of these records had closed: windows that ended before 1970" in outcome.said


def test_records_before_1970_count_without_a_watermark(tmp_path: Path) -> None:
    sources = {"e": ("v INT, at TIMESTAMP", BEFORE_1970)}
    assert run(tmp_path, "pkg", sources, sums("'1 day'"), emit="OnUpdate", e={"watermark": None}).how == "finished"
    assert results(tmp_path) == Counter(
        [("1965-07-01", "3"), ("1965-07-02", "3"), ("1969-12-31", "4"), ("1970-01-01", "5")]
    )
