"""The sink of a comparison: it keeps the results of each batch in a folder, whatever the sink of the query is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millrace_api.model.streamquery import Emit, Spec
from millrace_api.validation.results import result_groups
from millrace_jobs.changes import OUTPUT
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, Sink, named
from millrace_jobs.sinks.fetching import ResultFetcher

_OUTPUTS, _SUFFIX = "outputs.json", ".arrow"


@dataclass(frozen=True)
class KeptOutput:
    """What a comparison has to know of one output.

    Attributes:
        field: its field in the spec, as in ``Spec.outputs``.
        columns: the names of its columns and their types, as Spark's SQL spells them.
        key: the columns that identify a row, empty for a single row; None if no columns do.
        updates: whether a later row replaces an earlier one of its key.
        versioned: whether the output has all versions of its rows.
    """

    field: str
    columns: Mapping[str, str]
    key: tuple[str, ...] | None
    updates: bool
    versioned: bool

    @classmethod
    def of(cls, field: str, compiled: CompiledQuery, keys: ResultKeys, spec: Spec) -> Self:
        """Describe an output; ``spec`` is its own."""
        names = compiled.result.names
        key = keys.columns
        groups = result_groups(spec) if key is None else None
        row = compiled.execution.results.key
        if groups is not None and all(group.columns for group in groups) and compiled.aggregates:
            key = tuple(names[group.columns[0].position] for group in groups)
        elif key is None and row is not None:
            key = tuple(names[place] for place in row)
        types = {each.name: each.dataType.simpleString().upper() for each in compiled.result.fields}
        return cls(field, types, key, spec.emit is not Emit.ON_WINDOW_CLOSE, keys.versioned)


class ResultKeeper(Sink):
    """A sink that writes one Arrow file for each batch with results.

    Args:
        folder: where it writes.
        result: columns of the results.
        outputs: the outputs, in the order of their numbers in the column OUTPUT.
        begin: is called before a batch is written.
    """

    def __init__(self, folder: Path, result: StructType, outputs: list[KeptOutput], begin: Callable[[], None]) -> None:
        self._folder, self._begin = folder, begin
        self._fetcher = ResultFetcher(jumps=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _OUTPUTS).write_text(json.dumps([asdict(each) for each in outputs]), encoding="utf-8")
        with pa.OSFile(str(folder / f"schema{_SUFFIX}"), "wb") as out:
            pa.ipc.new_file(out, to_arrow_schema(result, timezone="UTC")).close()

    @property
    def place(self) -> str:
        """What users would see of it."""
        return "a comparison"

    def shape(self, results: DataFrame) -> DataFrame:
        """Return each result as a struct, the form that is fetched in bounded memory."""
        return results.select(F.struct(*map(named, results.columns)).alias("value"))

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Keep the results of a batch, in place of those of an earlier attempt."""
        self._begin()
        partial = self._folder / f"{batch.number:010d}.new"
        with self._fetcher.fetched(results, may_be_any=batch.may_have_results) as tables:
            rows = _write(partial, tables)
        if rows:
            partial.rename(partial.with_suffix(_SUFFIX))
        return rows


def _write(file: Path, tables: Iterator[pa.Table]) -> int:
    rows, writer = 0, None
    with pa.OSFile(str(file), "wb") as out:
        for table in tables:
            if not table.num_rows:
                continue
            value = table.column("value").combine_chunks()
            columns = pa.Table.from_arrays(value.flatten(), schema=pa.schema(list(value.type)))
            writer = writer or pa.ipc.new_file(out, columns.schema)
            writer.write_table(columns)
            rows += table.num_rows
        if writer is not None:
            writer.close()
    return rows


@dataclass(frozen=True)
class KeptFolder:
    """The results of a run, as ``ResultKeeper`` has left them."""

    path: Path

    @property
    def outputs(self) -> list[KeptOutput]:
        """The outputs, in the order of their numbers."""
        found = json.loads((self.path / _OUTPUTS).read_text(encoding="utf-8"))
        return [KeptOutput(**each | {"key": None if each["key"] is None else tuple(each["key"])}) for each in found]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the results."""
        return _read(self.path / f"schema{_SUFFIX}").schema

    @property
    def size(self) -> int:
        """The bytes of all results."""
        return sum(file.stat().st_size for file in self._files())

    def batches(self, output: int) -> list[pa.Table]:
        """Return the results of each batch for an output, the oldest first, with their columns of changes."""
        found = []
        for file in self._files():
            table = _read(file)
            if OUTPUT in table.schema.names:
                table = table.filter(pa.compute.equal(table.column(OUTPUT), output)).drop_columns([OUTPUT])
            found.append(table)
        return found

    def empty(self) -> pa.Table:
        """Return no results, with the columns of some."""
        return self.schema.empty_table()

    def _files(self) -> list[Path]:
        return sorted(file for file in self.path.glob(f"*{_SUFFIX}") if file.stem != "schema")


def _read(file: Path) -> pa.Table:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
