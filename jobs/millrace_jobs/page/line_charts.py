"""The charts of the page: quantities of batches over time, before they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace_jobs.page.findings import seconds_text
from millrace_support.run_record import BatchFigures
from millrace_support.terminal_texts import count_text

UNKNOWN = "unknown"
"""What the page says of a lag while a server does not answer that would say it."""


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart: values over time (seconds since 1970).

    ``text`` is its newest value with its meaning; where that is not known, ``before`` is the last one that was.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    text: str
    before: str = ""


@dataclass(frozen=True)
class LineChart:
    """A chart of one quantity.

    ``reference`` is a value to compare with, ``least`` the lowest top of the axis, and ``absent`` says why there is no
    line. The points are of so many ``batches``, and ``marks`` are times of decisions on the plan.
    """

    id: str
    title: str
    unit: str
    series: tuple[ChartLine, ...]
    reference: float | None = None
    least: float = 0.0
    absent: str = ""
    batches: int = 0
    marks: tuple[float, ...] = ()


def line_charts(
    batches: tuple[BatchFigures, ...], marks: tuple[float, ...], *, lag_is_known: bool, as_of: str
) -> tuple[LineChart, ...]:
    """Return the charts of batches.

    Args:
        batches: the batches, the newest last.
        marks: times of decisions on the plan.
        lag_is_known: whether the newest lag still says what waits.
        as_of: the time at which the newest batch ended, as text.
    """
    if not batches:
        return ()
    newest = batches[-1]

    def points(value: Callable[[int], float | None]) -> tuple[tuple[float, float], ...]:
        found = [(each.ended, value(number)) for number, each in enumerate(batches)]
        return tuple((time, each) for time, each in found if each is not None)

    latencies = [each for each in batches if each.median is not None and each.p95 is not None]
    latest = latencies[-1] if latencies else None
    latency: tuple[ChartLine, ...] = ()
    if latest is not None and latest.median is not None and latest.p95 is not None:
        latency = (
            ChartLine("median", points(lambda i: batches[i].median), seconds_text(latest.median)),
            ChartLine("p95", points(lambda i: batches[i].p95), seconds_text(latest.p95)),
        )
    lag = ChartLine("", points(lambda i: float(batches[i].waiting)), count_text(newest.waiting))
    if not lag_is_known:
        lag = replace(lag, text=UNKNOWN, before=f"{lag.text} at {as_of}")
    count = sum(each.batches for each in batches)
    charts = (
        LineChart(
            "rate",
            "Records read",
            "per second",
            (ChartLine("", points(lambda i: batches[i].rate), count_text(newest.rate)),),
        ),
        LineChart(
            "utilization",
            "W",
            "batch time ÷ interval; late above 1",
            (ChartLine("", points(lambda i: batches[i].utilization), f"{newest.utilization:.2f}"),),
            reference=1.0,
        ),
        LineChart("lag", "Lag", "waiting in the sources", (lag,), least=10.0),
        LineChart(
            "latency",
            "Latency",
            "arrival to commit, in seconds",
            latency,
            absent="The sources do not say when records arrived.",
        ),
    )
    return tuple(replace(each, batches=count, marks=marks) for each in charts)
