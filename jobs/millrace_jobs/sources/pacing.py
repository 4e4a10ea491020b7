"""The pace of a stream: event time at a given speed, a constant rate, or a rate that changes.

A pace maps seconds on its own clock to records due, and back. A stream that stops at some record can therefore
continue from there later as if no time had passed.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem

NO_TIME = np.iinfo(np.int64).min
"""The value of the clock before the first record that has an event time."""


class Pace(Protocol):
    """A non-decreasing number of records as a function of time."""

    def rows(self, seconds: float) -> int:
        """Return the number of records due ``seconds`` after the beginning."""

    def seconds(self, row: int) -> float:
        """Return the earliest time at which ``row`` records are due."""

    def due_micros(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when each row, numbered from 0, is due, in µs. Shapes ``(rows,)``."""


class Pacer:
    """A pace on a running clock."""

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self._origin: float | None = None

    def due(self, row: int) -> int:
        """Return the number of records due now, at least ``row``.

        The first call sets the clock to the time of ``row``.
        """
        now = self._clock()
        if self._origin is None:
            self._origin = now - self._pace.seconds(row)
        return max(row, self._pace.rows(now - self._origin))

    def began(self) -> float | None:
        """Return the time of day at which the clock of the pace was 0, in seconds since 1970; None before ``due``."""
        return None if self._origin is None else time.time() - (self._clock() - self._origin)


class EventTimePace:
    """A replay of records at ``speed`` times the pace of their own event times.

    ``clock`` is the running maximum of the event times in µs, since records may be out of order. Shape ``(rows,)``.
    """

    def __init__(self, clock: NDArray[np.int64], speed: float) -> None:
        self._clock = clock
        self._speed = speed
        first = int(np.searchsorted(clock, NO_TIME, "right"))
        self._begin = int(clock[first]) if first < len(clock) else 0

    def rows(self, seconds: float) -> int:
        """Return the number of records up to the event time reached after ``seconds``."""
        reached = self._begin + math.floor(seconds * self._speed * 1e6)
        return int(np.searchsorted(self._clock, reached, "right"))

    def seconds(self, row: int) -> float:
        """Return the time at which the last of ``row`` records is due."""
        reached = max(int(self._clock[row - 1]), self._begin) if row else self._begin
        return (reached - self._begin) / 1e6 / self._speed

    def due_micros(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when the event time of each row is reached, in µs. Shapes ``(rows,)``."""
        return ((np.maximum(self._clock[rows], self._begin) - self._begin) / self._speed).astype(np.int64)


@dataclass(frozen=True)
class RatePace:
    """A rate of ``rates[i]`` records per second from second ``times[i]`` on; ``times[0]`` is 0. Shapes ``(steps,)``."""

    times: NDArray[np.float64]
    rates: NDArray[np.float64]

    @classmethod
    def constant(cls, rate: float) -> RatePace:
        """Return a pace of ``rate`` records per second without end."""
        return cls(np.zeros(1), np.array([rate]))

    @classmethod
    def of(cls, rate: float | RatePace) -> RatePace:
        """Return a number as a constant rate, and a pace unchanged."""
        return rate if isinstance(rate, RatePace) else cls.constant(rate)

    def scaled(self, factor: float) -> RatePace:
        """Return the pace with every rate multiplied by ``factor``."""
        return RatePace(self.times, self.rates * factor)

    @property
    def mean(self) -> float:
        """The mean rate in records per second before the last step, or the last rate if no record is due before it."""
        return float(self._counts[-1] / self.times[-1]) if self._counts[-1] else float(self.rates[-1])

    @cached_property
    def _counts(self) -> NDArray[np.float64]:
        return np.concatenate(([0.0], np.cumsum(np.diff(self.times) * self.rates[:-1])))

    def rows(self, seconds: float) -> int:
        """Return the number of whole records due after ``seconds``."""
        step = max(int(np.searchsorted(self.times, seconds, "right")) - 1, 0)
        return int(self._counts[step] + self.rates[step] * (seconds - self.times[step]))

    def seconds(self, row: int) -> float:
        """Return the earliest time at which ``row`` records are due: the time before a pause (rate 0), not after it."""
        counts = self._counts
        step = max(int(np.searchsorted(counts, row, "left")) - 1, 0)
        missing = row - counts[step]
        if missing <= 0 or self.rates[step] == 0:
            return float(self.times[step])
        return float(self.times[step] + missing / self.rates[step])

    def micros(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return :meth:`seconds` of many rows, in whole µs. Shapes ``(rows,)``."""
        step = np.maximum(np.searchsorted(self._counts, rows, "left") - 1, 0)
        gaps = np.divide(1e6, self.rates, out=np.zeros(len(self.rates)), where=self.rates > 0)
        micros = self.times[step] * 1e6 + (rows - self._counts[step]) * gaps[step]
        return np.floor(micros).astype(np.int64)

    def due_micros(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when each row, numbered from 0, is due, in µs. Shapes ``(rows,)``."""
        return self.micros(rows + 1)


def read_rate_trace(path: str, *, scale: float = 1.0) -> RatePace:
    """Read a recorded rate as steps; each step holds until the next one, the last without end.

    The file is CSV (delimited by ``,`` ``;`` ``|`` or tab) with a header. The first column holds seconds or ISO 8601
    timestamps in ascending order, the second one records per second, which are multiplied by ``scale``.

    Raises MillraceError with file, line and value.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            delimiter = next((d for d in ",;|\t" if d in header), ",")
            names = next(csv.reader([header.strip()], delimiter=delimiter), [])
            reader = csv.DictReader(file, names, delimiter=delimiter)
            time_name, rate_name = _columns(names, path)
            steps: list[tuple[float, float, int]] = []
            for row in reader:
                line = reader.reader.line_num + 1  # the header was read before; blank lines count
                steps.append((_time(row[time_name], path, line), _rate(row[rate_name], path, line), line))
    except OSError as error:
        raise MillraceError(Problem(f"cannot be read as a rate trace: {error.strerror or error}", "", path)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise MillraceError(Problem(f"cannot be read as a rate trace: {error}", "", path)) from error
    times, rates = np.array([time for time, _, _ in steps]), np.array([rate for _, rate, _ in steps])
    if not len(times) or not rates.any():
        raise MillraceError(Problem("the rate trace has no rate above 0", "give it at least one", path))
    if backwards := np.flatnonzero(np.diff(times) <= 0).tolist():
        message = "the time does not advance from the line before"
        raise MillraceError(Problem(message, "sort by time", path, steps[backwards[0] + 1][2]))
    return RatePace(times - times[0], rates * scale)


def _columns(names: list[str], path: str) -> tuple[str, str]:
    if len(names) > 1:
        return names[0], names[1]
    found = f"it has {names[0]}" if names else "its first line is empty"
    hint = "write a header with a column of times and one of rates"
    raise MillraceError(Problem(f"the rate trace has no second column; {found}", hint, path, 1))


def _time(text: str | None, path: str, line: int) -> float:
    text = text or ""  # None in a line with fewer columns than the header
    try:
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass  # not a number, so a date
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write seconds or an ISO 8601 timestamp"
        raise MillraceError(Problem(f"{text!r} is not a time", hint, path, line)) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _rate(text: str | None, path: str, line: int) -> float:
    text = text or ""  # None in a line with fewer columns than the header
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate >= 0):
        raise MillraceError(Problem(f"{text!r} is not a rate", "write records per second, 0 or more", path, line))
    return rate
