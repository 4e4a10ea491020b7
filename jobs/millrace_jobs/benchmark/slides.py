"""Cutting a recorded stream into slides, and the lengths of windows and slides.

A stream with event times is cut at multiples of the slide since 1970, as Spark aligns its windows. Without event times,
it is cut after a fixed number of records. Records keep their input order, in which partitioners place them. The current
slide is that of the latest time so far. A record that is late, or has no time, belongs to the current slide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import PositiveDuration

from .reading import NO_TIME, Stream

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
        raise MillraceError(
            Problem(
                f"--slide {slide} does not divide --window {window}",
                "write a window that is a whole number of slides long",
            )
        )
    if spans.slides > _MOST_SLIDES:
        raise MillraceError(
            Problem(
                f"--window {window} is {spans.slides:,} slides of {slide} long",
                f"write a longer --slide: at most {_MOST_SLIDES:,} make up a window",
            )
        )
    return spans


def cut(stream: Stream, spans: Spans) -> Slides:
    """Cut a stream with at least one record into slides. Raises MillraceError if there are too many."""
    rows = len(stream.hashes)
    if stream.micros is None:
        numbers = np.arange(-(-rows // spans.slide))
        return _few(Slides(numbers, np.append(numbers * spans.slide, rows), 0, 0))
    has_time = stream.micros != NO_TIME
    latest = np.maximum.accumulate(stream.micros)
    latest[: np.argmax(has_time)] = latest[np.argmax(has_time)]  # records before the first time get the first time
    current = latest // spans.slide
    edges = np.concatenate([[0], np.flatnonzero(np.diff(current)) + 1, [rows]])
    late = np.count_nonzero(has_time & (stream.micros // spans.slide < current))
    return _few(Slides(current[edges[:-1]], edges, int(late), int(np.count_nonzero(~has_time))))


def _few(slides: Slides) -> Slides:
    if len(slides.numbers) > _MOST_SLIDES:
        raise MillraceError(
            Problem(
                f"--slide cuts the input into {len(slides.numbers):,} slides",
                f"write a longer one: at most {_MOST_SLIDES:,}",
            )
        )
    return slides


def _length(text: str, option: str, timed: bool) -> int:
    if timed:
        try:
            return PositiveDuration(text).microseconds
        except ValueError:
            raise MillraceError(
                Problem(
                    f"{option} {text} is not a duration longer than zero",
                    "with --time, write a whole number and a unit, such as 500ms, 60s or 10 minutes",
                )
            ) from None
    if not re.fullmatch("0*[1-9][0-9]{0,14}", text):
        raise MillraceError(
            Problem(
                f"{option} {text} is not a number of records",
                "write a whole number of at least 1, or name the column of event time by --time",
            )
        )
    return int(text)
