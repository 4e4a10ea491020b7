"""A recorded stream: reading it from a file of CSV, JSON lines or Parquet, and cutting it into slides.

Only the hashes of the keys are stored: 8 bytes per record, and 8 more for its time.

A stream with event times is cut at multiples of the slide since 1970, as Spark aligns its windows. Without event times,
it is cut after a fixed number of records. Records keep their input order, in which partitioners place them. The current
slide is that of the latest time so far. A record that is late, or has no time, belongs to the current slide.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import PositiveDuration
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.file_formats import FORMATS_BY_SUFFIX, LONGEST_LINE
from millrace_jobs.sources.formats.parquet_format import open_parquet
from millrace_jobs.sources.formats.text_values import to_declared

NO_TIME = np.iinfo(np.int64).min
"""Value in place of the time of a record without one."""


@dataclass(frozen=True)
class Stream:
    """The part of a recorded stream that partitioners use, in the order of its records."""

    hashes: Hashes
    micros: NDArray[np.int64] | None
    """Event times in microseconds since 1970, or NO_TIME, shape ``(rows,)``; None without a time column."""
    hashing_seconds: float
    """Processor time of hashing the keys."""


def read_stream(file: Path, keys: Sequence[str], time_column: str | None) -> Stream:
    """Read the records of ``file``, with the columns ``keys`` as a composite key.

    The keys of a CSV file are compared as text; an empty field is null. Null and NaN are keys of their own. Times are
    timestamps, dates, text in ISO 8601, or numbers of seconds since 1970.

    Raises:
        MillraceError: the file cannot be read, has no records, or lacks a column.
    """
    columns = list(dict.fromkeys([*keys, *([] if time_column is None else [time_column])]))
    try:
        table = _read(file, columns)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _problem(file, f"cannot be read: {str(error).splitlines()[0]}") from None
    if not table.num_rows:
        raise _problem(file, "has no records", "give a file with at least one")
    micros = None if time_column is None else _micros(table, time_column, file)
    _hashes(table.slice(0, 1), keys, file)  # compiles the kernels, outside the measured time
    began = time.thread_time()
    hashes = _hashes(table, keys, file)
    return Stream(hashes, micros, time.thread_time() - began)


def _read(file: Path, columns: list[str]) -> pa.Table:
    """Read these columns of the file; columns of a CSV file as text."""
    suffix = (file.with_suffix("") if file.suffix == ".gz" else file).suffix
    if suffix not in FORMATS_BY_SUFFIX or (file.suffix == ".gz" and suffix == ".parquet"):
        hint = f"name it {', '.join('*' + known for known in FORMATS_BY_SUFFIX)}, or *.csv.gz and the like"
        extension = suffix + (".gz" if file.suffix == ".gz" else "")
        what = f"the extension {extension} is not that of a known format" if extension else "the name has no extension"
        raise _problem(file, what, hint)
    if not file.is_file():
        raise _problem(file, "there is no such file", "check the path")
    match FORMATS_BY_SUFFIX[suffix]:
        case "parquet":
            parquet = open_parquet(str(file))
            _check_columns(parquet.schema_arrow.names, columns, file)
            return parquet.read(columns=columns)
        case "csv":
            return _read_csv(file, columns)
    if not file.stat().st_size:
        return pa.table({})
    table = pa.json.read_json(file, pa.json.ReadOptions(block_size=LONGEST_LINE))
    _check_columns(table.column_names, columns, file)
    return table.select(columns)


def _read_csv(file: Path, columns: list[str]) -> pa.Table:
    if not file.stat().st_size:
        return pa.table({})
    _check_columns(pa.csv.open_csv(file).schema.names, columns, file)
    as_text = pa.csv.ConvertOptions(
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    return pa.csv.read_csv(file, convert_options=as_text)


def _check_columns(available: list[str], wanted: list[str], file: Path) -> None:
    if missing := [name for name in wanted if name not in available]:
        hint = f"its columns are {', '.join(available)}"
        if any("," in name for name in missing):
            hint += "; repeat --key for each column of the key"
        raise _problem(file, f"has no column {', '.join(missing)}", hint)
    if repeated := [name for name in wanted if available.count(name) > 1]:
        raise _problem(file, f"has the column {', '.join(repeated)} more than once", "name every column once")


def _hashes(table: pa.Table, keys: Sequence[str], file: Path) -> Hashes:
    try:
        return hash_columns([table.column(key) for key in keys], table.num_rows)
    except TypeError as error:
        raise _problem(file, f"cannot be partitioned by {', '.join(keys)}: {error}") from None


def _micros(table: pa.Table, name: str, file: Path) -> NDArray[np.int64]:
    column = _normalized_times(table.column(name))
    if column.null_count == len(column):
        raise _problem(file, f"has no value in the time column {name}", "name another one, or leave out --time")
    kinds = "give timestamps, text in ISO 8601, or numbers of seconds since 1970"
    if not (pa.types.is_timestamp(column.type) or pa.types.is_string(column.type) or _is_number(column.type)):
        raise _problem(file, f"has {column.type} in the time column {name}", kinds)
    try:
        unit = "seconds" if _is_number(column.type) else "iso"
        times = to_declared(column.combine_chunks(), pa.field(name, TIMESTAMP), unit)
    except ValueError as error:
        raise _problem(file, str(error), kinds) from None
    micros: NDArray[np.int64] = times.cast(pa.int64()).fill_null(int(NO_TIME)).to_numpy()
    return micros


def _normalized_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert dates to timestamps, numeric text to numbers, and NaN and infinities to null."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_date(column.type):
        return column.cast(pa.timestamp("us"))
    if types.is_large_string(column.type) or types.is_string_view(column.type):
        column = column.cast(pa.string())
    if types.is_string(column.type):
        try:
            column = column.cast(pa.float64())
        except pa.ArrowInvalid:
            return column
    return pc.if_else(pc.is_finite(column), column, None) if types.is_floating(column.type) else column


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _problem(file: Path, message: str, hint: str = "") -> MillraceError:
    return MillraceError(Problem(message, hint, str(file)))


_MOST_SLIDES = 100_000
"""Most slides in a window, and most slides with records in a stream: each of them costs time and memory."""


@dataclass(frozen=True)
class Spans:
    """Lengths of window and slide, in microseconds of event time (``timed``) or in records."""

    window: int
    slide: int
    timed: bool

    @property
    def slides(self) -> int:
        """Slides per window."""
        return self.window // self.slide


@dataclass(frozen=True)
class Slides:
    """The slides that have records; a sparse stream may have far more that are empty."""

    numbers: NDArray[np.int64]
    """Numbers of the slides, ascending, shape ``(slides,)``; slide ``i`` spans ``[i * slide, (i + 1) * slide)``."""
    edges: NDArray[np.int64]
    """Record positions, shape ``(slides + 1,)``; the j-th slide has the records ``[edges[j], edges[j + 1])``."""
    late: int
    """Number of records that are older than their slide."""
    without_time: int


def parse_spans(window: str, slide: str, *, timed: bool) -> Spans:
    """Parse ``--window`` and ``--slide``: durations with event time, otherwise numbers of records.

    Raises:
        MillraceError: one of them is invalid, the slide does not divide the window, or a window has too many slides.
    """
    spans = Spans(_length(window, "--window", timed), _length(slide, "--slide", timed), timed)
    if spans.window % spans.slide:
        hint = "write a window that is a whole number of slides long"
        raise MillraceError(Problem(f"--slide {slide} does not divide --window {window}", hint))
    if spans.slides > _MOST_SLIDES:
        message = f"--window {window} is {spans.slides:,} slides of {slide} long"
        raise MillraceError(Problem(message, f"write a longer --slide: at most {_MOST_SLIDES:,} make up a window"))
    return spans


def cut(stream: Stream, spans: Spans) -> Slides:
    """Cut a stream with at least one record into slides. Raises MillraceError if there are too many."""
    rows = len(stream.hashes)
    if stream.micros is None:
        numbers = np.arange(-(-rows // spans.slide))
        return _checked_count(Slides(numbers, np.append(numbers * spans.slide, rows), 0, 0))
    has_time = stream.micros != NO_TIME
    latest = np.maximum.accumulate(stream.micros)
    latest[: np.argmax(has_time)] = latest[np.argmax(has_time)]  # records before the first time get the first time
    current = latest // spans.slide
    edges = np.concatenate([[0], np.flatnonzero(np.diff(current)) + 1, [rows]])
    late = np.count_nonzero(has_time & (stream.micros // spans.slide < current))
    return _checked_count(Slides(current[edges[:-1]], edges, int(late), int(np.count_nonzero(~has_time))))


def _checked_count(slides: Slides) -> Slides:
    if len(slides.numbers) > _MOST_SLIDES:
        message = f"--slide cuts the input into {len(slides.numbers):,} slides"
        raise MillraceError(Problem(message, f"write a longer --slide: at most {_MOST_SLIDES:,} make up an input"))
    return slides


def _length(text: str, option: str, timed: bool) -> int:
    if not timed:
        if re.fullmatch("0*[1-9][0-9]{0,14}", text):
            return int(text)
        hint = "write a whole number of at least 1, or name the column of event time with --time"
        raise MillraceError(Problem(f"{option} {text} is not a number of records", hint))
    try:
        return PositiveDuration(text).microseconds
    except ValueError:
        hint = "with --time, write whole numbers, each with a unit, such as 500ms, 60s or 1h30m"
        raise MillraceError(Problem(f"{option} {text} is not a duration longer than zero", hint)) from None
