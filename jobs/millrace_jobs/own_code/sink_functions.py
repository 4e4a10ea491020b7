"""Functions of the user's own that write the results of a batch: their form, and a call with its errors."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.own_code.loading import MAY_PASS, SAME_COMMAND, FunctionForm, described, imported_function
from millrace_jobs.pending import own_code

FIELD = "spec.sink.python"


@dataclass(frozen=True)
class SinkBatch:
    """The batch whose results a function writes.

    Attributes:
        number: the batch's number; 0 is the first one of a checkpoint. A batch that is run again after a crash has the
            same number and the same results.
        checkpoint: identifies the checkpoint that the numbers count in, and of several outputs the output. A query that
            begins again on a new checkpoint counts from 0 again, under another identifier.
        query: name of the query.
        watermark: the time before which no more results are expected; None without a watermark.
    """

    number: int
    checkpoint: str
    query: str
    watermark: datetime | None = None

    @property
    def key(self) -> str:
        """Text that is the same exactly if a batch is run again: a key by which to write its results once."""
        return f"{self.checkpoint}-{self.number}"


def _writes(function: Callable[..., object], hints: dict[str, Any]) -> bool:
    names = list(inspect.signature(function).parameters)[:2]
    return [hints.get(name) for name in names] in ([pa.Table, SinkBatch], [pa.RecordBatchReader, SinkBatch])


WRITES_RESULTS = FunctionForm(
    "a function that writes results",
    "def write(results: pa.Table, batch: millrace.SinkBatch) -> None",
    "its first parameter as pa.Table or pa.RecordBatchReader, and its second one as millrace.SinkBatch",
    _writes,
)


class SinkFunction:
    """A function of the user's own that writes the results of one batch after the other.

    Args:
        path: the function, ``module:function``.
        options: its keyword arguments.

    Raises:
        MillraceError: the function cannot be imported, is none that writes results, or does not take the options.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self.path, self._options = path, dict(options)
        self._function = imported_function(path, WRITES_RESULTS, f"{FIELD}.write")
        self._require_options()
        first = next(iter(inspect.signature(self._function).parameters))
        self.takes_table = typing.get_type_hints(self._function)[first] is pa.Table
        """Whether the function takes the results as one table, rather than by a reader."""

    def __call__(self, results: pa.Table | pa.RecordBatchReader, batch: SinkBatch) -> None:
        """Write the results of a batch.

        Raises:
            TransientError: the function raises ConnectionError or TimeoutError, so another try may help.
            MillraceError: it raises any other exception, or returns an awaitable or a generator, which has not run.
        """
        try:
            with own_code(self.path, f"writing the results of batch {batch.number}"):
                returned = self._function(results, batch, **self._options)
        except (Exception, SystemExit) as error:
            message = f"the function {self.path} failed on batch {batch.number}: {described(error, self._function)}"
            if isinstance(error, MAY_PASS):
                hint = f"check what it connects to{SAME_COMMAND}"
                raise TransientError(Problem(message, hint, field=f"{FIELD}.write")) from error
            raise MillraceError(Problem(message, f"correct it{SAME_COMMAND}", field=f"{FIELD}.write")) from error
        if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            if inspect.iscoroutine(returned):
                returned.close()  # else, Python warns that nothing awaits it
            kind = type(returned).__name__
            message = f"the function {self.path} returned a {kind} for batch {batch.number}, which has not run"
            hint = f"run it within the function, as by asyncio.run(...){SAME_COMMAND}"
            raise MillraceError(Problem(message, hint, field=f"{FIELD}.write"))

    def require_all_read(self, batch: SinkBatch, unread: int) -> None:
        """Raise MillraceError if the function has returned and left rows of a batch unread, which would be lost."""
        if unread:
            rows = f"{unread} row{'' if unread == 1 else 's'}"
            message = f"the function {self.path} returned with {rows} of batch {batch.number} unread"
            hint = f"read the reader to its end, or nothing of it to skip a batch that is written{SAME_COMMAND}"
            raise MillraceError(Problem(message, hint, field=f"{FIELD}.write"))

    def _require_options(self) -> None:
        signature = inspect.signature(self._function)
        try:
            signature.bind(None, None, **self._options)
        except TypeError as error:
            taken = list(signature.parameters)[2:]
            takes = f"which takes {', '.join(taken)}" if taken else "which takes none"
            message = f"{self.path!r} cannot be called with these options: {error}"
            problem = Problem(message, f"correct the options, or the function, {takes}", field=f"{FIELD}.options")
            raise MillraceError(problem) from None
