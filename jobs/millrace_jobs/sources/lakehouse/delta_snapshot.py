"""A Delta table that is read as a whole, as of its latest version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
from pyarrow.dataset import ParquetReadOptions

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.lakehouse.delta_store import delta_options, delta_place
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.sources.lakehouse.table_columns import DeclaredColumns
from millrace_jobs.sources.static_tables import TableRead

_FROM_YEAR_1 = ParquetReadOptions(coerce_int96_timestamp_unit="us")
"""Spark's times in 96 bits as microseconds: nanoseconds hold the years 1677 to 2262 only."""


class DeltaSnapshot:
    """The rows of a Delta table, in the columns of ``schema``."""

    def __init__(self, name: str, spec: DeltaSourceSpec, schema: pa.Schema) -> None:
        self._place = delta_place(spec)
        self._field = f"spec.sources.{name}.delta"
        self._columns = DeclaredColumns(name, schema, f"the table {self._place}")

    def read(self, known: str | None) -> TableRead | None:
        """Return the latest version of the table; None if that is still the ``known`` one."""
        if isinstance(self._place, Path):
            require_data(self._place)
        with self._errors(f"opening the table {self._place}"):
            table = DeltaTable(str(self._place), storage_options=delta_options(self._place))
            # a table that was made again has the versions of the old one
            version = f"{table.metadata().id}/{table.version()}"
        return None if version == known else TableRead(version, self._rows(table))

    def _rows(self, table: DeltaTable) -> Iterator[pa.RecordBatch]:
        with self._errors(f"reading the table {self._place}"):
            if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
                # of an old protocol's, the library does not say so, and would read NULL
                raise DeltaProtocolError("column mapping")
            rows = table.to_pyarrow_dataset(parquet_read_options=_FROM_YEAR_1)
            found = self._columns.found(rows.schema)
            # a scan by the library's own engine would hold Python's lock
            batches = rows.to_batches(
                columns=[each.name for each in found], batch_readahead=1, fragment_readahead=1, use_threads=False
            )
            yield from self._columns.converted(batches, found)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError:
            message = f"there is no Delta table at {self._place}"
            raise MillraceError(
                Problem(message, "create it, or correct the path", field=f"{self._field}.path")
            ) from None
        except DeltaProtocolError as error:
            message = f"{doing} failed, because it has a feature that Millrace cannot read ({error})"
            hint = "drop the feature, such as deletion vectors, or read a copy of the table"
            raise MillraceError(Problem(message, hint, field=self._field)) from error
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            raise lakehouse_error(error, doing, self._field) from error
