"""Refusals of an API server as text for one line of a log or a terminal."""

from __future__ import annotations

import json

MAX_MESSAGE = 500
"""Maximum number of characters quoted from the server's message."""


def message_of(body: str | bytes | None) -> str:
    """Return the ``message`` of a refusal's JSON body, on one line, or an empty string."""
    try:
        message = json.loads(body or "")["message"]
    except (ValueError, TypeError, KeyError):
        return ""
    return " ".join(str(message).split()) if message else ""


def refusal(status: int | None, reason: str | None, body: str | bytes | None) -> str:
    """Describe a refusal on one line: ``the API server says 403 Forbidden: pods is forbidden: ...``.

    Args:
        status: HTTP status, or None or 0 if there was no answer; ``reason`` then says why.
        reason: reason phrase of the status.
        body: body of the answer, as received.
    """
    why = " ".join((reason or "").split())[:MAX_MESSAGE]
    if not status:
        return f"no answer from the API server: {why or 'for an unknown reason'}"
    message = message_of(body)[:MAX_MESSAGE]
    return f"the API server says {status} {why}".rstrip() + (f": {message}" if message else "")
