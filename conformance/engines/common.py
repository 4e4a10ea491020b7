"""Parts that runners share: event times as engines see them, and the arrivals that end a case."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from conformance.cases import Arrival, Case, Outcome, Query, Row

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""The event time 0."""

LAST = 1_000
"""The event time of the arrivals that end a case, which is after all windows and ranges, and within all histories."""

_LAST_KEY = "~last"


class Runner(Protocol):
    """An engine that runs cases."""

    name: str
    version: str

    def outcomes(self, work: Sequence[tuple[Query, Case]]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each case, as soon as it is known."""


def last_rounds(query: Query) -> list[list[Arrival]]:
    """Return two rounds with an arrival for each input by which event time goes on; their results are left out.

    The second round releases what operators hold back of the first one. Tables come first, so that the records of
    streams have partners, and event time goes on behind a join, too.
    """
    inputs = sorted(query.inputs, key=lambda name: query.inputs[name] == "stream")
    if query.flush is True or query.flush is False:
        times = (LAST, LAST + 100) if query.flush else ()
    else:
        times = (query.flush, query.flush)
    return [[Arrival(name, at, _LAST_KEY, _LAST_KEY, 0) for name in inputs] for at in times]


def own_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without those of ``last_rounds``."""
    return [row for row in rows if _LAST_KEY not in row.values()]


def time_of(seconds: int) -> dt.datetime:
    """Return an event time of a case as engines see it."""
    return BEGIN + dt.timedelta(seconds=seconds)


def seconds_of(time: dt.datetime | str) -> int:
    """Return an event time of an engine in the seconds of a case; one without a zone is in UTC."""
    given = dt.datetime.fromisoformat(time) if isinstance(time, str) else time
    return int(((given if given.tzinfo else given.replace(tzinfo=dt.UTC)) - BEGIN).total_seconds())


def with_seconds(row: Mapping[str, Any], times: Sequence[str]) -> Row:
    """Return a row whose columns of event times are in the seconds of a case."""
    return {name: seconds_of(value) if name in times and value is not None else value for name, value in row.items()}
