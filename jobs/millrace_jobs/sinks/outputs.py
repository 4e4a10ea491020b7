"""The sinks of a query: one for each of its outputs, which all get their rows from one computation.

Rows of a query with several outputs have the number of their output in the column OUTPUT. A batch is computed once,
kept by Spark until all sinks have written it, and written by one sink after the other. Each sink knows by itself
whether it has a batch already. So after a crash between two of them, the batch is computed again, and none of them has
its rows twice.

Local copies of the query's tables are in one folder:

- ``table``: the rows of ``spec.sink`` that can be looked up;
- ``keys.sqlite`` and files beside it: the keys of its rows, if rows can go;
- ``outputs/NAME``: the keys of a further output.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.changes import CHANGE, OUTPUT, WEIGHT
from millrace_jobs.connectors import connector
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, ShowTable, Sink
from millrace_jobs.sinks.connector import KEYS, TABLE, SinkConnector, SinkContext

if TYPE_CHECKING:
    from millrace_jobs.sinks.kafka.table_view import TableView

SINKS = "millrace.sinks"
"""Entry points of connectors for sinks, by the field of ``spec.sink``."""

_OUTPUTS = "outputs"


def check_sinks(spec: Spec) -> None:
    """Check as much of the sinks as possible before Spark starts. Raises MillraceError if results cannot be written."""
    for field, output in spec.outputs.items():
        with errors_of(field):
            _connector(output.sink).check(output.sink.given)


def server_checks(spec: Spec) -> Iterator[Callable[[], None]]:
    """Return the checks of the sinks' servers, for which Spark need not run; each raises what ``check_sinks`` does."""

    def check(field: str, sink: SinkSpec) -> None:
        with errors_of(field):
            _connector(sink).check_server(sink.given)

    return (partial(check, field, output.sink) for field, output in spec.outputs.items())


def open_sinks(
    query: StreamQuery,
    keys: Mapping[str, ResultKeys],
    checkpoint_id: str,
    show: ShowTable,
    view: TableView | None = None,
    results: StructType | None = None,
    copies: Path | None = None,
    *,
    partitions: int | None = None,
) -> Sink:
    """Return the sink of a query, which has the sinks of all its outputs.

    ``keys`` are by the field of their output, as in ``Spec.outputs``. The other arguments are those of ``SinkContext``;
    the view is that of ``spec.sink``.
    """
    outputs = []
    for field, spec in query.spec.outputs.items():
        alone = query.model_copy(update={"spec": spec})
        if field == "spec":
            context = SinkContext(alone, keys[field], checkpoint_id, show, view, results, copies, partitions)
        else:
            own_id = f"{checkpoint_id}-{field.rpartition('.')[2]}"
            own = None if copies is None else copies_of(copies, field)
            context = SinkContext(alone, keys[field], own_id, show, None, results, own, partitions)
        marks = CHANGE.names if spec.sink.has_changelog else [WEIGHT] if keys[field].weighted else []
        outputs.append(Output(open_sink(context), tuple(marks), field))
    return OutputSinks(outputs) if len(outputs) > 1 else outputs[0].sink


def open_sink(context: SinkContext) -> Sink:
    """Return the sink of ``spec.sink`` of the query in the context."""
    sink = context.query.spec.sink
    return _connector(sink).open(sink.given, context)


def _connector(sink: SinkSpec) -> SinkConnector[Any]:
    found: SinkConnector[Any] = connector(SINKS, sink.kind)
    return found


@dataclass(frozen=True)
class Output:
    """One output: its sink, the columns of changes that it takes, and the field of the spec that describes it."""

    sink: Sink
    marks: tuple[str, ...]
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
        rows = results.where(F.col(OUTPUT) == number)
        if WEIGHT not in output.marks:
            rows = rows.where(F.col(WEIGHT) > 0)
        rows = rows.drop(OUTPUT, *(name for name in CHANGE.names if name not in output.marks))
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
        raise located.with_traceback(error.__traceback__) from None  # whose frames say in which part it failed


def copies_of(copies: Path, field: str) -> Path:
    """Return the folder of an output's keys; ``field`` is that of ``Spec.outputs``."""
    return copies if field == "spec" else copies / _OUTPUTS / field.rpartition(".")[2]


def remove_unused(copies: Path, spec: Spec, keys: Mapping[str, ResultKeys], *, has_rows: bool) -> None:
    """Remove what earlier runs have left and this one does not use, as after an output was removed.

    Args:
        copies: the folder of copies; it need not exist.
        spec: the query's spec.
        keys: the keys of each output, by its field.
        has_rows: whether the rows that can be looked up are among the copies.
    """
    tables = (field for field, output in spec.outputs.items() if output.sink.table is not None)
    used = {copies_of(copies, field) for field in tables if keys[field].rows_can_go}
    if has_rows:
        used.add(copies / TABLE)
    for found in (*copies.glob("*"), *copies.glob(f"{_OUTPUTS}/*")):
        is_of_sink = found.parent == copies and copies in used and found.name.startswith(f"{KEYS}.")
        if found in used or is_of_sink or found == copies / _OUTPUTS:
            continue
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        else:
            with suppress(OSError):
                found.unlink()
