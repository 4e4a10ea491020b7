"""The sinks of a query with several outputs, which all get their rows from one computation.

Rows have the number of their output in the column OUTPUT. A batch is computed once, kept by Spark until all sinks have
written it, and written by one sink after the other. Each sink knows by itself whether it has a batch already. So after
a crash between two of them, the batch is computed again, and none of them has its rows twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.errors import MillraceError
from millrace_jobs.changes import OUTPUT, WEIGHT
from millrace_jobs.sinks.base import LastBatch, ResultBatch, Sink


@dataclass(frozen=True)
class Output:
    """One output: its sink, whether that takes changes with weights, and the field of the spec that describes it."""

    sink: Sink
    weighted: bool
    field: str


class OutputSinks(Sink):
    """A sink that divides the changes of a batch among the sinks of several outputs."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._outputs = outputs

    @property
    def place(self) -> str:
        """Places of all outputs."""
        return " and ".join(output.sink.place for output in self._outputs)

    def prepare(self, last: LastBatch) -> None:
        """Prepare all sinks for the first batch of a run; only the first one may have been another sink before."""
        for number, output in enumerate(self._outputs):
            with errors_of(output.field):
                output.sink.prepare(replace(last, elsewhere=last.elsewhere and number == 0))

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write a batch to all sinks; return the number of rows written to all of them."""
        results.persist()
        try:
            return sum(self._write(number, results, batch) for number in range(len(self._outputs)))
        finally:
            results.unpersist()

    def _write(self, number: int, results: DataFrame, batch: ResultBatch) -> int:
        output = self._outputs[number]
        rows = results.where(F.col(OUTPUT) == number).drop(OUTPUT)
        if not output.weighted:
            rows = rows.where(F.col(WEIGHT) > 0).drop(WEIGHT)
        with errors_of(output.field):
            return output.sink.write(output.sink.shape(rows), batch)

    def withdraw(self) -> None:
        """Undo the preparation of all sinks."""
        with ExitStack() as stack:
            for output in self._outputs:
                stack.callback(output.sink.withdraw)

    def close(self) -> None:
        """Release the resources of all sinks."""
        with ExitStack() as stack:
            for output in self._outputs:
                stack.callback(output.sink.close)


@contextmanager
def errors_of(field: str) -> Iterator[None]:
    """Let errors about ``spec.sink`` name the sink of an output, of which ``Spec.outputs`` has the field."""
    try:
        yield
    except MillraceError as error:
        if field == "spec":
            raise
        problems = [replace(each, field=each.field.replace("spec.sink", f"{field}.sink", 1)) for each in error.problems]
        located = type(error)(*problems)
        located.failure = error.failure
        raise located from None
