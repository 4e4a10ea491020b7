"""The contenders judged from outside: by a consumer that reads only committed messages, and by DuckDB.

DuckDB joins what is in the topics of views and clicks. A contender's results are right if they are the same multiset of
pairs: as many, with the same sum of hashes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from bench.joins.cases import JoinCase
from bench.peers.judge import seconds_of, visible
from bench.processor_time import tree_seconds

RIGHT = "right"

_SURPLUS_SECONDS = 1.0
"""Seconds after the last result that is due, in which there must be no more."""

_SILENCE_SECONDS = 60.0
"""Seconds without a result after which no more are expected, though some are due."""

_DIGEST = "SELECT count(*), coalesce(sum(hash(view, click)), 0) FROM pairs"

_RECORDS = """
CREATE TABLE {name} AS SELECT
    value->>'page' AS page, (value->>'id')::BIGINT AS id, epoch_ms((value->>'at')::TIMESTAMP) AS ms
FROM {name}_values
"""

# Cutting time into slots as wide as the band lets DuckDB join by equality, also where one page has most records.
_JOIN = """
CREATE VIEW pairs AS
WITH slots AS (SELECT *, unnest([ms - {band}, ms, ms + {band}]) AS near FROM views)
SELECT v.id AS view, c.id AS click FROM slots v JOIN clicks c
ON v.page = c.page AND near - near % {band} = c.ms - c.ms % {band} AND c.ms BETWEEN v.ms - {band} AND v.ms + {band}
"""


@dataclass(frozen=True)
class JoinResults:
    """A multiset of results: their number, and the sum of the hashes of their ids."""

    count: int
    hashes: int


Percentiles = tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class SteadyPeriod:
    """When the latency of a contender is measured, in seconds.

    ``settling``: how long after its first result; ``measured``: for how long; ``longest``: when its turn ends at the
    latest, after its start.
    """

    settling: float
    measured: float
    longest: float


@dataclass(frozen=True)
class RunningJoin:
    """A contender that runs; ``began``: when it was started, in seconds since 1970."""

    process: subprocess.Popen[bytes]
    began: float

    def is_running(self) -> bool:
        """Return whether it runs."""
        return self.process.poll() is None

    def processor_seconds(self) -> float:
        """Return the processor time of all its processes so far, in seconds."""
        return tree_seconds(self.process.pid)


@dataclass(frozen=True)
class JoinTurn:
    """What a reader saw of one turn of a contender.

    ``first``, ``all``: seconds from the contender's start to its first result, and until all results were visible;
    None if they were not. ``processor``: its processor time by then, in seconds. ``milliseconds``: p50, p95 and p99 of
    the time from the newer of two records to their result. ``due``: what the results have to be.
    """

    first: float | None
    all: float | None
    processor: float | None
    milliseconds: Percentiles
    results: JoinResults
    due: JoinResults

    @property
    def verdict(self) -> str:
        """The text ``right``, or how the results differ from those that are due."""
        if self.results.count != self.due.count:
            return f"{self.results.count:,} of {self.due.count:,}"
        return RIGHT if self.results == self.due else "WRONG"


def expected(views: Sequence[bytes], clicks: Sequence[bytes], case: JoinCase) -> JoinResults:
    """Return what DuckDB has for these records."""
    with duckdb.connect() as connection:
        for name, values in (("views", views), ("clicks", clicks)):
            connection.register(f"{name}_values", _texts(values))
            connection.execute(_RECORDS.format(name=name))
        connection.execute(_JOIN.format(band=case.band))
        return _digest(connection)


def digest_of(values: Sequence[bytes]) -> JoinResults:
    """Return the multiset of a contender's results."""
    with duckdb.connect() as connection:
        connection.register("results", _texts(values))
        columns = ", ".join(f"(value->>'{name}')::BIGINT AS {name}" for name in ("view", "click"))
        connection.execute(f"CREATE VIEW pairs AS SELECT {columns} FROM results")
        return _digest(connection)


def watch_backlog(servers: str, sink: str, right: JoinResults, seconds: float, contender: RunningJoin) -> JoinTurn:
    """Watch the results until they are complete, for at most ``seconds`` seconds."""
    watch = _Watch(contender)
    for seen, values in visible(servers, sink, contender.began + seconds, contender.is_running):
        watch.take(seen, values, right.count)
        if watch.is_over(seen):
            break
    return watch.turn(right)


def watch_latency(
    servers: str, sink: str, period: SteadyPeriod, due: Callable[[], JoinResults], contender: RunningJoin
) -> JoinTurn:
    """Watch the results of a steady stream, which ends when ``due`` is called; that returns what they have to be."""
    watch, waited = _Watch(contender), list[float]()
    right: JoinResults | None = None
    for seen, values in visible(servers, sink, contender.began + period.longest, contender.is_running):
        watch.take(seen, values, None if right is None else right.count)
        since = None if watch.first is None else seen - watch.first - period.settling
        if right is None and since is not None and since > 0:
            waited += ((seen - seconds_of(json.loads(value)["latest"])) * 1000 for value in values)
            if since > period.measured:
                right = due()
        if watch.is_over(seen):
            break
    p50, p95, p99 = map(float, np.quantile(waited, (0.5, 0.95, 0.99))) if waited else (None, None, None)
    return watch.turn(right or due(), (p50, p95, p99))


class _Watch:
    """The results of a turn so far; ``first``: when the first one became visible, in seconds since 1970."""

    def __init__(self, contender: RunningJoin) -> None:
        self._contender = contender
        self._values: list[bytes] = []
        self.first: float | None = None
        self._latest = np.inf
        self._complete: float | None = None
        self._processor: float | None = None

    def take(self, seen: float, values: Sequence[bytes], due: int | None) -> None:
        """Take values that became visible; ``due`` is the number of all results, if it is known."""
        self._values += values
        if values:
            self._latest = seen
            self.first = self.first or seen
        if self._complete is None and due is not None and len(self._values) >= due:
            self._complete = seen
            self._processor = self._contender.processor_seconds()

    def is_over(self, now: float) -> bool:
        """Return whether no more results are expected."""
        if self._complete is not None:
            return now > self._complete + _SURPLUS_SECONDS
        return now > self._latest + _SILENCE_SECONDS

    def turn(self, due: JoinResults, milliseconds: Percentiles = (None, None, None)) -> JoinTurn:
        """Return the turn, of which these results are due."""
        began = self._contender.began
        first, complete = (None if moment is None else moment - began for moment in (self.first, self._complete))
        return JoinTurn(first, complete, self._processor, milliseconds, digest_of(self._values), due)


def _digest(connection: duckdb.DuckDBPyConnection) -> JoinResults:
    found = connection.execute(_DIGEST).fetchone()
    assert found is not None
    return JoinResults(*map(int, found))


def _texts(values: Sequence[bytes]) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary()).cast(pa.string())})
