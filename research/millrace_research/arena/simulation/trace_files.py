"""Traces from CSV files: a column of times and one of rates, or one column of record arrival times."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from millrace_research.arena.simulation.traces import Trace

_DELIMITERS = "|\t;,"
_TIMES = ("timestamp", "time", "datetime", "date", "ts", "seconds")
_RATES = ("value", "rate", "messages", "count", "requests", "records", "rows", "rps", "requests_per_second")
_EVENTS_PER_BIN = 30
"""Average events per bin; with this many, counting noise is below a fifth."""

_LARGEST_RATE = 1e15
_LARGEST_UNIX = 1e11
"""Largest accepted Unix time in seconds, in the year 5138; larger values are milliseconds or finer."""


class TraceFileError(ValueError):
    """A file that cannot be read as a trace.

    Attributes:
        file: the file.
        line: line number, from 1; None if the whole file is at fault.
        value: the rejected text, or None.
        problem: what is wrong, and what to write instead.
    """

    def __init__(self, file: Path, line: int | None, value: str | None, problem: str) -> None:
        self.file, self.line, self.value, self.problem = file, line, value, problem
        where = f"{file}" if line is None else f"{file}, line {line}"
        super().__init__(f"{where}: {problem}" if value is None else f"{where}: {value!r}: {problem}")


def read_trace(file: Path) -> Trace:
    """Read the trace in ``file``; it starts at the first time in the file and takes its name from the file.

    Columns are separated by commas, semicolons, tabs or bars. Two columns are the time and the rate. With more
    columns, a header must name the time and the rate by one of ``_TIMES`` and ``_RATES``. With one column, or a header
    without a rate, each line is one record that arrived at that time. Several columns without a rate whose lines are
    equally spaced are rejected: they are samples. Times are seconds since 1970 or ISO 8601, in UTC unless they have
    another time zone.

    Rates are read as records per second. If a file counts per another unit of time, the shape of the trace is still
    right, and ``Trace.scaled`` corrects its size.

    Raises:
        TraceFileError: if the file is not such a trace, with file, line and value.
        OSError: if the file cannot be opened.
    """
    columns, lines = _lines(file)
    times = [_time(file, line, cells[columns.time]) for line, cells in lines]
    if columns.rate is None:
        if columns.count > 1 and len(times) > 2 and np.ptp(np.diff(times)) == 0:
            problem = f"the lines are samples without a column of rates; name that column {' or '.join(_RATES)}"
            raise TraceFileError(file, None, None, problem)
        return _of_events(file, times)
    rates = [_rate(file, line, cells[columns.rate]) for line, cells in lines]
    for (line, cells), before, time in zip(lines[1:], times, times[1:], strict=False):
        if time < before:
            problem = "this is before the line above; sort the file by time"
            raise TraceFileError(file, line, cells[columns.time], problem)
    if len(times) < 2:
        raise TraceFileError(file, None, None, "a trace needs rates at two times or more")
    return Trace(file.stem, np.array(times) - times[0], np.array(rates))


@dataclass(frozen=True)
class _Columns:
    """Column positions, from 0; ``rate`` is None if each line is one record."""

    time: int
    rate: int | None
    count: int


def _lines(file: Path) -> tuple[_Columns, list[tuple[int, list[str]]]]:
    """Return the column positions, and all lines with data: the number of each, from 1, and its cells."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceFileError(file, None, None, "the file is not UTF-8 text; write a CSV file") from error
    rows = text.splitlines()
    first = next((row for row in rows if row.strip()), None)
    if first is None:
        raise TraceFileError(file, None, None, "the file is empty; write a time and a rate in each line")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(rows, delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        problem = f"not a line of a CSV file: {error}; check its quotes"
        raise TraceFileError(file, reader.line_num, None, problem) from None
    number, header = lines[0]
    if any(_is_time(cell) for cell in header):
        columns = _unnamed(file, number, header)
    else:
        columns, lines = _named(file, number, header), lines[1:]
    if not lines:
        raise TraceFileError(file, None, None, "there is no line after the header; write lines of a time and a rate")
    for number, cells in lines:
        if len(cells) != columns.count:
            wrong = delimiter.join(cells)
            raise TraceFileError(file, number, wrong, f"{columns.count} columns are needed, as in the first line")
    return columns, lines


def _named(file: Path, line: int, header: Sequence[str]) -> _Columns:
    names = [name.lower() for name in header]
    time = next((names.index(name) for name in _TIMES if name in names), None)
    rate = next((names.index(name) for name in _RATES if name in names), None)
    if time is None and len(names) == 2:
        time = 0 if rate is None else 1 - rate
    elif time is None and len(names) == 1 and rate is None:
        time = 0
    if time is None:
        raise TraceFileError(file, line, ", ".join(header), f"name the column of times {' or '.join(_TIMES)}")
    if rate is None and len(names) == 2:
        rate = 1 - time
    return _Columns(time, rate, len(names))


def _unnamed(file: Path, line: int, cells: Sequence[str]) -> _Columns:
    if len(cells) > 2:
        problem = "a file without a header has one column of times, or two of times and rates; write a header for more"
        raise TraceFileError(file, line, ", ".join(cells), problem)
    return _Columns(0, 1 if len(cells) == 2 else None, len(cells))


def _is_time(cell: str) -> bool:
    try:
        _seconds(cell)
    except ValueError:
        return False
    return True


def _seconds(cell: str) -> float:
    try:
        seconds = float(cell)
    except ValueError:
        moment = datetime.fromisoformat(cell)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        raise ValueError(cell)
    return seconds


def _time(file: Path, line: int, cell: str) -> float:
    try:
        seconds = _seconds(cell)
    except ValueError:
        problem = "not a time; write seconds since 1970, or 2024-05-01 12:00:00"
        raise TraceFileError(file, line, cell, problem) from None
    if abs(seconds) >= _LARGEST_UNIX:
        raise TraceFileError(file, line, cell, "times are seconds since 1970; divide milliseconds by 1000")
    return seconds


def _rate(file: Path, line: int, cell: str) -> float:
    try:
        rate = float(cell)
    except ValueError:
        raise TraceFileError(file, line, cell, "not a rate; write a number of records per second") from None
    if not 0 <= rate <= _LARGEST_RATE:
        problem = f"a rate is 0 or more records per second, and {_LARGEST_RATE:.0e} at most"
        raise TraceFileError(file, line, cell, problem)
    return rate


def _of_events(file: Path, times: Sequence[float]) -> Trace:
    """Bin event times into rates: equal bins with about thirty events on average, each at least one second long."""
    moments = np.sort(np.array(times))
    moments -= moments[0]
    duration = float(moments[-1])
    if duration <= 0:
        raise TraceFileError(file, None, None, "all records arrive at one time; a trace needs two times or more")
    bins = max(int(duration / max(_EVENTS_PER_BIN * duration / len(moments), 1.0)), 1)
    counts, edges = np.histogram(moments, bins=bins, range=(0.0, duration))
    middles = (edges[1:] + edges[:-1]) / 2
    rates = counts / (duration / bins)
    points = np.concatenate(([0.0], middles, [duration])), np.concatenate((rates[:1], rates, rates[-1:]))
    return Trace(file.stem, *points)
