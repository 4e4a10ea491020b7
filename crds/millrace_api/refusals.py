"""What an API server says when it refuses a request, as text for a line of a log or of a terminal."""

from __future__ import annotations

import json

LONGEST = 500
"""Characters of the server's message that are repeated."""


def message_of(body: str | bytes | None) -> str:
    """The ``message`` of a refusal's JSON body, on one line; empty if there is no body."""
    try:
        said = json.loads(body or "")["message"]
    except (ValueError, TypeError, KeyError):
        return ""
    return " ".join(str(said).split()) if said else ""


def refusal(status: int | None, reason: str | None, body: str | bytes | None) -> str:
    """``the API server says 403 Forbidden: pods is forbidden: ...``, on one line.

    Args:
        status: of HTTP; None or 0 where there was no answer, and ``reason`` says why.
        reason: that goes with the status.
        body: of the answer, as it came.
    """
    why = " ".join((reason or "").split())[:LONGEST]
    if not status:
        return f"no answer of the API server: {why or 'for an unknown reason'}"
    message = message_of(body)[:LONGEST]
    return f"the API server says {status} {why}".rstrip() + (f": {message}" if message else "")
