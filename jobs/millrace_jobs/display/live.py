"""The display in a terminal: the last batches in a table redrawn in place, everything else above it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millrace_jobs.display.plain import cell_text, print_rows
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_jobs.plan.control import Pin
from millrace_support.run_figures import RunSummary
from millrace_support.terminal_texts import count_text

SHOWN_BATCHES = 8

_COLUMNS = ("batch", "rows", "rows/s", "results", "W", "lag", "imbalance", "plan", "late", "rejected")
_OUTCOME_STYLE = {"finished": "green", "drained": "yellow", "failed": "red"}


class LiveDisplay:
    """A display that redraws itself a few times a second, from ``starting`` until ``finished`` or ``close``.

    Args:
        console: a terminal.
        name: name of the query.
        results: where the rows of the sink ``console`` go: to another output as plain lines, but above the table if
            that is a terminal; None for the terminal.
        clock: monotonic clock in seconds, for the elapsed time of the run.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        results: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._name = name
        # FORCE_COLOR and TTY_COMPATIBLE make a terminal of any file for Rich, whose results would be above the table
        self._results = None if results is None or results.file.isatty() else results
        self._clock = clock
        self._began = clock()
        self._running: tuple[int, float] | None = None
        self._waits: tuple[str, ...] = ()
        self._recent: tuple[BatchReport, ...] = ()
        self._watermark: datetime | None = None
        self._doing = "waiting for the first batch"
        # what anything else prints must not break the table, and must not leave the file that stdout may be
        self._live = Live(console=console, get_renderable=self.render, redirect_stdout=self._results is None)

    def starting(self, step: str) -> None:
        """Show the step below the name of the query."""
        self._doing = step
        self._live.start()

    def started(self, facts: Mapping[str, str]) -> None:
        """Print the facts that are known at the start."""
        self._began = self._clock()
        self._doing = "waiting for the first batch"
        self._live.start()
        self._console.print(_pairs({"query": self._name, **facts}))

    def began(self, batch: int) -> None:
        """Show the batch as running, below those that have finished."""
        self._running = batch, self._clock()

    def waits(self, sentences: Sequence[str]) -> None:
        """Show below the running batch what it waits for; nothing if that is empty."""
        self._waits = tuple(sentences)

    def batch(self, report: BatchReport) -> None:
        """Add the batch to the table, and drop the oldest one if the table is full."""
        if self._running is not None and self._running[0] == report.batch:
            self._running = None
        self._waits = ()
        # replaced, never changed in place: the thread that redraws may be reading it
        self._recent = (*self._recent, report)[-SHOWN_BATCHES:]
        self._watermark = report.watermark or self._watermark

    def message(self, text: str) -> None:
        """Print the text above the table."""
        self._console.print(Text(text))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print the rows above the table of batches, or to where results go."""
        if self._results is not None:
            self.message(title)
            print_rows(self._results, columns, rows)
            return
        table = Table(box=box.SIMPLE_HEAD)
        for name in columns:
            table.add_column(Text(cell_text(name)))
        for row in rows:
            table.add_row(*(Text(cell_text(cell)) for cell in row))
        self._console.print(Text(title, "bold"), table)

    def finished(self, summary: RunSummary) -> None:
        """Leave the table of finished batches as it is and print the summary below."""
        self._running, self._waits = None, ()
        self.close()
        self._console.print(_summary(self._name, summary))

    def close(self) -> None:
        """Stop redrawing and show the cursor again."""
        self._live.stop()

    def render(self) -> RenderableType:
        """Return the current content of the live part."""
        elapsed = duration_text(self._clock() - self._began)
        header = Text.assemble((self._name, "bold"), f"  {elapsed}  watermark {moment_text(self._watermark)}")
        running = self._running
        if not self._recent and running is None:
            return Group(header, Text(self._doing, "dim"))
        table = _batches(self._recent)
        if running is not None:
            number, began = running
            table.add_row(str(number), *[""] * 6, f"running, {duration_text(self._clock() - began)}", style="dim")
        return Group(header, table, *(Text(each, "yellow") for each in self._waits))


def _batches(reports: Sequence[BatchReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "plan" else "right", no_wrap=True)
    for report in reports:
        cost = placement_of(report)
        table.add_row(
            str(report.batch),
            count_text(report.rows),
            count_text(report.rows_per_second),
            "-" if report.results is None else count_text(report.results),
            Text(f"{report.utilization:.2f}", _utilization_style(report.utilization)),
            count_text(report.waiting),
            "-" if cost is None else f"{cost.load_imbalance_ratio:.2f}",
            plan_text(report.pin),
            count_text(report.late),
            count_text(report.rejected),
        )
    return table


def _utilization_style(utilization: float) -> str:
    """Return the style for W: red if batches take longer than their interval, so that the lag grows."""
    if utilization < 0.8:
        return "green"
    return "yellow" if utilization < 1 else "bold red"


def _summary(name: str, summary: RunSummary) -> RenderableType:
    headline = Text.assemble(
        (f"{name} {summary.outcome}", f"bold {_OUTCOME_STYLE[summary.outcome]}"),
        f": {summary.rows:,} rows in {summary.batches:,} batches, {duration_text(summary.seconds)}"
        f" ({count_text(summary.rows_per_second)} rows/s), after a start of {duration_text(summary.start_seconds)}",
    )
    facts = {"results": f"{summary.results:,} in {summary.output}"}
    if summary.mean_utilization is not None and summary.p95_utilization is not None:
        facts["W"] = f"{summary.mean_utilization:.2f} on average, 95 % of batches within {summary.p95_utilization:.2f}"
    facts["late"] = f"{summary.late:,} rows"
    facts["rejected"] = f"{summary.rejected:,} rows"
    facts["plan changes"] = f"{summary.plan_changes:,}"
    return Group(headline, _pairs(facts))


def _pairs(facts: Mapping[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for key, text in facts.items():
        grid.add_row(Text(f"  {key}", "dim"), Text(text))
    return grid


def duration_text(seconds: float) -> str:
    """Format a duration: tenths of a second below a minute, then ``h:mm:ss``."""
    return f"{seconds:.1f} s" if seconds < 59.95 else str(timedelta(seconds=round(seconds)))


def moment_text(time: datetime | None) -> str:
    """Format a point in event time, in UTC to the second; ``-`` for None."""
    return "-" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def plan_text(pin: Pin | None) -> str:
    """Format a plan as algorithm, replicas (m) and workers (n); ``-`` for None."""
    return "-" if pin is None else f"{pin.algorithm} m={pin.replicas} n={pin.workers}"
