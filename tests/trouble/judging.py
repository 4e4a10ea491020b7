"""Judgement of a case: the results of every plan against DuckDB's answer over the whole input."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lab.topics import committed

from .answers import Row, expected_tables, rows_of
from .arrivals import FILES
from .cases import Case
from .comparing import compare, newest, normal
from .messages import cluster, remove_topics
from .results import BATCH, read_results, rows_of_messages, wrong_keys
from .running import Outcome, explained, run_once, validated
from .writers import FORMATS


@dataclass(frozen=True)
class Finding:
    """A difference: what kind, in which plan, and the details. Two with one ``signature`` are taken for the same."""

    kind: str
    plan: str
    details: str
    signature: str


def judge(case: Case, folder: Path, plans: Sequence[str]) -> list[Finding]:
    """Run a case by each plan in an empty folder, and return what is wrong, once for all plans that agree."""
    expected = expected_tables(case)
    found: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    outcomes: dict[str, Outcome] = {}
    for plan in plans:
        home = folder / plan / case.place
        try:
            outcomes[plan], problems = _judge_plan(case, home, plan, expected)
        finally:
            remove_topics(case.topics(home))
        for kind, details in problems:
            found[kind, _trait(kind, details, case)].append(
                (plan, details.replace(str(folder / plan / case.place), ""))
            )
    if not expected:
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
    case: Case, folder: Path, plan: str, expected: Sequence[pa.Table]
) -> tuple[Outcome, list[tuple[str, str]]]:
    """Run a case by one plan, and return how it ended, and what is wrong."""
    folder.mkdir(parents=True)
    if case.place:
        os.chdir(folder)
    query, *following = case.write_query(folder, plan)
    for run in range(case.runs):
        case.write_inputs(folder, run)
        checked, outcome = validated(query), run_once(query, leaves_open=run + 1 < case.runs)
        by_records = not expected and _has_begun(folder)
        problems = list(_judge_outcome(checked, outcome, by_records=by_records))
        if not expected and (told := explained(query)).how != outcome.how and not _has_begun(folder):
            problems.append(("explain and run disagree", f"explain {told.how} {told.message}; run {outcome.message}"))
        if outcome.how != "finished" or not expected:
            return outcome, problems
    problems += _judge_results(case, folder, expected)
    if case.also:
        names, rows = read_results(folder / "also", "parquet", expected[0].schema)
        also = _judge_rows(case, names, rows, expected)
        problems += [(kind, f"in the second output, {case.also}: {details}") for kind, details in also]
    if following and (case.sink not in FORMATS or any((folder / "out").glob("batch-*"))):  # else there is no input
        checked, outcome = validated(following[0]), run_once(following[0])
        problems += _judge_outcome(checked, outcome)
        if outcome.how == "finished":
            names, rows = read_results(folder / "next" / "out", "parquet", expected[0].schema)
            problems += _judge_rows(case, names, rows, expected)
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
            written[plan] = Counter(map(repr, map(normal, _rows_of_batches(home / "out"))))
    if len({frozenset(rows.items()) for rows in written.values()}) > 1 and "rand()" not in case.query.question().spark:
        yield "plans give different rows", "\n".join(f"{plan}: {list(rows)[:5]}" for plan, rows in written.items())


def _rows_of_batches(folder: Path) -> Iterator[Row]:
    """Yield the rows of all batches but those that repeat the one before.

    In update mode, Spark emits the only group of an aggregate without keys in each batch, also in one without records.
    """
    before: list[Row] = []
    for file in sorted(folder.glob("batch-*.parquet")):
        table = pq.read_table(file, coerce_int96_timestamp_unit="us")
        rows = rows_of(table.drop_columns([BATCH]) if BATCH in table.column_names else table)
        if rows != before:
            yield from rows_of(table)
        before = rows


def _judge_results(case: Case, folder: Path, expected: Sequence[pa.Table]) -> Iterator[tuple[str, str]]:
    schema = expected[0].schema
    if case.sink in FORMATS:
        names, rows = read_results(folder / "out", case.sink, schema)
    else:
        messages = committed(cluster(), case.out_topic(folder))
        if wrong := wrong_keys(messages):
            yield "a key is not of its value", f"{wrong[0]}"
        is_final = case.emit == "OnWindowClose"
        names, rows = rows_of_messages(messages, schema, is_table=case.sink == "table", is_final=is_final)
    yield from _judge_rows(case, names, rows, expected)


def _trait(kind: str, details: str, case: Case) -> str:
    """Return what makes a finding distinct."""
    if case.shape == "doubtful":
        return f"{case.query.question().spark} {case.emit}: {_shortened(details)}"
    if "placement Dedicated needs" in details:
        return "placement Dedicated"  # each expression that Arrow does not compute is the same finding
    if kind.startswith(("rows", "two")):
        times = [row[0] for table in case.tables for row in table.rows if not table.static and row[0] is not None]
        early = ", before 1970" if min(times, default=0) < 0 else ""
        several = "" if all(table.at_once for table in case.tables) else ", in several batches"
        several += ", late" if any(table.late for table in case.tables) else ""
        several += ", resumed" if case.resumed else ""
        several += "".join(f", {kind}" for kind in sorted({arrival.kind for arrival in case.arrivals} - {FILES}))
        several += f", into {case.sink}" if case.sink not in FORMATS else ""
        return f"{case.shape}, {case.emit}{early}{several}{', dedicated' if case.replicas else ''}"
    last = next((line for line in reversed(details.splitlines()) if line.strip()), "")
    return _shortened(last if "crash" in kind else details)


def _judge_outcome(checked: Outcome, outcome: Outcome, *, by_records: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with how a run ended; ``by_records`` is whether its records may rightly have ended it."""
    if outcome.how == "crashed":
        yield "crash", outcome.message
    elif outcome.how == "refused" and not outcome.is_clear:
        yield "unclear refusal", outcome.message
    elif outcome.how == "refused" and checked.how == "finished" and not by_records:
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
    case: Case, names: list[str], rows: list[Row], expected: Sequence[pa.Table]
) -> Iterator[tuple[str, str]]:
    question, columns = case.query.question(), expected[0].column_names
    if not rows and question.keys == 0 and not case.rows:
        return  # without a record there is no batch, and so no row
    plain = [name.lower() for name in names if name != BATCH]
    if rows and plain != [name.lower() for name in columns]:
        yield "columns", f"columns {plain}, expected {columns}"
        return
    if rows and BATCH in names and question.keys is not None:
        rows, twice = newest(rows, names.index(BATCH), question.keys)
        if twice:
            yield "two rows of a key in a batch", f"{twice[:3]}"
    elif rows and BATCH in names:
        rows = [row[:-1] for row in rows]
    difference = compare(rows, [rows_of(each) for each in expected], question)
    if difference is not None:
        yield difference
