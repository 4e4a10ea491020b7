"""Runs of queries, each in a process of its own: Spark, its crashes and its signals stay out of this one."""

from __future__ import annotations

import html
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millrace.results import KeptResults, read_results
from millrace.tables import html_table, shown_figure
from millrace_api.errors import MillraceError, Problem
from millrace_support.run_figures import Batch, RunSummary, Status

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace.queries import StreamQuery
    from millrace_api.model.streamquery import StreamQuery as QueryModel

KEPT_BATCHES = 10_000
"""Maximum number of batches that a run remembers; totals are of all."""

_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables by which a notebook's kernel asks for colors, which errors of the process would have in their text."""

_LAST_LINES_SECONDS = 5.0
"""Seconds to wait for the last lines of a process that has ended: one that it started may hold the pipe open."""

_SHOWN_BATCHES = 8
_SHOWN = (
    "number",
    "rows",
    "rows_per_second",
    "results",
    "utilization",
    "waiting",
    "imbalance",
    "algorithm",
    "late",
    "rejected",
)


class _Process:
    """A child process, its request and its events."""

    def __init__(
        self, action: str, query: QueryModel, folder: Path, *, inherited: Sequence[int] = (), **options: Any
    ) -> None:
        """Start it; with ``debug``, what it prints to standard error is printed here, in a notebook below the cell."""
        self._said: list[str] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        debug = bool(options.get("debug"))
        self.handle = subprocess.Popen(
            [sys.executable, "-m", "millrace.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if debug else self._log,
            start_new_session=True,
            pass_fds=inherited,
            env={name: value for name, value in os.environ.items() if name not in _COLORS},
        )
        assert self.handle.stdin is not None
        self._copier = threading.Thread(target=self._copy, daemon=True) if debug else None
        if self._copier is not None:
            self._copier.start()
        request = {"action": action, "document": query.to_document(), "folder": str(folder), **options}
        with suppress(BrokenPipeError):  # it has ended already, and its output says why
            self.handle.stdin.write(json.dumps(request).encode() + b"\n")
            self.handle.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events until the process ends."""
        assert self.handle.stdin is not None
        assert self.handle.stdout is not None
        yield from map(json.loads, self.handle.stdout)
        self.handle.wait()
        with suppress(BrokenPipeError):
            self.handle.stdin.close()
        self.handle.stdout.close()
        if self._copier is not None:
            self._copier.join(_LAST_LINES_SECONDS)
        self._log.seek(0)
        self._said = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        self._log.close()

    def _copy(self) -> None:
        """Print what the process prints, and keep it as if it were not printed."""
        assert self.handle.stderr is not None
        for line in self.handle.stderr:
            # whatever is closed here, reading goes on: a full pipe would stop the process
            with suppress(ValueError):
                self._log.write(line)
            with suppress(OSError, ValueError):
                print(line.decode(errors="replace"), end="", file=sys.stderr, flush=True)
        self.handle.stderr.close()

    def ended_early(self) -> MillraceError:
        """Return the error of a process that has ended without saying how."""
        reason = self._said[-1].removeprefix("error: ") if self._said else "it printed no reason"
        message = f"the process of the query ended with status {self.handle.returncode}: {reason}"
        return MillraceError(Problem(message, "" if "nothing is lost" in reason else "run it again: nothing is lost"))


def ask(action: str, query: QueryModel, folder: Path) -> Mapping[str, Any]:
    """Return the answer of a child process to one question.

    Raises:
        MillraceError: it has found problems, or has ended early.
    """
    process = _Process(action, query, folder)
    last: Mapping[str, Any] = {}
    try:
        for event in process.events():
            last = event
    except BaseException:  # such as an interrupted cell
        process.handle.terminate()
        raise
    if last.get("event") == "failed":
        raise _failure(last)
    if last.get("event") != "done":
        raise process.ended_early()
    return last


_STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Statuses of a process that was asked to end."""


class Run:
    """A query that runs, or has run, in a process of its own. A context manager that stops it at the end of its block.

    Made by ``StreamQuery.start`` and ``StreamQuery.run``. The process ends with this one at the latest.
    """

    def __init__(self, query: StreamQuery, *, once: bool, leaves_open: bool, grace: float, debug: bool) -> None:
        self._query = query
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque(maxlen=KEPT_BATCHES)
        self._messages: deque[str] = deque(maxlen=KEPT_BATCHES)
        self._facts: dict[str, str] = {}
        self._status: Status = "starting"
        self._step = "starting"
        self._rows = self._finished = 0
        self._once = once
        self._summary: RunSummary | None = None
        self._error: MillraceError | None = None
        self._is_done = self._has_ended = self._is_stopping = False
        self._kept = KeptResults(query.model) if query.spec.sink.console is not None else None
        model = query.model if self._kept is None else self._kept.query
        self._spec = model.spec
        options = {"once": once, "leaves_open": leaves_open, "grace": grace, "debug": debug}
        inherited = () if self._kept is None else (self._kept.lock,)
        self._process = _Process("run", model, query._folder, inherited=inherited, **options)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def query(self) -> StreamQuery:
        """The query."""
        return self._query

    @property
    def status(self) -> Status:
        """``starting``, ``running``, ``finished``, ``drained`` after a stop, or ``failed``."""
        return self._status

    @property
    def progress(self) -> Sequence[Batch]:
        """The finished batches, the oldest first; of a long run, the last 10,000."""
        with self._changed:
            return tuple(self._batches)

    @property
    def messages(self) -> Sequence[str]:
        """Messages of the run, such as why records were late; of a long run, the last 10,000."""
        with self._changed:
            return tuple(self._messages)

    @property
    def summary(self) -> RunSummary | None:
        """The totals of the run; None while it runs, and if it has failed before its first batch."""
        return self._summary

    @property
    def metrics_url(self) -> str | None:
        """URL of the metrics on this machine; None until the run has started."""
        return self._facts.get("metrics")

    @property
    def page_url(self) -> str | None:
        """URL of the live page on this machine, while the run goes on; None until it has started."""
        return self._facts.get("page")

    def results(self, *, latest: bool = False, key: Sequence[str] | None = None) -> pa.Table:
        """Return the results so far as an Arrow table, which has no columns before the first result.

        They are read from the files of ``spec.sink``, with those of earlier runs. A query whose sink is the terminal
        keeps the results of this run in a temporary folder, up to 2 GiB, until this object is garbage-collected.
        Results in other places are read with the tools of these places.

        Args:
            latest: whether to return only the newest row of each result. See ``StreamQuery.results``.
            key: columns that identify a result, for ``latest``; by default, those that the query groups by.

        Raises:
            MillraceError: the results are not in local files, or it is not known which columns identify a result.
        """
        return read_results(self._spec, latest=latest, key=key)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the run has ended.

        Args:
            timeout: seconds to wait; None for no limit.

        Raises:
            MillraceError: the query cannot run, or has failed.
            TimeoutError: the run goes on.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_ended, timeout):
                raise TimeoutError(f"{self._query.name} is still {self._status} after {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self

    def wait_for_batches(self, batches: int, timeout: float | None = None) -> Self:
        """Wait until ``batches`` batches have finished, or the run has ended.

        Raises:
            MillraceError: the query cannot run, or has failed.
            TimeoutError: there are fewer after ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_ended or self._finished >= batches, timeout):
                raise TimeoutError(f"{self._query.name} has {self._finished} batches after {timeout:g} s")
        return self.wait() if self._has_ended else self

    def stop(self) -> Self:
        """End the run after its running batch, and wait for that. Does nothing if it has ended.

        Raises:
            MillraceError: the query has failed.
        """
        self._end()
        return self.wait()

    def _end(self) -> None:
        """Ask the process to end after its batch, once: it gives the batch up when it is asked again."""
        if not self._is_stopping and not self._has_ended:
            self._is_stopping = True
            self._process.handle.terminate()

    def follow(self, progress: bool | None = None) -> Self:
        """Show progress until the run has ended; Ctrl-C stops it after its running batch.

        A run over what exists is then incomplete, so the interrupt is raised; one that goes on is returned.

        Args:
            progress: whether to show it; by default in a terminal or a notebook.

        Raises:
            MillraceError: the query cannot run, or has failed.
        """
        try:
            self._show_until_end(progress)
        except KeyboardInterrupt:  # it may come while the display begins, too
            self._end()
            self._show_until_end(progress)
            self.wait()
            if self._once:
                raise
        return self.wait()

    def _show_until_end(self, progress: bool | None) -> None:
        from millrace.progress_display import shown_progress

        with shown_progress(self._query.name, self.line, progress) as show:
            while not self._has_ended:
                with self._changed:
                    self._changed.wait(0.5)
                show()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except MillraceError:
            if kind is None:  # otherwise the block's own error says more
                raise

    def _read(self) -> None:
        """Take in the events of the process until it ends."""
        try:
            for event in self._process.events():
                with self._changed:
                    self._take(event)
                    self._changed.notify_all()
        except (ValueError, OSError) as error:  # such as half an event of a process that was killed
            self._process.handle.kill()
            self._process.handle.wait()
            self._error = self._error or MillraceError(Problem(f"the run cannot be followed: {error}", "run it again"))
        with self._changed:
            was_stopped = self._is_stopping and self._process.handle.returncode in _STOPPED
            if not self._is_done and self._error is None and not was_stopped:
                self._error = self._process.ended_early()
            if self._error is not None:
                self._status = "failed"
            else:
                self._status = self._summary.outcome if self._summary is not None else "drained"
            self._has_ended = True
            self._changed.notify_all()

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "starting":
                self._step = event["step"]
            case "started":
                self._facts, self._status = event["facts"], "running"
            case "batch":
                batch = Batch.from_json(event["batch"])
                self._batches.append(batch)
                self._rows += batch.rows
                self._finished += 1
                self._require_room(batch.number)
            case "message":
                self._messages.append(event["text"])
            case "summary":
                self._summary = RunSummary(**event["summary"])
            case "done":
                self._is_done = True
            case "failed":
                self._error = self._error or self._query._with_lines(_failure(event))

    def _require_room(self, batch: int) -> None:
        """End the run if the results that it keeps for this process become too large."""
        try:
            if self._kept is not None:
                self._kept.require_room(batch)
        except MillraceError as error:
            self._error = self._error or error
            self._end()

    def line(self) -> str:
        """Return the state of the run in one line."""
        if (total := self._summary) is not None:
            return f"{total.rows:,} rows, {total.results:,} results in {total.batches:,} batches, {total.seconds:.1f} s"
        if self._is_stopping and not self._has_ended:
            return f"ending after the running batch, {self._rows:,} rows in {self._finished:,} batches"
        if self._status == "starting":
            return self._step
        batches = self.progress
        counts = f"{self._rows:,} rows in {self._finished:,} batches"
        if not batches:
            return "waiting for the first batch"
        last = batches[-1]
        speed = shown_figure(round(last.rows_per_second))
        return f"{counts}, {speed} rows/s, W {last.utilization:.2f}, lag {last.waiting:,}"

    def __repr__(self) -> str:
        error = f": {self._error.problems[0]}" if self._error is not None else ""
        return f"<Run of {self._query.name}: {self._status}{error}, {self.line()}>"

    def _repr_html_(self) -> str:
        rows = [[getattr(batch, name) for name in _SHOWN] for batch in self.progress[-_SHOWN_BATCHES:]]
        head = f"<b>{html.escape(self._query.name)}</b> {self._status}: {html.escape(self.line())}"
        wrong = "" if self._error is None else f"<pre>{html.escape(str(self._error))}</pre>"
        is_live = not self._has_ended and self.page_url is not None
        page = f' (<a href="{html.escape(self.page_url or "")}">live page</a>)' if is_live else ""
        return f"<div>{head}{page}{wrong}{html_table(_SHOWN, rows) if rows else ''}</div>"


def _failure(event: Mapping[str, Any]) -> MillraceError:
    return MillraceError(*(Problem(**each) for each in event["problems"]))
