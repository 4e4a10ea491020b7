"""Which records are late: by the watermark that the batches before a record's own have left.

Spark's watermark is the latest event time so far less the delay, in whole milliseconds, the least of those of all
streams, and begins at 1970. What is before that is late from the start for Spark's own operators and for joins; groups
that the operators on tables hold back have no watermark before the first one. A record is late for a window that had
ended by the watermark, and for a join or DISTINCT if its time is not after it. Which batches count is not the same
everywhere: Spark's own operators leave out the batch just before, whose watermark still closes windows in the record's
own batch. So an answer is one for each ``Rule``, and where the answers differ, each of them is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .tables import Table

MARK = "_mark"
"""The column of DuckDB's tables with the time, in microseconds, until which windows and records are late."""
EVER = -(2**62)
"""A mark before all times."""
Batch = list[tuple[int, int]]
"""The table and the number of each file of a batch."""


@dataclass(frozen=True)
class Rule:
    """``behind``: how many batches before a record's own do not count; ``open``: whether the watermark itself is late."""

    behind: int
    open: bool = False


RULES = (Rule(1), Rule(0), Rule(0, open=True))


def on_time(relation: str, time: str = "ts") -> str:
    """Return DuckDB's relation of the records of a table that are not late by their own time."""
    return f"(SELECT * FROM {relation} WHERE {time} IS NULL OR epoch_us({time}) > {MARK})"


def marks(tables: Sequence[Table], runs: int, rule: Rule, begin: int = 0) -> list[list[int]]:
    """Return ``MARK`` of each row of each table, which is ``begin`` before the first watermark."""
    watermarks = [0]  # before each batch
    latest: dict[int, int] = {}
    found: list[dict[int, int]] = [{} for _ in tables]
    for batch in _batches(tables, runs):
        counted = watermarks[max(0, len(watermarks) - 1 - rule.behind)]
        for index, number in batch:
            found[index][number] = max(0, counted - rule.open) if counted else begin
            times = [row[0] for row in tables[index].files[number] if row[0] is not None]
            if times and _counts(tables[index]):
                latest[index] = max(latest.get(index, times[0]), *times)
        watermarks.append(max(watermarks[-1], _watermark(tables, latest)))
    return [
        [found[index].get(number, 0) for number, rows in enumerate(table.files) for _ in rows]
        for index, table in enumerate(tables)
    ]


def _counts(table: Table) -> bool:
    """Whether the watermark of a source counts: not that of a table."""
    return not table.static and not table.key


def _watermark(tables: Sequence[Table], latest: dict[int, int]) -> int:
    """Return the least watermark of the streams: 0 while one of them has had no record."""
    streams = [index for index, table in enumerate(tables) if _counts(table)]
    return min((latest[i] // 1000 * 1000 - tables[i].delay if i in latest else 0 for i in streams), default=0)


def _batches(tables: Sequence[Table], runs: int) -> Iterator[Batch]:
    """Yield the files of each batch: one of each source that still has some, or all of them."""
    for run in range(runs):
        queues = [
            (index, list(table.numbers(run, runs)), table.at_once)
            for index, table in enumerate(tables)
            if not table.static
        ]
        while any(numbers for _, numbers, _ in queues):
            batch: Batch = []
            for index, numbers, at_once in queues:
                taken = len(numbers) if at_once else min(1, len(numbers))
                batch += [(index, number) for number in numbers[:taken]]
                del numbers[:taken]
            yield batch
