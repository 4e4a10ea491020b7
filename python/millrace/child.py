"""The process in which Spark works for a program or a notebook: ``python -m millrace.child``.

The first line of its standard input is the request, and its standard output has one JSON event per line. It ends after
its running batch at SIGTERM, or when its standard input closes because the program is gone. What else it prints goes
to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.commands.run import run_job
from millrace_jobs.display.plain import PlainDisplay
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.run.query_file import add_import_folder, groups_in_python, query_problems, query_warnings
from millrace_support.extras import extras_reported
from millrace_support.run_figures import RunSummary


class Events:
    """The events that the program reads; may be sent from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, event: str, **values: Any) -> None:
        """Send one event; the program may be gone."""
        with self._lock:
            try:
                self._stream.write(json.dumps({"event": event, **values}, allow_nan=False) + "\n")
                self._stream.flush()
            except (BrokenPipeError, ValueError):
                return


class EventDisplay(PlainDisplay):
    """A display whose events go to the program."""

    def __init__(self, name: str, events: Events) -> None:
        super().__init__(Console(), name)
        self._events = events

    def starting(self, step: str) -> None:
        """Send the step of the start."""
        self._events.send("starting", step=step)

    def started(self, facts: Mapping[str, str]) -> None:
        """Send the facts that are known at the start."""
        self._events.send("started", facts=dict(facts))

    def batch(self, report: BatchReport) -> None:
        """Send a finished batch."""
        self._events.send("batch", batch=report.shown().to_json())

    def message(self, text: str) -> None:
        """Send a message."""
        self._events.send("message", text=text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Do nothing: a run from Python keeps its results in files."""

    def finished(self, summary: RunSummary) -> None:
        """Send the totals of the run."""
        self._events.send("summary", summary=asdict(summary))


def main() -> None:
    """Do what the request says; the last event is ``done`` or ``failed``."""
    events = Events(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_program, daemon=True).start()
    try:
        with extras_reported():
            answer = _ACTIONS[request["action"]](request, events)
        events.send("done", **answer)
    except MillraceError as error:
        if request.get("debug"):
            traceback.print_exc()
        events.send("failed", problems=[asdict(each) for each in error.problems])
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        problem = Problem(f"this should not have happened: {reason}", "please report it")
        events.send("failed", problems=[asdict(problem)])
        sys.exit(1)


def _end_with_program() -> None:
    """End after the running batch when the program has closed the standard input, which it does by ending."""
    while sys.stdin.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _validate(request: Mapping[str, Any], _: Events) -> dict[str, Any]:
    query, folder = _query(request)
    if problems := query_problems(query, folder):
        raise MillraceError(*problems)
    return {"warnings": [asdict(each) for each in query_warnings(query)]}


def _explain(request: Mapping[str, Any], events: Events) -> dict[str, Any]:
    query = _prepared(request)
    from millrace_jobs.run.job import Job

    with Job(query, display=EventDisplay(query.name, events)) as job:
        return {"text": job.explain()}


def _run(request: Mapping[str, Any], events: Events) -> dict[str, Any]:
    def job() -> Any:
        query = _prepared(request)
        from millrace_jobs.run.job import Job

        display = EventDisplay(query.name, events)
        ends = {"once": request["once"], "leaves_open": request["leaves_open"]}
        return Job(query, **ends, debug=request["debug"], display=display)

    run_job(job, request["grace"])
    return {}


_ACTIONS = {"validate": _validate, "explain": _explain, "run": _run}


def _query(request: Mapping[str, Any]) -> tuple[StreamQuery, Path]:
    return StreamQuery.model_validate(request["document"], by_name=False), Path(request["folder"])


def _prepared(request: Mapping[str, Any]) -> StreamQuery:
    """Return the query once its own code is here and Spark's JVM is starting."""
    from millrace_jobs.checkpoint.spark_settings import settings_of
    from millrace_jobs.own_code import own_code
    from millrace_jobs.process import jvm
    from millrace_jobs.stores.spark import use

    query, folder = _query(request)
    add_import_folder(folder)
    use(query.spec.s3, query.spec.azure)
    own_code.use(query.spec.code, folder)
    jvm.start(settings_of(query), quiet=not request.get("debug"), grouping=groups_in_python(query))
    return query


if __name__ == "__main__":
    main()
