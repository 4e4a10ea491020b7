"""Measure the state of operators on tables against their input: bytes and processor time for each record.

    PYTHONPATH=tests python -m bench.operator_state [RECORDS]

Each query runs on RECORDS records, 100,000 by default, and on a tenth of them, in batches of 10,000, by the operators
that Spark's tasks call, and without Spark. Tables get a row for each new key, and a fifth of the records replaces an
earlier row. The watermark is 10 seconds behind, at 1,000 records a second. Bytes are those of the stored state after
the last batch. Processor time is that of the operators alone. A figure is also given over the one for a tenth of the
records: 1.0 is a cost that grows as its input does, and less than that a state that is bounded.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from millrace_jobs.queries.tables.operators.interface import TableOperator
from tests.staged_queries import Event, StagedQuery

BATCH = 10_000
GAP = 1_000
"""Microseconds of event time between records."""
BEHIND = 10_000_000
REPLACED = 0.2

_RANGE = "r.at BETWEEN s.at - INTERVAL 5 SECONDS AND s.at + INTERVAL 5 SECONDS"

QUERIES = {
    "`max`": "SELECT n % 1000 AS g, max(n) AS x FROM p GROUP BY n % 1000",
    "`max_by`": "SELECT n % 1000 AS g, max_by(k, n) AS x FROM p GROUP BY n % 1000",
    "`stddev`": "SELECT n % 1000 AS g, stddev(n) AS x FROM p GROUP BY n % 1000",
    "`count(DISTINCT)`": "SELECT n % 1000 AS g, count(DISTINCT n) AS x FROM p GROUP BY n % 1000",
    "`median`": "SELECT n % 1000 AS g, median(n) AS x FROM p GROUP BY n % 1000",
    "DISTINCT": "SELECT DISTINCT n FROM p",
    "EXCEPT": "SELECT n FROM p EXCEPT SELECT n FROM q",
    "INTERSECT ALL": "SELECT n FROM p INTERSECT ALL SELECT n FROM q",
    "UNION": "SELECT n FROM p UNION SELECT n FROM q",
    "EXISTS": "SELECT k, n FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.k = p.k)",
    "NOT EXISTS": "SELECT k, n FROM p WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.k = p.k)",
    "FULL JOIN with a condition": "SELECT p.k AS a, q.k AS b, p.n FROM p FULL JOIN q ON p.k = q.k AND p.n > q.n",
    "top 3 of groups": "SELECT k, n FROM (SELECT k, n, row_number() OVER (PARTITION BY n % 1000 ORDER BY n DESC, k) "
    "AS r FROM p) AS t WHERE r <= 3",
    "ORDER BY with LIMIT 10": "SELECT k, n FROM p ORDER BY n DESC, k LIMIT 10",
    "stream RIGHT JOIN table": "SELECT s.n AS a, p.n AS b, p.k FROM s RIGHT JOIN p ON s.k = p.k",
    "EXISTS in a stream": f"SELECT s.k, s.n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {_RANGE})",
    "NOT EXISTS in a stream": f"SELECT s.k, s.n FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {_RANGE})",
}
SOURCES = {"p": True, "q": True, "s": False, "r": False}


class Cost(NamedTuple):
    """The state after a run, and the processor time of its operators, each for a record."""

    bytes: float
    microseconds: float


class _TimedQuery(StagedQuery):
    """A query that adds up the processor time of its operators."""

    seconds = 0.0

    def _run(self, watermark: int, number: int, operator: TableOperator, inputs: Sequence[pa.Table]) -> pa.Table:
        began = time.process_time()
        try:
            return super()._run(watermark, number, operator, inputs)
        finally:
            self.seconds += time.process_time() - began


def events(sources: Sequence[str], count: int) -> Iterator[Event]:
    """Yield records of the sources in turn, in the order of their times."""
    chance = random.Random(1)
    for number in range(count):
        source = sources[number % len(sources)]
        row = chance.randrange(number + 1) if chance.random() < REPLACED else number
        yield number * GAP, source, f"k{row // len(sources)}", chance.randrange(1 << 30)


def cost(sql: str, count: int) -> Cost:
    """Run a query on this many records."""
    sources = [name for name in SOURCES if re.search(rf"\b(?:FROM|JOIN) {name}\b", sql)]
    query = _TimedQuery(sql, {name: SOURCES[name] for name in sources})
    given = list(events(sources, count))
    for first in range(0, count, BATCH):
        batch = given[first : first + BATCH]
        query.batch(batch, max(0, batch[-1][0] - BEHIND))
    return Cost(query.stored_bytes / count, query.seconds / count * 1e6)


def main(count: int) -> None:
    """Measure all queries, and print a table."""
    table = Table("query", "bytes / record", "x a tenth", "us / record", "x a tenth")
    for name, sql in QUERIES.items():
        small, large = cost(sql, count // 10), cost(sql, count)
        figures = zip(small, large, strict=True)
        cells = [text for before, now in figures for text in (f"{now:,.1f}", f"{now / before:.2f}" if before else "-")]
        table.add_row(name, *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100_000)
