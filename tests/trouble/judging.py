"""Judgement of a case: the results of every plan against DuckDB's answer over the whole input."""

from __future__ import annotations

import json
import math
import os
import re
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .cases import Case
from .queries import Question
from .running import Outcome, explained, run_once, validated
from .values import plain_values

_BATCH = "_batch_id"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """A difference: what kind, in which plan, and the details. Two with one ``signature`` are taken for the same."""

    kind: str
    plan: str
    details: str
    signature: str


def expected_table(case: Case) -> pa.Table | None:
    """Return DuckDB's answer; None to a query that may not run."""
    if not case.query.question().duckdb:
        return None
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        for table in case.tables:
            connection.register("given", table.arrow())
            columns = ", ".join(f"{c.name}::{c.kind.duckdb} AS {c.name}" for c in table.columns)
            connection.execute(f"CREATE TABLE {table.name} AS SELECT {columns} FROM given")
            connection.unregister("given")
        return connection.sql(case.query.question().duckdb).to_arrow_table()


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table, times as numbers."""
    if not table.num_columns:
        return []
    return list(zip(*(plain_values(column) for column in table.columns), strict=True))


def read_results(folder: Path, format: str, expected: pa.Schema) -> tuple[list[str], list[Row]]:
    """Return the names of the columns in a folder of results, and all rows."""
    files = sorted(folder.glob(f"batch-*.{format}"))
    names: list[str] = []
    rows: list[Row] = []
    for file in files:
        if format == "parquet":
            table = pq.read_table(file, coerce_int96_timestamp_unit="us")
            names = table.column_names
            rows += rows_of(table)
        elif format == "csv":
            header, *records = _csv_records(file.read_bytes().decode())
            names = [(name or "").lower() for name in header]
            rows += [
                tuple(_from_text(text, name, expected) for text, name in zip(r, names, strict=True)) for r in records
            ]
        else:
            with file.open(encoding="utf-8", newline="\n") as lines:
                objects = [json.loads(line, parse_float=str, parse_int=str) for line in lines]
            objects = [{name.lower(): value for name, value in each.items()} for each in objects]
            known = {name.lower() for name in expected.names}
            names = [*expected.names, *sorted({name for each in objects for name in each if name not in known})]
            rows += [tuple(_from_json(each.get(name.lower()), name, expected) for name in names) for each in objects]
    return names, rows


_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,\n]*))(,|\n)')


def _csv_records(text: str) -> list[list[str | None]]:
    """Return the records of a CSV file, where an empty field without quotes is NULL."""
    records: list[list[str | None]] = [[]]
    for field in _CSV_FIELD.finditer(text):
        quoted, plain, end = field.groups()
        records[-1].append(plain or None if quoted is None else quoted.replace('""', '"'))
        if end == "\n":
            records.append([])
    return records[:-1]


def _from_text(text: str | None, name: str, expected: pa.Schema) -> Any:
    if text is None:
        return None
    return int(text) if name == _BATCH else _typed(text, expected.field(name).type)


def _from_json(value: Any, name: str, expected: pa.Schema) -> Any:
    if value is None or name not in (*expected.names, _BATCH):
        return value
    return int(value) if name == _BATCH else _typed(value, expected.field(name).type)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value in CSV or JSON that Spark wrote, as the type of DuckDB's answer."""
    if pa.types.is_struct(kind):
        return tuple(_typed(value[field.name], field.type) for field in kind)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else {"true": True, "false": False}[value]
    if pa.types.is_timestamp(kind):
        return _micros(value)
    if pa.types.is_date32(kind):
        return _micros(f"{value}T00:00:00.000000Z") // 86_400_000_000
    if pa.types.is_floating(kind):
        return float(np.float32(value)) if kind == pa.float32() else float(value)
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return b64decode(value, validate=True) if pa.types.is_binary(kind) else value


def _micros(text: str) -> int:
    with duckdb.connect() as connection:
        return int(connection.execute("SELECT epoch_us(?::TIMESTAMP)", [text.removesuffix("Z")]).fetchall()[0][0])


def judge(case: Case, folder: Path, plans: Sequence[str]) -> list[Finding]:
    """Run a case by each plan in an empty folder, and return what is wrong, once for all plans that agree."""
    expected = expected_table(case)
    found: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    outcomes: dict[str, Outcome] = {}
    for plan in plans:
        outcomes[plan], problems = _judge_plan(case, folder / plan / case.place, plan, expected)
        for kind, details in problems:
            found[kind, _trait(kind, details, case)].append(
                (plan, details.replace(str(folder / plan / case.place), ""))
            )
    if expected is None:
        for kind, details in _judge_doubtful(case, folder, outcomes):
            found[kind, _trait(kind, details, case)] += [(plan, details) for plan in plans]
    hows = {outcome.how for outcome in outcomes.values()}
    if len(hows) > 1 and "crashed" not in hows:
        details = "\n".join(f"{plan}: {outcome.how} {outcome.message}" for plan, outcome in outcomes.items())
        found["plans disagree on a refusal", _shortened(details)] += [(plan, details) for plan in plans]
    findings = []
    for (kind, trait), said in found.items():
        by = sorted({plan for plan, _ in said})
        signature = f"{kind}: {trait}" + ("" if len(by) == len(plans) else f" ({','.join(by)})")
        findings.append(Finding(kind, ",".join(by), said[0][1], signature))
    return findings


def _judge_plan(
    case: Case, folder: Path, plan: str, expected: pa.Table | None
) -> tuple[Outcome, list[tuple[str, str]]]:
    """Run a case by one plan, and return how it ended, and what is wrong."""
    folder.mkdir(parents=True)
    if case.place:
        os.chdir(folder)
    query, *following = case.write_query(folder, plan)
    for run in range(case.runs):
        case.write_inputs(folder, run)
        checked, outcome = validated(query), run_once(query, leaves_open=run + 1 < case.runs)
        problems = list(_judge_outcome(checked, outcome))
        if expected is None and (told := explained(query)).how != outcome.how and not _has_begun(folder):
            problems.append(("explain and run disagree", f"explain {told.how} {told.message}; run {outcome.message}"))
        if outcome.how != "finished" or expected is None:
            return outcome, problems
    problems += _judge_results(case, folder / "out", case.sink, expected)
    if following and any((folder / "out").glob("batch-*")):  # else the next query has no input
        checked, outcome = validated(following[0]), run_once(following[0])
        problems += _judge_outcome(checked, outcome)
        if outcome.how == "finished":
            problems += _judge_results(case, folder / "next" / "out", "parquet", expected)
    return outcome, problems


def _has_begun(folder: Path) -> bool:
    """Whether the query has begun a batch, so that what went wrong may be in its records."""
    return (folder / "checkpoint" / "spark" / "offsets").exists()


def _judge_doubtful(case: Case, folder: Path, outcomes: Mapping[str, Outcome]) -> Iterator[tuple[str, str]]:
    """Yield how the plans differ, and what a refused query has left behind."""
    written: dict[str, Counter[str]] = {}
    for plan, outcome in outcomes.items():
        home = folder / plan / case.place
        left = [name for name in ("out", "checkpoint") if (home / name).exists()]
        if outcome.how == "refused" and left and not _has_begun(home):
            yield "a refused query leaves folders", f"{plan}: {left}: {outcome.message}"
        if outcome.how == "finished":
            files = sorted((home / "out").glob("batch-*.parquet"))
            rows = [row for file in files for row in rows_of(pq.read_table(file, coerce_int96_timestamp_unit="us"))]
            written[plan] = Counter(map(repr, map(normal, rows)))
    if len({frozenset(rows.items()) for rows in written.values()}) > 1 and "rand()" not in case.query.question().spark:
        yield "plans give different rows", "\n".join(f"{plan}: {list(rows)[:5]}" for plan, rows in written.items())


def _judge_results(case: Case, folder: Path, format: str, expected: pa.Table) -> Iterator[tuple[str, str]]:
    names, rows = read_results(folder, format, expected.schema)
    yield from _judge_rows(case, names, rows, expected, case.query.question())


def _trait(kind: str, details: str, case: Case) -> str:
    """Return what makes a finding distinct."""
    if case.shape == "doubtful":
        return f"{case.query.question().spark} {case.emit}: {_shortened(details)}"
    if kind.startswith(("rows", "two")):
        times = [row[0] for table in case.tables for row in table.rows if not table.static and row[0] is not None]
        early = ", before 1970" if min(times, default=0) < 0 else ""
        several = "" if all(table.at_once for table in case.tables) else ", in several batches"
        return f"{case.shape}, {case.emit}{early}{several}{', resumed' if case.resumed else ''}"
    last = next((line for line in reversed(details.splitlines()) if line.strip()), "")
    return _shortened(last if "crash" in kind else details)


def _judge_outcome(checked: Outcome, outcome: Outcome) -> Iterator[tuple[str, str]]:
    if outcome.how == "crashed":
        yield "crash", outcome.message
    elif outcome.how == "refused" and not outcome.is_clear:
        yield "unclear refusal", outcome.message
    elif outcome.how == "refused" and checked.how == "finished":
        yield "refused, though validate passes", outcome.message
    if checked.how == "crashed":
        yield "crash of validate", checked.message
    elif checked.how == "refused" and outcome.how == "finished":
        yield "validate refuses what runs", checked.message


def _shortened(message: str) -> str:
    """Return a message without numbers, values and names of places."""
    message = re.sub(r"'.*'|\".*\"", "_", message)
    words = ["#" if any(c.isdigit() for c in word) or "/" in word else word for word in message.split()]
    return " ".join(words)[:160]


def _judge_rows(
    case: Case, names: list[str], rows: list[Row], expected: pa.Table, question: Question
) -> Iterator[tuple[str, str]]:
    wanted = rows_of(expected)
    if not rows and question.keys == 0 and not case.rows:
        return  # without a record there is no batch, and so no row
    plain = [name.lower() for name in names if name != _BATCH]
    if rows and plain != [name.lower() for name in expected.column_names]:
        yield "columns", f"columns {plain}, expected {expected.column_names}"
        return
    if rows and _BATCH in names and question.keys is not None:
        rows, twice = newest(rows, names.index(_BATCH), question.keys)
        if twice:
            yield "two rows of a key in a batch", f"{twice[:3]}"
    elif rows and _BATCH in names:
        rows = [row[:-1] for row in rows]
    difference = compare(rows, wanted, question)
    if difference is not None:
        yield difference


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


def compare(actual: list[Row], wanted: list[Row], question: Question) -> tuple[str, str] | None:
    """Return what is different, and examples; None if nothing is."""
    if question.keys is None:
        ours, theirs = Counter(map(normal, actual)), Counter(map(normal, wanted))
        missing, extra = list((theirs - ours).elements()), list((ours - theirs).elements())
        return _described(missing, extra, [])
    by_key, theirs_by_key = _grouped(actual, question.keys), _grouped(wanted, question.keys)
    missing = [key for key in theirs_by_key if key not in by_key]
    extra = [key for key in by_key if key not in theirs_by_key]
    extra += [
        key for key, found in by_key.items() if len(found) > 1 and len(theirs_by_key.get(key, found[1:])) < len(found)
    ]
    different = [
        (key, by_key[key], theirs_by_key[key])
        for key in theirs_by_key
        if key in by_key and not _same_rows(by_key[key][0], theirs_by_key[key][0], question)
    ]
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
