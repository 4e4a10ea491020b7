"""A query over a recording, in processes that are killed and started again, and what its results have to be."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lab.processes import Mark
from lab.waiting import wait_until
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import Row, assert_same, duckdb_rows, latest, rows_of, with_zones
from .killed_queries import QUESTION, Process, document, recording
from .questions import Question

RATE = 500
"""Records per second: the recording lasts longer than a test, which reads the rest at once."""

MILLRACE = str(Path(sys.executable).parent / "millrace")
IN_USE = "another run is using the checkpoint"


class Running:
    """A query over a recording, in a process that can be killed and started again.

    ``question`` is what it asks; the values that the state has taken up since the start are in ``added``, with the
    newest window that it had by then.
    """

    def __init__(self, folder: Path, emit: str, seed: int | None = None, rate: int = RATE, **spec: Any) -> None:
        self.folder, self.emit, self.mark = folder, emit, Mark()
        self.events = recording(seed=len(emit) if seed is None else seed)
        pq.write_table(with_zones(self.events), folder / "recording.parquet")
        made = document(folder, emit)
        made["spec"] |= {"batchInterval": "4s"} | spec
        made["spec"]["sources"]["events"]["replay"]["rate"] = rate
        self.document, self.file = made, folder / "query.yaml"
        self.question, self.added = QUESTION, dict[str, datetime]()
        self._write()
        self._starts = itertools.count(1)

    def ask(self, **values: str) -> None:
        """Let the query select these values, too, from its next start on."""
        self.question = replace(self.question, values=dict(self.question.values) | values)
        self._write()

    def ask_again(self, question: Question) -> None:
        """Let the query ask an earlier question, from its next start on."""
        self.question = question
        self._write()

    def _write(self) -> None:
        self.document["spec"]["query"] = {"sql": self.question.spark}
        self.file.write_text(yaml.safe_dump(self.document), encoding="utf-8")

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint as it is now."""
        return Checkpoint(self.folder / "checkpoint")

    def start(self, *options: str) -> Process:
        """Start the query."""
        return Process(MILLRACE, "run", str(self.file), *options, log=self._log("run"), mark=self.mark)

    def started_again(self) -> Process:
        """Start the query, again as long as another process holds its checkpoint, and wait for a batch."""
        while True:
            run = self.start()
            if run.finishes_a_batch():
                return run
            assert IN_USE in run.output, run.output

    def program(self, name: str, *arguments: str) -> Process:
        """Start a program of this folder with the query's file and further arguments."""
        program = str(Path(__file__).with_name(name))
        return Process(sys.executable, program, str(self.file), *arguments, log=self._log("run"), mark=self.mark)

    def repartition(self, partitions: int) -> Process:
        """Start the command that changes the number of state partitions."""
        command = ("state", "repartition", str(self.file), "--partitions", str(partitions))
        return Process(MILLRACE, *command, log=self._log("repartition"), mark=self.mark)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}-{next(self._starts)}.log"

    @property
    def partitions(self) -> int:
        """The number of state partitions."""
        return int(self.checkpoint.state_partitions)

    @property
    def newest_window(self) -> datetime:
        """The start of the newest window of which the finished batches have a record."""
        read = int(self.checkpoint.committed()["events"]["position"]["row"])
        ((found,),) = duckdb_rows(self.events.slice(0, read), f"SELECT max(window_start) FROM ({QUESTION.duckdb})")
        newest: datetime = found
        return newest

    def assert_right(self) -> None:
        """Process the rest, and compare all results with DuckDB's."""
        last = self.start("--once")
        assert last.wait() == 0, last.output
        wait_until(lambda: not self.mark.processes(), "all processes have ended")
        self.assert_results(results_of(self.folder, self.question))

    def assert_results(self, results: pa.Table) -> None:
        """Compare all results with DuckDB's: what was added is NULL in windows that the state had by then."""
        keys = self.question.key_columns
        found = latest(results, keys) if self.emit == "OnUpdate" else rows_of(results)
        asked = {row[:keys]: row[-1].split() for row in found}
        expected = duckdb_rows(self.events, self.question.duckdb)
        assert_same([row[:-1] for row in found], [self._counted(row, asked.get(row[:keys])) for row in expected], keys)

    def _counted(self, row: Row, asked: list[str] | None) -> Row:
        """Return a row as the version has it that asked for these values when it wrote the row last."""
        keys, shown = self.question.key_columns, list[Any]()
        for name, value in zip(self.question.values, row[keys:], strict=True):
            is_held = name not in self.added or row[0] > self.added[name]
            shown.append(value if is_held and (asked is None or name in asked) else None)
        return (*row[:keys], *shown)


def results_of(folder: Path, question: Question) -> pa.Table:
    """Return all rows in the sink of a query in this folder, with NULL for values that earlier versions lack.

    The column ``asked`` has the names of those that the version of each row has.
    """
    tables = []
    for file in sorted((folder / "results").glob("batch-*.parquet")):
        rows = pq.read_table(file)
        asked = pa.scalar(" ".join(set(question.values) & set(rows.column_names)))
        tables.append(rows.append_column("asked", pa.repeat(asked, len(rows))))
    whole = pa.concat_tables(tables, promote_options="default")
    windows = ["window_start", "window_end"] if question.window else []
    names = [*windows, *question.keys, *question.values, "asked", *({BATCH_ID} & set(whole.column_names))]
    fields = [whole.schema.field(name) for name in names]
    plain = [field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in fields]
    return whole.select(names).cast(pa.schema(plain))
