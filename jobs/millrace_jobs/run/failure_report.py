"""The report that a failed run leaves for whatever started it: the failure's class and the error, as JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace_api.errors import MillraceError, TransientError
from millrace_api.failures import LONGEST, REPORT_VARIABLE, FailureClass, FailureReport
from millrace_jobs.run.failures import FRAME, is_of_the_user

_FIELDS = {
    "spec.sources": FailureClass.SOURCE,
    "spec.sink": FailureClass.SINK,
    "spec.checkpoint": FailureClass.STATE,
    "spec": FailureClass.CONFIG,
}
"""Failure class by spec field; the first field that contains the problem's field wins."""

_MARKS = {
    "Java heap space": FailureClass.OUT_OF_MEMORY,
    "OutOfMemoryError": FailureClass.OUT_OF_MEMORY,
    "STATE_STORE": FailureClass.STATE,
    "STATE_SCHEMA": FailureClass.STATE,
}
"""Failure class by a mark in Spark's text."""

_PART = re.compile(r"millrace_jobs[/\\](sources|sinks|aggregates)[/\\]")
_PARTS = {"sources": FailureClass.SOURCE, "sinks": FailureClass.SINK, "aggregates": FailureClass.USER_CODE}


def class_of_text(text: str) -> FailureClass:
    """Classify a failure by its Python or JVM traceback alone: by known marks, then by frame, innermost first."""
    for mark, failure in _MARKS.items():
        if mark in text:
            return failure
    for file, _ in reversed(FRAME.findall(text)):
        if is_of_the_user(file):
            return FailureClass.USER_CODE
        if part := _PART.search(file):
            return _PARTS[part.group(1)]
    return FailureClass.OTHER


def class_of(error: Exception) -> FailureClass:
    """Classify an error that ends a run."""
    if not isinstance(error, MillraceError):
        return FailureClass.OTHER
    if error.failure is not None:
        return error.failure
    fields = [problem.field for problem in error.problems]
    for field, failure in _FIELDS.items():
        if any(each == field or each.startswith(f"{field}.") for each in fields):
            return failure
    return FailureClass.OTHER


@contextmanager
def blamed(part: FailureClass) -> Iterator[None]:
    """Attribute transient errors in this block, such as an unreachable broker, to this part of the query."""
    try:
        yield
    except TransientError as error:
        if error.failure is None:
            error.failure = part
        raise


def write_report(error: Exception) -> None:
    """Write the failure report if the environment names a file for it; errors of the disk are ignored."""
    if place := os.environ.get(REPORT_VARIABLE):
        with suppress(OSError):
            Path(place).write_text(_fitting(class_of(error), str(error)), encoding="utf-8")


def _fitting(failure: FailureClass, message: str) -> str:
    """Return the report as JSON, its message cut to fit the size limit."""
    room = LONGEST
    while True:
        said = message if len(message) <= room else f"{message[: room - 3]}..."
        report = FailureReport(failure=failure, message=said).model_dump_json()
        if len(report.encode()) <= LONGEST:
            return report
        room = min(room, len(said)) * 3 // 4
