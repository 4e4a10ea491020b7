"""The rows of a table, and those that are added to it, as a stream of records; or all changes of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_api.model.tables import CHANGED_AT
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.places import Place
from millrace_jobs.sources.base import CHANGED, OnArrival, Position, Rejected, Slice, Source, cut, ignore_arrivals
from millrace_jobs.sources.formats.column_types import place_of, shown_names
from millrace_jobs.sources.formats.format_reader import completed, without_event_time
from millrace_jobs.sources.formats.typed_columns import TypedColumn
from millrace_jobs.sources.lakehouse.data_files import AddedFile, ChangeReader, DataFileReader, FilePart
from millrace_jobs.sources.lakehouse.table_commits import TableCommits, TablePosition
from millrace_jobs.sources.stored_files import ListingPause, StateFile

_LOOKED_AHEAD = 20
"""Commits behind the last one read whose records are counted for the backlog; each costs a request once."""


@dataclass(frozen=True)
class TableSlice:
    """Parts of files that one replica reads one after another."""

    parts: tuple[FilePart, ...]
    reader: DataFileReader | ChangeReader


class LakehouseSource(Source):
    """The rows of a table of a lakehouse.

    The position is that of a commit and the number of its files that were read (``TablePosition``). Where a new query
    starts is decided once, and stored in ``state`` with the identity of the table. The files of a commit, and their
    order, never change, so a batch that is repeated reads the same rows.

    With ``keys``, records are those of a table that changes: they have the time of their commit in CHANGED_AT, and the
    columns of CHANGED. Times never decrease, whatever clocks say, so that later commits count. A commit is in one batch
    unless it alone exceeds the limit; then its deletes come before the rows that it sets.

    Args:
        name: the name of the source in the query.
        spec: what the user wrote about the table.
        schema: the declared columns; with ``keys``, CHANGED_AT among them.
        state: place for the start.
        timestamp_format: how a TIMESTAMP is written where the table has text.
        keys: the primary key of a table whose changes are read.
    """

    def __init__(
        self,
        name: str,
        spec: DeltaSourceSpec | IcebergSourceSpec,
        schema: pa.Schema,
        state: Place,
        timestamp_format: str = "iso",
        keys: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.schema = pa.schema([*schema, *CHANGED]) if keys else schema
        self._spec, self._written = _with_absolute_paths(spec), spec
        self._keys = keys
        self._stored = pa.schema([each for each in without_event_time(schema) if not keys or each.name != CHANGED_AT])
        self._state = StateFile(state / "table.json", "the start of the source", f"where source {name} starts")
        self._timestamp_format = timestamp_format
        self._pause = ListingPause()
        self._looked = False
        self._table_id: str | None = None
        self._checked: pa.Schema | None = None
        self._files: dict[TablePosition, list[AddedFile]] = {}  # in the order of the commits
        self._further: int | None = None

    @property
    def input(self) -> str:
        """The table that it reads, for messages."""
        kind, place = (
            ("Delta", self._written.path)
            if isinstance(self._written, DeltaSourceSpec)
            else ("Iceberg", self._written.table)
        )
        return f"{kind} table {place}"

    def reads(self, file: Path | str) -> bool:
        """Return whether results that are written to this absolute path, as to a table's folder, would be read."""
        if not isinstance(file, Path) or not self._spec.is_local:
            return False  # of places in object stores, the specs say enough
        place = self._spec.path if isinstance(self._spec, DeltaSourceSpec) else self._spec.location
        folders = [folder.resolve() for folder in file.parents[:2]]
        return place is not None and absolute_path(place).resolve() in folders

    @cached_property
    def _commits(self) -> TableCommits:
        commits = self._opened()
        self._refresh(commits)
        return commits

    def _opened(self) -> TableCommits:
        if isinstance(self._spec, DeltaSourceSpec):
            from millrace_jobs.sources.lakehouse.delta_commits import DeltaChanges, DeltaCommits

            return (DeltaChanges if self._keys else DeltaCommits)(self._spec, self.name)
        from millrace_jobs.sources.lakehouse.iceberg_commits import IcebergChanges, IcebergCommits

        return (IcebergChanges if self._keys else IcebergCommits)(self._spec, self.name)

    def check(self) -> None:
        """Check that the table can be read, and that it has the declared columns.

        Raises MillraceError if it cannot, it has not, or it is another table than that of an earlier run.
        """
        commits = self._opened()
        self._refresh(commits)
        if self._keys and self._read_start() is None:
            commits.start()  # says whether there are changes to read

    def initial(self) -> Position:
        """Return where the query starts: what was decided by the first run."""
        start = self._read_start()
        if start is None:
            start = self._commits.start()
            self._state.write({"table": self._commits.table_id, "start": start.to_json()})
        return start.to_json()

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Look for new commits, and return how far the batch after ``start`` may go.

        A batch ends with a file: with the one by which it has ``max_files_per_batch`` files or about ``most`` records;
        or with a commit, if the next one would exceed that, and has changes.
        With ``everything``, the table is looked at once: what is added later is left to the next run.
        """
        commits = self._commits
        if not (everything and self._looked):
            if everything or self._pause.is_over():
                with self._pause.measured():
                    self._refresh(commits)
            self._looked = everything
        before = at = TablePosition.of(start)
        if before.beginning in self._files:  # files of the commits behind it were looked at for the backlog
            known = list(self._files)
            for key in known[: known.index(before.beginning)]:
                del self._files[key]
        self._further = None
        files, records, limit = 0, 0, self._spec.max_files_per_batch
        while limit is None or files < limit:
            found = self._files_of(at)
            if not at.is_done and at.files < len(found):
                records += found[at.files].records
                if files and most is not None and records > most:
                    break
                files, read = files + 1, at.files + 1
                at = replace(at, files=read, is_done=read == len(found))
                continue
            following = commits.following(at)
            if following is None or not self._can_go_on(following, is_first=at == before):
                break
            found = self._files_of(following)
            if self._keys and files:  # a commit with changes is in one batch, unless it alone exceeds the limit
                exceeds = limit is not None and files + len(found) > limit
                if exceeds or (most is not None and records + sum(file.records for file in found) > most):
                    break
            at = replace(following, is_done=not found, time_ms=_time_in(found, at))
        return at.to_json()

    def _can_go_on(self, at: TablePosition, *, is_first: bool) -> bool:
        """Return whether a batch can go on with this commit; one that cannot be read ends it, and fails the next."""
        try:
            self._files_of(at)
        except MillraceError:
            if is_first:
                raise
            return False
        return True

    def lag(self, position: Position) -> int:
        """Return the number of records beyond ``position`` that the last call of ``latest`` knew of.

        It is what the log of the table says, and an estimate for files of which it says nothing. Of a long backlog,
        the next 20 commits are looked at, and each of the others counts as many records as they have on average.
        """
        at: TablePosition | None = TablePosition.of(position)
        if self._further is None:
            self._further = self._looked_ahead(TablePosition.of(position))
        waiting = self._further
        while at is not None and self._is_known(at):
            waiting += sum(file.records for file in self._files_of(at)[at.files :])
            try:
                at = self._commits.following(at)
            except MillraceError:
                break  # the batch that comes to it reports it
        return waiting

    def _looked_ahead(self, at: TablePosition) -> int:
        """Look at the next commits, and return an estimate of the records in those that follow them."""
        try:
            self._files_of(at)
            looked = 0
            while (following := self._commits.following(at)) is not None:
                if looked >= _LOOKED_AHEAD and not self._is_known(following):
                    break
                self._files_of(following)
                at, looked = following, looked + 1
            further = self._commits.behind(at)
        except MillraceError:
            return 0  # the batch that comes to it reports it
        counted = [sum(file.records for file in files) for key, files in self._files.items() if not key.is_whole]
        return round(further * sum(counted) / len(counted)) if counted else 0

    def _is_known(self, at: TablePosition) -> bool:
        """Return whether the files behind a position are known without a look at its commit."""
        return at.is_done or at.commit is None or at.beginning in self._files

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the files between two positions into slices of equal bytes."""
        columns = DataFileReader(self._stored, self._commits.keys(self._stored), self._timestamp_format)
        reader = ChangeReader(columns, self._keys) if self._keys else columns
        parts = list(self._parts(TablePosition.of(start), TablePosition.of(end)))
        return [
            TableSlice(tuple(replace(parts[i], begin=begin, end=end, order=i) for i, begin, end in part), reader)
            for part in cut([part.file.size for part in parts], replicas)
        ]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of the parts of a slice."""
        assert isinstance(piece, TableSlice)
        for part in piece.parts:
            require_data(part.file.path)
            try:
                for stored in piece.reader.read(part):
                    records = completed(stored, self.schema)
                    on_arrival(np.array([part.file.written_ms * 1000]), np.array([records.num_rows]))
                    yield records
            except MillraceError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                message = f"source {self.name}: the {self.input} has removed a file that is still to be read"
                longer = "let the table keep its files for longer than the query may lag behind"
                hint = f"start with another checkpoint, and {longer}"
                raise MillraceError(Problem(message, hint, part.file.path)) from error

    def _refresh(self, commits: TableCommits) -> None:
        commits.refresh()
        if self._table_id is None:
            state = self._read_state()
            self._table_id = commits.table_id if state is None else state["table"]
        if self._table_id != commits.table_id:
            message = f"source {self.name}: the {self.input} is another table than the one that was read so far"
            hint = "restore that one, or start with another checkpoint"
            raise MillraceError(Problem(message, hint, field=f"spec.sources.{self.name}"))
        if self._checked is None or not self._checked.equals(commits.schema, check_metadata=True):
            self._check_columns(commits.schema)
            self._checked = commits.schema

    def _check_columns(self, table: pa.Schema) -> None:
        problems = []
        at = f"spec.sources.{self.name}.schema"
        for field in self._stored:
            place = place_of(field.name, table)
            if place < 0:
                what = f"no column {field.name}" if place == -1 else f"several columns {field.name} in other cases"
                message = f"source {self.name}: the {self.input} has {what}; it has {shown_names(table.names)}"
                problems.append(Problem(message, "correct the schema", field=at))
                continue
            column = TypedColumn(table.field(place).type, field, self._timestamp_format)
            if not column.fits:
                message = f"source {self.name}: in the {self.input}, {column.misfit}"
                problems.append(Problem(message, column.hint, field=at))
        if problems:
            raise MillraceError(*problems)

    def _files_of(self, at: TablePosition) -> list[AddedFile]:
        """Return the files of the commit that a position is in; empty if all of them were read."""
        if at.is_done or at.commit is None:
            return []
        if at.beginning not in self._files:
            found = self._commits.existing(at.commit) if at.is_whole else self._commits.added(at.commit)
            self._files[at.beginning] = list(found)
        return self._files[at.beginning]

    def _parts(self, at: TablePosition, end: TablePosition) -> Iterator[FilePart]:
        while True:
            is_last = at.beginning == end.beginning
            taken = self._files_of(at)[at.files : end.files if is_last else None]
            marked = [file.path for file in taken if file.has_deleted_rows]
            deleted = self._commits.deleted(at.commit, marked) if at.commit is not None and marked else {}
            time = at.time_ms or 0
            yield from (FilePart(file, 0, file.size, deleted.get(file.path, b""), time) for file in taken)
            if is_last:
                return
            following = self._commits.following(at)
            if following is None:
                message = f"source {self.name}: the checkpoint is at commit {end.commit}, which the {self.input} lacks"
                raise MillraceError(Problem(message, "restore the table, or start with another checkpoint"))
            at = replace(following, time_ms=_time_in(self._files_of(following), at))

    def _read_start(self) -> TablePosition | None:
        found = self._read_state()
        return None if found is None else TablePosition.of(found["start"])

    def _read_state(self) -> dict[str, Any] | None:
        return self._state.read(lambda found: {"table": str(found["table"]), "start": dict(found["start"])})


def _time_in(found: Sequence[AddedFile], before: TablePosition) -> int | None:
    """Return the latest time of the commits so far, where records have that, up to the one with these files."""
    return before.time_ms if before.time_ms is None else max([before.time_ms, *(file.written_ms for file in found[:1])])


def _with_absolute_paths(spec: DeltaSourceSpec | IcebergSourceSpec) -> DeltaSourceSpec | IcebergSourceSpec:
    """Return a spec for processes that run in another folder, as those that plan and read for Spark may."""
    if isinstance(spec, DeltaSourceSpec):
        return spec.model_copy(update={"path": str(absolute_path(spec.path))}) if spec.is_local else spec
    paths: dict[str, Any] = {}
    if spec.is_local:
        paths["location"] = str(absolute_path(spec.location or ""))
    if spec.catalog.file is not None:
        paths["catalog"] = spec.catalog.model_copy(update={"file": absolute_path(spec.catalog.file)})
    return spec.model_copy(update=paths)
