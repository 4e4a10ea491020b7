"""The display as plain lines: one event per line, as ``key=value`` with stable names, for logs and for grep.

A message is a line that begins with ``note: ``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_support.run_figures import RunSummary
from millrace_support.terminal_texts import printable


class PlainDisplay:
    """A display that writes one line per event and holds no state."""

    def __init__(self, console: Console, name: str, results: Console | None = None) -> None:
        self._console = console
        self._name = name
        self._results = results or console

    def starting(self, step: str) -> None:
        """Print one line per step."""
        self._print(_line([("starting", self._name), ("step", step)]))

    def started(self, facts: Mapping[str, str]) -> None:
        """Print one line with the facts that are known at the start."""
        self._print(_line([("started", self._name), *facts.items()]))

    def began(self, batch: int) -> None:
        """Do nothing: a batch is a line once it has finished."""

    def waits(self, sentences: Sequence[str]) -> None:
        """Do nothing: a message says once what the batch waits for."""

    def batch(self, report: BatchReport) -> None:
        """Print one line per batch; missing results, imbalance or plan are ``-``."""
        cost, pin = placement_of(report), report.pin
        fields: dict[str, object] = {
            "batch": report.batch,
            "rows": report.rows,
            "rows_per_s": round(report.rows_per_second),
            "results": "-" if report.results is None else report.results,
            "W": f"{report.utilization:.2f}",
            "lag": report.waiting,
            "imbalance": "-" if cost is None else f"{cost.load_imbalance_ratio:.2f}",
            "plan": "-" if pin is None else f"{pin.algorithm}/{pin.replicas}/{pin.workers}",
            "late": report.late,
            "rejected": report.rejected,
        }
        self._print(_line(fields.items()))

    def message(self, text: str) -> None:
        """Print the text as a note."""
        self._print(f"note: {text}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print the title as a note, then one line per row to where results go."""
        self.message(title)
        print_rows(self._results, columns, rows)

    def finished(self, summary: RunSummary) -> None:
        """Print one line with the whole run."""
        fields: dict[str, object] = {
            summary.outcome: self._name,
            "batches": summary.batches,
            "rows": summary.rows,
            "rows_per_s": round(summary.rows_per_second),
            "results": summary.results,
            "late": summary.late,
            "rejected": summary.rejected,
            "start_seconds": f"{summary.start_seconds:.1f}",
            "seconds": f"{summary.seconds:.1f}",
            "W_mean": _ratio(summary.mean_utilization),
            "W_p95": _ratio(summary.p95_utilization),
            "plan_changes": summary.plan_changes,
            "output": summary.output,
        }
        self._print(_line(fields.items()))

    def close(self) -> None:
        """Do nothing: the display holds no resources."""

    def _print(self, line: str) -> None:
        _print_line(self._console, line)


class ResultsConsole(Console):
    """The standard output for results. A reader who closes it fails the batch, in whichever thread prints."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise MillraceError: with Rich's SystemExit, a thread of Spark's callbacks would end, and not the run."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # what the file still holds would be written at the exit
        os.close(nowhere)
        hint = "read it to its end, redirect it to a file, or give the query a sink of files"
        raise MillraceError(Problem("standard output was closed before the end of the results", hint))


def print_rows(console: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print one line per row."""
    for row in rows:
        _print_line(console, _line(zip(columns, row, strict=True)))


def _print_line(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


def cell_text(cell: object) -> str:
    """Format a value of a result on one line; control characters become escapes."""
    return "NULL" if cell is None else printable(str(cell))


def _line(fields: Iterable[tuple[str, object]]) -> str:
    return " ".join(f"{_quoted(cell_text(name))}={_quoted(cell_text(field))}" for name, field in fields)


def _quoted(text: str) -> str:
    """Return the text, quoted if it is empty or contains a space, a quote or an equals sign."""
    plain = text and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


def _ratio(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
