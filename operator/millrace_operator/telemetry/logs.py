"""The operator's log on standard error: lines of text for people, or of JSON for machines.

What is known of the query that is worked on is in each line, whoever writes it, also kopf and other libraries.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from millrace_api.refusals import refusal

_SUBJECT: ContextVar[dict[str, Any] | None] = ContextVar("subject", default=None)


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def about(key: tuple[str, str], generation: int | None = None) -> Iterator[None]:
    """Lines that are logged in this block are about a query: its namespace and name, and the spec's generation."""
    subject = {"namespace": key[0], "query": key[1]}
    token = _SUBJECT.set(subject if generation is None else subject | {"generation": generation})
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def configure(format: LogFormat) -> None:
    """Log everything from INFO on, in this format, instead of how it was logged before."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # else a line for each event of a watch


def in_short(error: Exception) -> str:
    """An error on one line; of a refusal by the API server, what it says, without the headers of its answer."""
    from kubernetes.client import ApiException  # takes a second, which commands that ask no cluster do not have

    if isinstance(error, ApiException):
        return refusal(error.status, error.reason, error.body)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message; namespace, query and generation; error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_subject_of(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, the query in brackets, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines where there is a traceback."""
        subject = _subject_of(record)
        query = f"[{subject.get('namespace')}/{subject['query']}] " if "query" in subject else ""
        line = f"{_time_of(record)} {record.levelname:7} {query}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _subject_of(record: logging.LogRecord) -> dict[str, Any]:
    """That of the block; else the object that kopf says the line is about."""
    reference = getattr(record, "k8s_ref", None)
    if (subject := _SUBJECT.get()) is not None or not reference:
        return subject or {}
    name = "query" if reference.get("kind") == "StreamQuery" else "object"
    return {"namespace": reference.get("namespace"), name: reference.get("name")}
