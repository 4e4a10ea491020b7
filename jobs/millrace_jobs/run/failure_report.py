"""A run's last words, for whoever started it: the class of its failure and the error, as JSON."""

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
"""By what of the spec an error is about; the first that fits counts."""

_MARKS = {
    "Java heap space": FailureClass.OUT_OF_MEMORY,
    "OutOfMemoryError": FailureClass.OUT_OF_MEMORY,
    "STATE_STORE": FailureClass.STATE,
    "STATE_SCHEMA": FailureClass.STATE,
}
"""By what Spark says."""

_PART = re.compile(r"millrace_jobs[/\\](sources|sinks|aggregates)[/\\]")
_PARTS = {"sources": FailureClass.SOURCE, "sinks": FailureClass.SINK, "aggregates": FailureClass.USER_CODE}


def class_of_text(text: str) -> FailureClass:
    """Of a failure whose traceback is all there is, in Python or in the JVM: by where it came from."""
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
    """Of an error that ends a run."""
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
    """What passes by itself in this block, such as a broker that is away, is a failure of this part of the query."""
    try:
        yield
    except TransientError as error:
        if error.failure is None:
            error.failure = part
        raise


def write_report(error: Exception) -> None:
    """Say why this run has failed, where somebody has asked for that; a disk that is full loses it."""
    if place := os.environ.get(REPORT_VARIABLE):
        with suppress(OSError):
            Path(place).write_text(_fitting(class_of(error), str(error)), encoding="utf-8")


def _fitting(failure: FailureClass, message: str) -> str:
    """The report, with as much of the message as there is room for."""
    room = LONGEST
    while True:
        said = message if len(message) <= room else f"{message[: room - 3]}..."
        report = FailureReport(failure=failure, message=said).model_dump_json()
        if len(report.encode()) <= LONGEST:
            return report
        room = min(room, len(said)) * 3 // 4
