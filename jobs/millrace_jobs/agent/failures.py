"""Why a query failed, in the words of whoever knows best."""

from __future__ import annotations

import re

from millrace_api.errors import MillraceError, Problem

_OURS = re.compile(r"millrace_api\.errors\.MillraceError: (.+?)(?:\n\s*(?:at |SQLSTATE|\n)|\n\n|$)", re.DOTALL)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)

_KNOWN = (
    (
        "No space left on device",
        "a disk is full",
        "free some room, then run the same command again: nothing is lost",
    ),
    (
        "Java heap space",
        "Spark ran out of memory",
        "give it more by spec.driver.memory, or make batches smaller",
    ),
    ("STATE_SCHEMA", "the checkpoint's state has another layout", "choose another spec.checkpoint.uri"),
)


def explain_failure(text: str) -> MillraceError:
    """Find what a user can act on in the text of a failed query: a traceback of Python inside one of the JVM."""
    ours = _OURS.search(text)
    if ours:
        said = re.sub(r"\s*SQLSTATE:.*$", "", ours.group(1).strip(), flags=re.DOTALL)
        return MillraceError(*said.split("\n"))
    for mark, message, hint in _KNOWN:
        if mark in text:
            return MillraceError(Problem(f"the query failed: {message}", hint))
    raised = _PYTHON.findall(text)
    if raised:
        name, message = raised[-1]
        return MillraceError(Problem(f"the query failed: {name}: {message.strip()}", "run with --debug to see where"))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return MillraceError(Problem(f"the query failed: {first}", "run with --debug to see where"))
