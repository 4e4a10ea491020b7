"""The failures of a query: the reason, the class that the operator acts on, and how often a restart may help.

The reason is the most specific message in Spark's text. A failed run writes its class and its message as JSON to the
file that the environment names, for the process that started it.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.status import MAX_REPORT_BYTES, REPORT_VARIABLE, FailureClass, FailureReport
from millrace_jobs.process import jvm
from millrace_support.backoff import Backoff

_OURS = re.compile(r"millrace_api\.errors\.(\w+): (.+?)(?:\n\s*(?:at |SQLSTATE|\n)|\n\n|$)", re.DOTALL)
_WORKER = re.compile(r"thrown from the Python worker:\n(.+?)(?=\n\s*\tat |\Z)", re.DOTALL)
_SPARK = re.compile(
    r"^[\w.$]+: \[([A-Z][A-Z_.0-9]+)\] (?:((?:(?!\n\s*at |\n== ).)+?) SQLSTATE: (\w+)|(.+?)$)", re.MULTILINE | re.DOTALL
)
"""An error of Spark: its condition, and its message with the SQL standard's code, or the message's first line."""
_OF_VALUES = re.compile(r"22|23505|54000|P0001|42601|42K0B")
"""Codes of errors that an expression has with some values: a batch runs only what Spark has accepted."""
_JVM_FRAME = re.compile(r"\n\s*at (?:[\w.]+/)?([\w.$]+)\(")
_EXCEPTION = re.compile(r"[\w.$]*\b(?!NullPointer)\w+Exception: (.+)", re.DOTALL)
_EVALUATION = tuple(
    f"org.apache.spark.{package}."
    for package in (*(f"sql.catalyst.{each}" for each in ("expressions", "util", "json", "csv", "xml")), "unsafe.types",
                    "types.variant")
)  # fmt: skip
"""Packages of Spark in which expressions are evaluated."""
_REPORTING = "org.apache.spark.sql.errors."
_SWITCH = re.compile(r' (?:If necessary|You can|If you want to [^.]*, you can) set \S+ to "?\w+"? .*$')
"""Spark's advice to change the meaning of the SQL by a setting."""
_CONTEXT = re.compile(r"^== SQL \(line (\d+), position (\d+)\) ==\n((?:.*\n)*?) *(\^[ ^]*)$", re.MULTILINE)
"""Where in the SQL an expression failed: line and position, the lines up to its first one, and carets below it."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_CALLED = re.compile(r"An error occurred while calling \S+\.\n: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
"""A frame of a Python traceback; its groups are the file and the line number."""

_PLACED = re.compile(r"(spec(?:\.\w+)+): (.+)", re.DOTALL)
"""A problem of ours with the field that it is about."""

_REMEDY = "exclude such records with WHERE"
_REMEDIES = {
    "NULL_MAP_KEY": "write coalesce(key, '') for the key, or exclude records without one by WHERE key IS NOT NULL",
    "DUPLICATED_MAP_KEY": (
        f'write spec.sparkConf: {{spark.sql.mapKeyDedupPolicy: "LAST_WIN"}} to keep the last value, or {_REMEDY}'
    ),
    "USER_RAISED_EXCEPTION": f"leave raise_error or assert_true out, or {_REMEDY}",
}
"""What to write instead, by Spark's condition, where its message does not say so."""

_HERE = str(Path(__file__).parents[1])
_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))

_DEBUG = "run with --debug to see where"

_DRIVER_HEAP = "spec.driver.memory (for millrace run, spark.driver.memory in spec.sparkConf)"

_NO_SPACE = "No space left on device"

_SUM_OVERFLOW = "overflow. Use 'try_add'"
"""How Spark's message of an overflow begins; only that of a sum has no expression."""

_KNOWN = (
    (
        _NO_SPACE,
        "a disk is full",
        "free some space, then run the same command again: nothing is lost",
    ),
    (
        "Java heap space",
        "Spark ran out of memory",
        f"raise {_DRIVER_HEAP} and spec.executors.memory, or write a lower maxRecordsPerBatch or maxFilesPerBatch for "
        "the source",
    ),
    (
        "Multiple streaming queries are concurrently using",
        "another driver has taken over the checkpoint: Spark's log has the batch already",
        "make sure that only one driver runs, then run the same command again: nothing is lost",
    ),
    (
        "spark.driver.maxResultSize",
        "a batch brings more results to the driver than spark.driver.maxResultSize allows",
        f'raise it, such as spec.sparkConf: {{spark.driver.maxResultSize: "4g"}}, and {_DRIVER_HEAP} by as much, then '
        "run the same command again: nothing is lost; results of a files sink do not go through the driver",
    ),
    ("STATE_SCHEMA", "the checkpoint's state has another layout", f"choose {ANOTHER_CHECKPOINT}"),
)

_OBJECT_STORE = re.compile(
    r" on (\S+): software\.amazon\.awssdk\.[\w.$]+: (.+?) \((?:Service: \w+, Status Code: (\d+)|SDK Attempt Count)"
)
"""An error of Hadoop's client for S3: the object, the reason, and the status of the answer if there was one."""

_PROCESS_DIED = (
    re.compile(r"Python worker exited unexpectedly"),
    re.compile(r"waiting for the Python worker to connect back"),
    re.compile(
        r"(?:EOFException|SocketException|ClosedChannelException|IOException: (?:Broken pipe|Connection reset))[^\n]*\n"
        r"(?:\s*(?:at|\.\.\.) [^\n]*\n)*?\s*at [^\n]*Python\w*Runner"
    ),
)
"""Patterns of Spark's errors when one of its Python processes has died, or did not start within ten seconds.

Such a process is a worker, or the planner of a source's batches.
"""

_CHILD_ENDED = re.compile(r"ExitCodeException exitCode=(\d+):[ \t]*$", re.MULTILINE)
"""Pattern of Hadoop's error when a child process, such as ``chmod`` of a new file, failed without any output."""


def explain_failure(text: str) -> MillraceError:
    """Return the error that a user can act on, from the text of a failed query.

    Args:
        text: a JVM stack trace, often with a Python traceback inside.

    Returns:
        A TransientError if the failure may not recur, else a MillraceError.
    """
    ours = _OURS.search(text)
    if ours:
        message = re.sub(r"\s*SQLSTATE:.*$", "", ours.group(2).strip(), flags=re.DOTALL)
        kind = TransientError if ours.group(1) == TransientError.__name__ else MillraceError
        return kind(*map(_placed, message.split("\n")))
    known = known_cause(text)
    if known is not None:
        return known
    if any(pattern.search(text) for pattern in _PROCESS_DIED):
        return TransientError(Problem("a Python process of Spark has died or did not start", jvm.OVERLOADED))
    if (store := _OBJECT_STORE.search(text)) is not None:
        return _store_error(*store.groups())
    child = _CHILD_ENDED.search(text)
    if child:
        message = f"a child process of Hadoop, such as chmod of a new file, ended with status {child.group(1)}"
        return TransientError(Problem(message, "check that the file systems of the sink and the checkpoint work"))
    return MillraceError(_last_resort(text))


def failed_query(text: str, damage: MillraceError | None = None) -> MillraceError:
    """Return why Spark's query failed, from its text, with its failure class.

    ``damage`` is what the checkpoint says of its state, if that cannot be loaded.
    """
    error = known_cause(text) or damage or explain_failure(text)
    if error.failure is None:  # an object store's has its own
        error.failure = class_of_text(text)
    return error


def _store_error(place: str, reason: str, status: str | None) -> MillraceError:
    """Return the error of an object store: one that may pass, unless it refuses what this login asks for."""
    refused = status in ("400", "401", "403", "404")
    hint = "check that the object store answers, and that its login is valid and may read, write and delete there"
    problem = Problem(f"the object {place} cannot be used: {reason.rstrip('.')}", hint, field="spec.checkpoint")
    error = MillraceError(problem) if refused else TransientError(problem)
    error.failure = FailureClass.STORE
    return error


def _placed(text: str) -> Problem:
    """Return a problem of ours from its text, with the field that it begins with, if any."""
    placed = _PLACED.fullmatch(text)
    return Problem(text) if placed is None else Problem(placed[2], field=placed[1])


def known_cause(text: str) -> MillraceError | None:
    """Return the error for a failure whose text names a known cause, else None."""
    for mark, message, hint in _KNOWN:
        if mark in text:
            return MillraceError(Problem(f"the query failed: {message}", hint))
    return None


def jvm_gone() -> MillraceError:
    """Return the error for a JVM that has died."""
    hint = "check whether the machine is short of memory, then run the same command again: nothing is lost"
    return MillraceError(Problem("Spark's JVM has died", hint))


def _is_user_code(file: str) -> bool:
    """Whether a file of a traceback is the user's own: neither ours nor a library's.

    Compiled code, such as that of Arrow, has no absolute path: ``pyarrow/error.pxi``.
    """
    return Path(file).is_absolute() and file.endswith(".py") and not file.startswith((_HERE, *_INSTALLED))


def _last_resort(text: str) -> Problem:
    """Return the most specific message in the text of an unknown failure."""
    tracebacks = _WORKER.findall(text)
    if tracebacks:
        return _python_problem(tracebacks[-1])
    if (error := _SPARK.search(text)) is not None:
        condition, whole, state, first = error.groups()
        return _expression_problem(" ".join((whole or first).split()), text, condition, state or "")
    if reason := _raised_in_expression(text):
        return _expression_problem(reason, text, "", "22000")
    for pattern, which in ((_CAUSE, -1), (_CALLED, 0), (_PYTHON, -1)):
        if found := pattern.findall(text):
            return Problem(f"the query failed: {found[which].strip()}", _DEBUG)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return Problem(f"the query failed: {first}", _DEBUG)


def _raised_in_expression(text: str) -> str:
    """Return the message of an exception that an expression of Spark has raised without a code; empty for others."""
    cause = text.rpartition("Caused by: ")[2]
    frames = [frame for frame in _JVM_FRAME.findall(cause) if frame.startswith("org.apache.spark.")]
    place = next((frame for frame in frames if not frame.startswith(_REPORTING)), "")
    said = _EXCEPTION.search(_JVM_FRAME.split(cause)[0])
    return " ".join(said[1].split()) if said is not None and place.startswith(_EVALUATION) else ""


def _expression_problem(message: str, text: str, condition: str, state: str) -> Problem:
    """Return what Spark says of an expression that failed, with its text and place as far as Spark has them."""
    context = _CONTEXT.search(text)
    if context is None and message.startswith(_SUM_OVERFLOW):
        hint = "cast the summed column to DECIMAL(38, 0)"  # as workers say
        return Problem("the query failed: a sum is too large for BIGINT", hint, field="spec.query.sql")
    if context is None and not _OF_VALUES.match(state):
        return Problem(f"the query failed: {message}", _DEBUG)
    reason = _SWITCH.sub("", message).rstrip(".:")
    hint = _REMEDIES.get(condition, f"correct the expression, or {_REMEDY}")
    if context is None:
        return Problem(f"the query failed: {reason}", hint, field="spec.query.sql")
    line, position, shown, carets = context.groups()
    first = context[0].splitlines()[-1].index("^")
    last_line = shown.splitlines()[-1] if shown else ""
    expression = last_line[first : first + len(carets.rstrip())].partition(" AS `")[0]
    is_part = len(shown.splitlines()) > 1 or expression != last_line.partition(" AS `")[0]
    place = f" (line {line}, column {position} of the SQL)" if is_part else ""
    return Problem(f"the query failed: {reason}: {expression}{place}", hint, field="spec.query.sql")


def _python_problem(traceback: str) -> Problem:
    """Return what a Python worker raised, located at the innermost frame of the user's own code."""
    lines = traceback.rstrip().splitlines()
    last = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
    message = " ".join(lines[last + 1 :]).strip() or lines[-1].strip()
    for file, line in reversed(_FRAME.findall(traceback)):
        if _is_user_code(file):
            hint = "correct it, then run the same command again: nothing is lost"
            return Problem(f"the query failed: {message}", hint, file, int(line))
    return Problem(f"the query failed: {message}", _DEBUG)


_FIELDS = {
    "spec.sources": FailureClass.SOURCE,
    "spec.sink": FailureClass.SINK,
    "spec.additionalOutputs": FailureClass.SINK,
    "spec.checkpoint": FailureClass.STATE,
    "spec": FailureClass.CONFIG,
}
"""Failure class by spec field; the first field that contains the problem's field wins."""

_MARKS = {
    f"{MissingInputError.__module__}.{MissingInputError.__name__}: ": FailureClass.SOURCE_MISSING,
    "Java heap space": FailureClass.OUT_OF_MEMORY,
    "OutOfMemoryError": FailureClass.OUT_OF_MEMORY,
    "STATE_STORE": FailureClass.STATE,
    "STATE_SCHEMA": FailureClass.STATE,
}
"""Failure class by a mark in Spark's text."""

_PART = re.compile(r"millrace_jobs[/\\](?:partitioners[/\\])?(sources|sinks|aggregates|own_code)(?:[/\\]|\.py$)")
_FILES_SINK = re.compile(r"millrace_jobs[/\\]sinks[/\\]files\.py$")
_STATE_STORE = ".execution.streaming.state."
_PARTS = {
    "sources": FailureClass.SOURCE,
    "sinks": FailureClass.SINK,
    "aggregates": FailureClass.USER_CODE,
    "own_code": FailureClass.USER_CODE,
}


def class_of_text(text: str) -> FailureClass:
    """Classify a failure by its Python or JVM traceback alone: by known marks, then by frame, innermost first."""
    if _NO_SPACE in text:
        return FailureClass.SINK if _is_full_sink(text) else FailureClass.DISK_FULL
    return next((failure for mark, failure in _MARKS.items() if mark in text), _part_of(text))


def _is_full_sink(text: str) -> bool:
    """Return whether the full disk is that of a sink: only a files sink has one, and its jobs also write the state."""
    innermost = next((file for file, _ in reversed(_FRAME.findall(text)) if _PART.search(file)), "")
    return _FILES_SINK.search(innermost) is not None and _STATE_STORE not in text


def _part_of(text: str) -> FailureClass:
    """Return the class of the innermost frame that is the user's, or in a part of ours that has a class."""
    for file, _ in reversed(_FRAME.findall(text)):
        if _is_user_code(file):
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
            full = failure is FailureClass.STATE and _NO_SPACE in str(error)
            return FailureClass.DISK_FULL if full else failure
    return FailureClass.OTHER


@contextmanager
def attributed_to(part: FailureClass) -> Iterator[None]:
    """Attribute errors in this block, such as an unreachable broker or a refused login, to this part of the query.

    Missing input has a class of its own, and what is not transient has that of the field that it names, if any.
    """
    try:
        yield
    except MissingInputError as error:
        error.failure = FailureClass.SOURCE_MISSING
        raise
    except MillraceError as error:
        if error.failure is None and (isinstance(error, TransientError) or class_of(error) is FailureClass.OTHER):
            error.failure = part
        raise


def write_report(error: Exception) -> None:
    """Write the failure report if the environment names a file for it; disk errors are ignored."""
    if path := os.environ.get(REPORT_VARIABLE):
        with suppress(OSError):
            Path(path).write_text(_fitted_report(class_of(error), str(error)), encoding="utf-8")


def _fitted_report(failure: FailureClass, message: str) -> str:
    """Return the report as JSON, its message cut to fit the size limit."""
    room = MAX_REPORT_BYTES
    while True:
        shown = message if len(message) <= room else f"{message[: room - 3]}..."
        report = FailureReport(failure=failure, message=shown).model_dump_json()
        if len(report.encode()) <= MAX_REPORT_BYTES:
            return report
        room = min(room, len(shown)) * 3 // 4


MAX_RESTARTS = 5
"""Maximum number of consecutive restarts without a finished batch."""


class Restarts:
    """A count of the restarts since the last finished batch, and of all since the start."""

    def __init__(self) -> None:
        self.total = 0
        self.failure: TransientError | None = None
        """Why the query was started again, until it computes; None if it has not failed since."""
        self._in_a_row = 0
        self._backoff = Backoff()

    def progressed(self) -> None:
        """Reset the count after a finished batch: the earlier failure has passed."""
        self.recovered()
        self._in_a_row = 0
        self._backoff.reset()

    def recovered(self) -> None:
        """Forget why the query was started again, and keep the count, after a trigger that found nothing to do."""
        self.failure = None

    def pause_after(self, failure: TransientError) -> float:
        """Count a restart, and return the seconds to wait before it.

        Raises:
            MillraceError: all MAX_RESTARTS were used up.
        """
        if self._in_a_row == MAX_RESTARTS:
            first, *more = failure.problems
            message = f"after {MAX_RESTARTS} restarts without a finished batch: {first.message}"
            final = MillraceError(replace(first, message=message), *more)
            final.failure = failure.failure
            raise final from None
        self._in_a_row += 1
        self.total += 1
        self.failure = failure
        return self._backoff.next()

    def __str__(self) -> str:
        return f"{self._in_a_row} of {MAX_RESTARTS}"
