"""Reading of files with changes of a table: rows that are set, and rows that are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.tables import CHANGED_AT
from millrace_jobs.confinement import require_data
from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.lakehouse.data_file_reader import DataFileReader, FilePart
from millrace_jobs.sources.lakehouse.deleted_rows import DeletedRows
from millrace_jobs.sources.lakehouse.deletion_vectors import DeletionVector
from millrace_jobs.sources.lakehouse.table_commits import FileChanges
from millrace_jobs.sources.seen_file import unreadable

CHANGE_TYPE = "_change_type"
"""Column of a change file with the kind of each row."""

_SETS, _DELETES = ("insert", "update_postimage"), ("delete", "update_preimage")

_ROWS_OF_FILE = 32
"""Bits for the number of a row in its file; those above them are for the file."""


@dataclass(frozen=True)
class ChangeReader:
    """Reads parts of files as changes of a table, with the columns of CHANGED.

    A row that is deleted has the columns of its key alone, and its other columns are NULL.

    Args:
        files: reader of the declared columns.
        keys: the primary key of the table, of these columns.
    """

    files: DataFileReader
    keys: tuple[str, ...]

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a part of a file.

        Raises:
            MillraceError: the file or a deletion vector cannot be read, or has values that the schema does not fit.
        """
        changes = part.file.changes or FileChanges(deletes=False)
        names = self.keys if changes.deletes else self.files.schema.names
        reader = self.files.of_columns(names, *([CHANGE_TYPE] if changes.is_typed else []))
        only, deleted = _marked(changes, part)
        for records, first in reader.numbered(part, None if only is None else only.extent):
            kept = np.ones(records.num_rows, np.bool_)
            if changes.is_typed:
                kept &= _of_kind(records.column(CHANGE_TYPE), part.file.path, deletes=changes.deletes)
            if only is not None:
                kept &= only.marked(first, records.num_rows)
            if deleted is not None:
                kept &= ~deleted.marked(first, records.num_rows)
            places = np.flatnonzero(kept)
            if len(places):
                positions = (part.order << _ROWS_OF_FILE) + first + places
                yield self._changes(records.take(pa.array(places)), positions, part, deletes=changes.deletes)

    def _changes(
        self, records: pa.RecordBatch, positions: NDArray[np.int64], part: FilePart, *, deletes: bool
    ) -> pa.RecordBatch:
        known = dict(zip(records.schema.names, records.columns, strict=True))
        schema = pa.schema([*self.files.schema, pa.field(CHANGED_AT, TIMESTAMP), *CHANGED])
        count = len(positions)
        time = pa.scalar(part.time_ms * 1000, pa.int64()).cast(TIMESTAMP)
        flags = [pa.repeat(pa.scalar(each), count) for each in (deletes, False)]
        columns = [known.get(field.name, pa.nulls(count, field.type)) for field in self.files.schema]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.repeat(time, count), *flags, pa.array(positions)], schema=schema
        )


def _of_kind(kinds: pa.Array, path: str, *, deletes: bool) -> NDArray[np.bool_]:
    """Return which rows of a change file delete rows, or set them. Shape ``(rows,)``."""
    known = pc.is_in(kinds, pa.array([*_SETS, *_DELETES]))
    if not pc.all(known).as_py():
        (kind,) = kinds.filter(pc.invert(known))[:1].to_pylist()
        message = f"a row has the {CHANGE_TYPE} {kind}, which is none of {', '.join((*_SETS, *_DELETES))}"
        raise MillraceError(Problem(message, "start with another checkpoint behind this version", path))
    found: NDArray[np.bool_] = pc.is_in(kinds, pa.array(_DELETES if deletes else _SETS)).to_numpy(zero_copy_only=False)
    return found


def _marked(changes: FileChanges, part: FilePart) -> tuple[DeletedRows | None, DeletedRows | None]:
    """Return the only rows of a file that count, and the rows that do not count, if either is given."""
    if part.deleted:
        return None, DeletedRows.of_packed(part.deleted)
    without = None if changes.without is None else _rows(changes.without, part.file.path)
    if changes.only is not None:
        only = _rows(changes.only, part.file.path)
        return DeletedRows.of_places(only if without is None else np.setdiff1d(only, without)), None
    return None, None if without is None else DeletedRows.of_places(without)


def _rows(vector: DeletionVector, path: str) -> NDArray[np.int64]:
    if vector.file:
        require_data(vector.file)
    try:
        return vector.rows()
    except OSError as error:
        raise unreadable(vector.file, error) from error
    except ValueError as error:
        raise MillraceError(Problem(str(error), "restore it", vector.file or path)) from error
