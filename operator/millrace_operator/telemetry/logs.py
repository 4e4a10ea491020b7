"""Operator log on standard error, as text for people or JSON for machines.

Every line names the query being worked on, including lines written by libraries.
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

from millrace_support.refusals import refusal
from millrace_support.terminal_texts import printable

_SUBJECT: ContextVar[dict[str, Any] | None] = ContextVar("subject", default=None)


class LogFormat(StrEnum):
    """Format of the log lines."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def about(key: tuple[str, str], generation: int | None = None) -> Iterator[None]:
    """Attach a query's namespace, name and generation to all lines logged in this block."""
    subject = {"namespace": key[0], "query": key[1]}
    token = _SUBJECT.set(subject if generation is None else subject | {"generation": generation})
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def configure(format: LogFormat) -> None:
    """Log from level INFO in this format; replaces the handlers of the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def in_short(error: Exception) -> str:
    """Return an error on one line; for a refusal by the API server, its message without the response headers."""
    from kubernetes.client import ApiException  # takes a second to import; commands without a cluster skip it

    if isinstance(error, ApiException):
        return refusal(error.status, error.reason, error.body)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


class JsonFormatter(logging.Formatter):
    """Formatter with one JSON object per line.

    Its fields are time, level, logger and message; namespace, query and generation if known; error if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its line end."""
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_subject(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formatter for text lines: time, level, the query in brackets, message.

    Messages quote what users write and what their jobs report. So no line of one looks like a record of its own, and
    no control character reaches a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; further lines of the message, and of a traceback, are indented."""
        subject = _subject()
        query = f"[{subject.get('namespace')}/{subject['query']}] " if "query" in subject else ""
        text = f"{_time_of(record)} {record.levelname:7} {query}{record.getMessage()}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return "\n    ".join(map(printable, text.splitlines()))


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _subject() -> dict[str, Any]:
    """Return the subject set by ``about``, if any."""
    return _SUBJECT.get() or {}
