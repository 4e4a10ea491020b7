"""Charts as SVG: lines over time, a heat map, and bars.

A drawing fills the width that it gets, so its coordinates stretch, while lines keep their width
(``vector-effect: non-scaling-stroke``) and labels are HTML beside it. Each chart is an image with a text for readers
who do not see it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from millrace_jobs.page.heat_map import HeatMap
from millrace_jobs.page.line_charts import ChartLine, LineChart
from millrace_jobs.page.view import Bar
from millrace_support.pages.elements import element
from millrace_support.terminal_texts import count_text

_WIDTH, _HEIGHT = 600.0, 120.0
_ZEROS = re.compile(r"\.0+(?=\D|$)|(?<=\.\d)0(?=\D|$)")
"""Decimals of a tick that say nothing, as in 50.0k and 2.50M."""
_ROW = 14
"""Height of a row of the heat map, in pixels."""

_CUT_SHARE, _CUT_LEAST, _NEVER_CUT = 0.1, 10, 5
"""Largest share of values that the top of an axis may cut off, values that a chart needs for that, and how many of the
newest ones are never cut."""

_CUT_TIMES = 3.0
"""How many times higher an axis has to be with all values for some to be cut off."""

LEVELS = (0.25, 0.75, 1.25, 1.75, 2.5, 4.0)
"""Ratios to the mean load at which the heat map takes the next darker shade."""

LEGEND = ("below ¼", "½", "even", "1½", "2", "3", "4 or more")
"""What each shade stands for, in times the mean load."""


def line_chart(chart: LineChart) -> Element:
    """Return a chart with its newest values, axes, and lines."""
    title = f"chart-{chart.id}"
    newest = [
        element(
            "span",
            element("strong", each.text),
            f" {each.name}" if each.name else None,
            f" {each.before}" if each.before else None,
            class_=f"now line-{number}",
        )
        for number, each in enumerate(chart.series)
    ]
    caption = element(
        "figcaption",
        element("span", element("b", chart.title), " ", element("small", chart.unit), id=title, class_="name"),
        element("span", newest, class_="values") if newest else None,
    )
    if not chart.series:
        return element("figure", caption, element("p", chart.absent, class_="absent"), class_="chart")
    points = [point for series in chart.series for point in series.points]
    first, last = min(time for time, _ in points), max(time for time, _ in points)
    least = chart.reference or chart.least
    highest = max(_most_shown([value for _, value in series.points]) for series in chart.series)
    top = nice_top(highest, at_least=least)
    cut = {time: max(value for at, value in points if at == time) for time, value in points if value > top}

    def x(time: float) -> float:
        return 4 + (_WIDTH - 10) * ((time - first) / (last - first) if last > first else 1.0)

    def y(value: float) -> float:
        return _HEIGHT - 2 - (_HEIGHT - 8) * min(value / top, 1.0)

    grid = "".join(f"M0 {y(value):g}H{_WIDTH:g}" for value in (0.0, top / 2, top))
    drawing = element(
        "svg",
        element("path", d=grid, class_="grid"),
        element("path", d=f"M0 {y(chart.reference):g}H{_WIDTH:g}", class_="reference") if chart.reference else None,
        [
            element("path", d=f"M{x(each):.1f} 0V{_HEIGHT:g}", class_="mark")
            for each in chart.marks
            if first <= each <= last
        ],
        *(_lines(series, number, x, y) for number, series in reversed(list(enumerate(chart.series)))),
        [element("path", d=f"M{x(time):.1f} 0V10", class_="cut") for time in cut],
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=_in_words(chart),
    )
    every = "batch" if chart.batches == len(chart.series[0].points) else "point"
    note = element("div", _cut_note(cut, top, every), class_="cut-note") if cut else None
    ticks = [element("span", _tick(value, top)) for value in (top, top / 2, 0.0)]
    times = [element("span", _time(first)), element("span", f"{_time(last)} UTC")]
    plot = element(
        "div",
        element("div", ticks, class_="y", aria_hidden="true"),
        drawing,
        element("div", times, class_="x", aria_hidden="true"),
        note,
        class_="plot",
    )
    return element("figure", caption, plot, class_="chart", aria_labelledby=title)


def _most_shown(values: Sequence[float]) -> float:
    """Return the highest value that an axis shows: of all, or without the few that would leave no room to the others.

    The first batches after a start take several times as long as all others, since processes start and code is
    compiled. The newest values are always shown.
    """
    if len(values) < _CUT_LEAST:
        return max(values)
    ordered = sorted(values)
    usual = max(ordered[len(ordered) - 1 - int(_CUT_SHARE * len(ordered))], *values[-_NEVER_CUT:])
    return usual if 0 < usual * _CUT_TIMES < ordered[-1] else ordered[-1]


def _cut_note(cut: Mapping[float, float], top: float, every: str) -> str:
    """Return how many values by time are above the top of an axis, and how high they go; each is that of ``every``."""
    time, most = max(cut.items(), key=lambda each: each[1])
    highest = f"{number_text(most)} at {_time(time)}"
    if len(cut) == 1:
        return f"1 {every} above {_tick(top, top)} is cut off: {highest}"
    plural = f"{every}es" if every == "batch" else f"{every}s"
    return f"{len(cut)} {plural} above {_tick(top, top)} are cut off, up to {highest}"


def _lines(series: ChartLine, number: int, x: Callable[[float], float], y: Callable[[float], float]) -> list[Element]:
    """Return the line of a series and the dot at its end."""
    steps = [f"{x(time):.1f} {y(value):.1f}" for time, value in series.points]
    line = element("path", d="M" + "L".join(steps), class_=f"line line-{number}")
    return [line, element("path", d=f"M{steps[-1]}h0", class_=f"dot line-{number}")]


def _in_words(chart: LineChart) -> str:
    """Return the chart as a sentence: range and newest value of each line."""
    parts = []
    for series in chart.series:
        values = [value for _, value in series.points]
        name = f"{series.name}: " if series.name else ""
        parts.append(f"{name}from {number_text(min(values))} to {number_text(max(values))}, now {series.text}")
    return f"{chart.title}, {chart.unit}, over {chart.batches} batches: {'; '.join(parts)}"


def nice_top(value: float, at_least: float = 0.0) -> float:
    """Return the top of an axis from 0: 1, 2, 4, 6, 8 or 10 times a power of ten, and not below the value."""
    value = max(value, at_least)
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10, 20) if step * power >= value * (1 - 1e-9))


def number_text(value: float) -> str:
    """Format a value of a chart: counts from 10 on as in the terminal, smaller values with up to two decimals."""
    return count_text(value) if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _tick(value: float, top: float) -> str:
    return f"{value:.3g}" if top < 10 else _ZEROS.sub("", count_text(value))


def _time(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S}"


def heat_map(heat: HeatMap) -> Element:
    """Return a map with a column for each batch and a row for each worker; darker is more than the mean load."""
    columns, workers = len(heat.ratios), len(heat.newest)
    cells: list[list[str]] = [[] for _ in LEGEND]
    for column, loads in enumerate(heat.ratios):
        for worker, ratio in enumerate(loads):
            level = sum(ratio >= bound for bound in LEVELS)
            cells[level].append(f"M{column} {worker}h1v1h-1z")
    busiest = max(range(workers), key=lambda worker: heat.newest[worker])
    ratio = heat.ratios[-1][busiest]
    words = (
        f"{heat.title}, {columns} batches by {workers}: in batch {heat.batches[-1]}, "
        f"number {busiest * heat.size} has the most, {heat.newest[busiest]:,} {heat.unit}, {ratio:.1f} times the mean"
    )
    drawing = element(
        "svg",
        [element("path", d="".join(path), class_=f"heat-{level}") for level, path in enumerate(cells) if path],
        viewBox=f"0 0 {columns} {workers}",
        height=workers * _ROW,
        preserveAspectRatio="none",
        role="img",
        aria_label=words,
    )
    every = 1 if workers <= 16 else 4
    numbers = element(
        "svg",
        [
            element("text", str(worker * heat.size), x=26, y=(worker + 0.5) * _ROW, class_="row")
            for worker in range(0, workers, every)
        ],
        width=32,
        height=workers * _ROW,
        aria_hidden="true",
    )
    ends = [element("span", f"batch {heat.batches[0]}"), element("span", str(heat.batches[-1]))]
    return element(
        "div",
        numbers,
        drawing,
        element("div", ends, class_="x", aria_hidden="true"),
        class_="heat",
        role="presentation",
    )


def heat_legend() -> Element:
    """Return the legend of the heat map."""
    shades = [
        element(
            "li",
            element(
                "svg",
                element("rect", width=10, height=10, class_=f"heat-{level}"),
                width=10,
                height=10,
                aria_hidden="true",
            ),
            f" {text}",
        )
        for level, text in enumerate(LEGEND)
    ]
    return element("ul", shades, class_="legend", aria_label="shades: load as a multiple of the mean of its batch")


def bars(rows: Sequence[Bar], columns: Sequence[str], caption: str) -> Element:
    """Return bars as a table: a label, the bar, and its figures in a row each."""
    head = element(
        "tr",
        element("th", columns[0], scope="col"),
        element("td"),
        *(element("th", name, scope="col", class_="number") for name in columns[1:]),
    )
    body = [
        element(
            "tr",
            element("th", row.label, scope="row"),
            element("td", _bar(row), class_="bar"),
            *(element("td", text, class_="number") for text in row.texts),
        )
        for row in rows
    ]
    return element(
        "table",
        element("caption", caption, class_="quiet"),
        element("thead", head),
        element("tbody", body),
        class_="bars",
    )


def _bar(row: Bar) -> Element:
    place = {"x": f"{row.start:.2%}", "width": f"{max(row.length, 0.004):.2%}", "height": "100%"}
    track = element("rect", width="100%", height="100%", class_="track")
    return element("svg", track, element("rect", class_="fill", **place), height=8, aria_hidden="true")
