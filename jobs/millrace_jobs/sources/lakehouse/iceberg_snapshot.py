"""An Iceberg table that is read as a whole, as of its current snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import ArrowScan, _read_deletes, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.iceberg_catalog import REFUSED_LOGIN, catalog_errors, open_catalog
from millrace_jobs.lakehouse.iceberg_io import FIELD, folder_of
from millrace_jobs.places import Place
from millrace_jobs.sources.lakehouse.table_columns import DeclaredColumns
from millrace_jobs.sources.static_tables import TableRead
from millrace_jobs.stores.objects import ObjectPath


class IcebergSnapshot:
    """The rows of an Iceberg table, in the columns of ``schema``."""

    def __init__(self, name: str, spec: IcebergSourceSpec, schema: pa.Schema) -> None:
        self._spec = spec
        self._field = f"spec.sources.{name}.iceberg"
        self._columns = DeclaredColumns(name, schema, f"the table {spec.table}")
        self._catalog: Catalog | None = None

    def read(self, known: str | None) -> TableRead | None:
        """Return the current snapshot of the table; None if that is still the ``known`` one."""
        with self._errors(f"opening the table {self._spec.table}"):
            table = self._loaded()
            self._require_place(table)
            snapshot = table.current_snapshot()
            number = "none" if snapshot is None else snapshot.snapshot_id
            version = f"{table.metadata.table_uuid}/{number}/{table.metadata.current_schema_id}"
        if version == known:
            return None
        with self._errors(f"reading the table {self._spec.table}"):
            found = self._columns.found(table.schema().as_arrow())
            scan = table.scan(selected_fields=tuple(each.name for each in found))
            tasks = list(scan.plan_files())
            if self._spec.location is not None:
                self._require_within(tasks)
        least = sum(task.file.record_count for task in tasks if not task.delete_files)
        return TableRead(version, self._rows(scan, tasks, found), least)

    def _loaded(self) -> Table:
        """Return the table as it is now. A REST catalog is kept for the next read, so that its token is used again."""
        if self._catalog is not None:
            try:
                return self._catalog.load_table(self._spec.table)
            except REFUSED_LOGIN:
                self._catalog.close()
                self._catalog = None  # the login may have changed since it was read
        catalog = open_catalog(self._spec, create=False)
        if self._spec.catalog.rest is not None:
            self._catalog = catalog
            return catalog.load_table(self._spec.table)
        with catalog:  # no connection stays open until the next read
            return catalog.load_table(self._spec.table)

    def _rows(
        self, scan: DataScan, tasks: Sequence[FileScanTask], found: Sequence[pa.Field]
    ) -> Iterator[pa.RecordBatch]:
        with self._errors(f"reading the table {self._spec.table}"):
            yield from self._columns.converted(_batches(scan, tasks), found)

    def _require_within(self, tasks: Sequence[FileScanTask]) -> None:
        """Refuse files that are not in the place that the query names: policies restrict that one."""
        place = f"{self._place()}/"
        for task in tasks:
            for file in (task.file, *task.delete_files):
                if not str(folder_of(file.file_path)).startswith(place):
                    message = f"the table {self._spec.table} has the file {file.file_path} outside of {place}"
                    hint = "rewrite the table's files there, or leave location out"
                    raise MillraceError(Problem(message, hint, field=f"{FIELD}.location"))

    def _place(self) -> Place:
        assert self._spec.location is not None
        if self._spec.is_local:
            return absolute_path(self._spec.location)
        return ObjectPath.of(self._spec.location.rstrip("/"))

    def _require_place(self, table: Table) -> None:
        """Refuse a table at another place than the query names, or in a folder that it may not read."""
        found = folder_of(table.location())
        if isinstance(found, Path):
            require_data(found)
        if self._spec.location is None:
            return
        if str(found) != str(self._place()):
            message = f"the table {self._spec.table} is in {table.location()}, and not in {self._spec.location}"
            hint = f"write location: {table.location()}, or leave it out, if that is the table"
            raise MillraceError(Problem(message, hint, field=f"{FIELD}.location"))

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Raise errors of the library, and those of the catalog's code, as those of this source."""
        try:
            with catalog_errors(doing):
                try:
                    yield
                except (NoSuchTableError, NoSuchNamespaceError):
                    message = f"the catalog has no table {self._spec.table}"
                    hint = "create it, or correct its name"
                    raise MillraceError(Problem(message, hint, field=f"{FIELD}.table")) from None
        except MillraceError as error:
            problems = [
                replace(each, field=self._field + each.field.removeprefix(FIELD))
                if each.field.startswith(FIELD)
                else each
                for each in error.problems
            ]
            moved = type(error)(*problems)
            moved.failure = error.failure
            raise moved from error


def _batches(scan: DataScan, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file after another.

    The library's own reader hands all files to a pool of threads at once. They would be in memory together, and the
    process would not end before all of them are read. Hence its private parts: they read one file after another, and
    a file of deletes once for all the files that it is about.
    """
    reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
    columns = schema_to_pyarrow(scan.projection())
    deleted: dict[str, list[pa.ChunkedArray]] = {}
    for file in set(chain.from_iterable(task.delete_files for task in tasks)):
        for path, places in _read_deletes(scan.io, file).items():
            deleted.setdefault(path, []).append(places)
    for batch in reader._record_batches_from_scan_tasks_and_deletes(tasks, deleted):
        yield batch.cast(columns)
