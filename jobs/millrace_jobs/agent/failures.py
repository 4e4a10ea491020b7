"""Why a query failed, in the words of whoever knows best."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from millrace_api.errors import MillraceError, Problem

_OURS = re.compile(r"millrace_api\.errors\.MillraceError: (.+?)(?:\n\s*(?:at |SQLSTATE|\n)|\n\n|$)", re.DOTALL)
_WORKER = re.compile(r"thrown from the Python worker:\n(.+?)(?=\n\s*\tat |\Z)", re.DOTALL)
_SPARK = re.compile(r"^[\w.$]+: \[[A-Z][A-Z_.0-9]+\] (.+?)(?: SQLSTATE: \w+|\n|$)", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)

_HERE = str(Path(__file__).parents[1])
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))

_DEBUG = "run with --debug to see where"

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
    tracebacks = _WORKER.findall(text)
    if tracebacks:
        return MillraceError(_python_problem(tracebacks[-1]))
    said_by_spark = _SPARK.search(text)
    if said_by_spark:
        return MillraceError(Problem(f"the query failed: {said_by_spark.group(1).strip()}", _DEBUG))
    causes = _CAUSE.findall(text)
    if causes:
        return MillraceError(Problem(f"the query failed: {causes[-1].strip()}", _DEBUG))
    raised = _PYTHON.findall(text)
    if raised:
        return MillraceError(Problem(f"the query failed: {raised[-1].strip()}", _DEBUG))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return MillraceError(Problem(f"the query failed: {first}", _DEBUG))


def _python_problem(traceback: str) -> Problem:
    """What a Python worker raised, and the last line of the user's own code on the way there."""
    lines = traceback.rstrip().splitlines()
    last = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
    said = " ".join(lines[last + 1 :]).strip() or lines[-1].strip()
    for file, line in reversed(_FRAME.findall(traceback)):
        if not file.startswith((_HERE, *_INSTALLED, "<")):
            hint = "correct it, then run the same command again: nothing is lost"
            return Problem(f"the query failed: {said}", hint, file, int(line))
    return Problem(f"the query failed: {said}", _DEBUG)
