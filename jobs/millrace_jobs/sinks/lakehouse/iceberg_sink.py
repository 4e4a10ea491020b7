"""The sink that writes results to an Iceberg table, each batch exactly once.

A commit that writes a batch sets properties of the table beside its files: the number of the batch and that of the
driver, which is one higher with each start. Properties stay when snapshots expire. The catalog takes a commit only if
the table still has the snapshot that the driver has looked at, and each start commits a snapshot without files. So a
batch is in the table once, and a driver that another one has followed cannot commit.

With a key, the driver reads the keys from the files of the tasks, and replaces each file of the table that has rows
with them by one without. Rows whose keys are removed are in files of their own, which are never part of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile as FileEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertDefaultSpecId
from pyiceberg.table.update.snapshot import _OverwriteFiles  # private: see ``_Rewrite``
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.iceberg_catalog import StagedTransaction, catalog_errors, open_catalog, require_namespace
from millrace_jobs.lakehouse.iceberg_io import FIELD, folder_of
from millrace_jobs.sinks.base import LastBatch, ResultBatch, named
from millrace_jobs.sinks.lakehouse.columns import PARTITIONING, match_columns, require_key, result_schema, sql_type
from millrace_jobs.sinks.lakehouse.data_files import DataFile, FileWriter, Folder, write_files
from millrace_jobs.sinks.lakehouse.iceberg_files import (
    Replacement,
    expire_snapshots,
    key_rows,
    merged,
    remove_orphans,
    without_keys,
)
from millrace_jobs.sinks.lakehouse.iceberg_layout import (
    PartitionTerm,
    arrow_schema,
    file_entries,
    iceberg_schema,
    stored_types,
)
from millrace_jobs.sinks.lakehouse.sink import (
    REMOVED,
    BatchesInTable,
    LakehouseSink,
    LakehouseTable,
    key_changes,
    require_known,
)
from millrace_jobs.stores.objects import ObjectPath


@dataclass(frozen=True)
class Changes:
    """What a batch changes.

    ``added`` are files with rows that are added, ``removed`` those with rows whose keys are removed, no part of the
    table.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()


class IcebergTarget(LakehouseTable):
    """The table of a sink.

    ``results`` are the columns of the results, as from ``result_schema``.
    """

    _field = FIELD

    def __init__(self, spec: IcebergSinkSpec, results: pa.Schema, query: str, checkpoint_id: str) -> None:
        super().__init__(spec.table, query, checkpoint_id)
        self._spec, self._results = spec, stored_types(results)
        self._batches = f"millrace.{checkpoint_id}.batch"
        self._drivers = f"millrace.{checkpoint_id}.driver"
        self._checkpoints = f"millrace.query.{query}.checkpoint"
        self._catalog: Catalog | None = None
        self._open: Table | None = None
        self.terms: tuple[PartitionTerm, ...] = ()
        """What the table is partitioned by."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that are written, with the table's types and the numbers by which Iceberg knows them."""
        full = arrow_schema(self._table.schema())
        return pa.schema([full.field(name) for name in self._results.names])

    @property
    def folder(self) -> Folder:
        """Where data files are written."""
        return folder_of(self._data_path)

    def write(self, changes: Changes, batch: ResultBatch) -> None:
        """Add rows, and with a key replace and remove those that have it, in a commit with the batch's number.

        Raises MillraceError if another driver has taken over, or the commit fails.
        """
        self._write(lambda: self._commit(changes, batch), batch)

    def _errors(self, doing: str) -> AbstractContextManager[None]:
        return catalog_errors(doing)

    def _open_table(self, last: LastBatch) -> None:
        self._catalog = self._catalog or open_catalog(self._spec)
        try:
            self._refresh()
        except NoSuchTableError:
            self._open = self._created()
        self._require_place()
        self.terms = self._matched_terms()
        known, evolution = arrow_schema(self._table.schema()), self._spec.schema_evolution
        added = match_columns(self._results, known, self._name, self._spec.key, evolution, FIELD).added
        require_known(self._record, last, self._query, self._name, f"{FIELD}.table")
        if added:
            with self._table.update_schema() as update:
                for each in iceberg_schema(pa.schema(added)).fields:
                    update.add_column(each.name, each.field_type)
            self._refresh()
        if isinstance(self.folder, Path):
            require_data(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)

    def _compact(self) -> None:
        retention = self._spec.maintenance.retention
        if replacements := merged(self._table, self.folder, "compacted-"):
            transaction = self._transaction()
            self._replace(_Rewrite(Operation.OVERWRITE, transaction, self._table.io), replacements, [])
            transaction.commit_transaction()
            self._refresh()
        expire_snapshots(self._table, retention)
        self._refresh()
        remove_orphans(self._table, retention)

    @property
    def _table(self) -> Table:
        assert self._open is not None, "the table has not been taken"
        return self._open

    @property
    def _data_path(self) -> str:
        location = self._table.properties.get("write.data.path") or f"{self._table.location().rstrip('/')}/data"
        return location.rstrip("/")

    @property
    def _record(self) -> BatchesInTable:
        other = self._table.properties.get(self._checkpoints)
        return BatchesInTable(
            self._number(self._batches), self._number(self._drivers), other is not None and other != self._checkpoint
        )

    def _number(self, name: str) -> int | None:
        found = self._table.properties.get(name)
        return None if found is None else int(found)

    def _created(self) -> Table:
        assert self._catalog is not None
        location = self._spec.location
        if location is None and not self._spec.catalog.has_places:
            message = f"the table {self._spec.table} does not exist, and its catalog has no place for it"
            raise _problem(message, "write location: a folder, or s3a:// with a bucket and a prefix", "location")
        if location is not None:
            place = location.rstrip("/")
            # engines know S3 as s3://; a metastore, which makes a folder there, knows it as Hadoop's client does
            remote = place if self._spec.catalog.hive else f"s3{place[3:]}"
            location = f"file://{absolute_path(location)}" if self._spec.is_local else remote
        schema = iceberg_schema(self._results)
        fields = [
            PartitionField(schema.find_field(term.column).field_id, number, term.transform, term.field_name)
            for number, term in enumerate(map(PartitionTerm.of, self._spec.partition_by), 1000)
        ]
        properties = {  # metadata stay few, and snapshots for as long as asked for
            "format-version": "2",
            "commit.manifest-merge.enabled": "true",
            "write.metadata.delete-after-commit.enabled": "true",
            "history.expire.max-snapshot-age-ms": str(self._spec.maintenance.retention.microseconds // 1000),
        }
        require_namespace(self._catalog, self._spec.namespace)
        try:
            return self._catalog.create_table(
                self._spec.table, schema, location, PartitionSpec(*fields), properties=properties
            )
        except TableAlreadyExistsError:  # of two queries that create it at once, the second finds the first one's
            return self._catalog.load_table(self._spec.table)

    def _require_place(self) -> None:
        """Refuse a table at another place than the query names: policies restrict that one."""
        found = self._table.location()
        if self._spec.location is None:
            return
        wanted = (
            absolute_path(self._spec.location)
            if self._spec.is_local
            else ObjectPath.of(self._spec.location.rstrip("/"))
        )
        places = [found, self._data_path, self._table.location_provider().metadata_path]
        if folder_of(found) != wanted or not all(_is_below(folder_of(each), wanted) for each in places[1:]):
            other = next((each for each in places if not _is_below(folder_of(each), wanted)), found)
            message = f"the table {self._spec.table} has files in {other}, and not in {self._spec.location}"
            raise _problem(message, f"write location: {found}, or leave it out, if that is the table", "location")

    def _matched_terms(self) -> tuple[PartitionTerm, ...]:
        """Return what the table is partitioned by, which has to be what the query says, and computable by tasks."""
        schema, found = self._table.schema(), []
        for field in self._table.spec().fields:
            term = PartitionTerm.of_field(field, schema)
            if term is None:
                message = f"the table {self._spec.table} is partitioned by {field.name} ({field.transform})"
                hint = "write to a table that is partitioned by columns, or by their years, months, days or hours"
                raise _problem(f"{message}, which tasks cannot compute", hint, "partitionBy")
            if term.column not in self._results.names:
                message = f"the table {self._spec.table} is partitioned by {term}, which the result does not have"
                raise _problem(message, f"add {term.column} to the SELECT list", "partitionBy")
            found.append(term)
        given = tuple(map(PartitionTerm.of, self._spec.partition_by))
        if given and given != tuple(found):
            by = f"is partitioned by {', '.join(map(str, found))}" if found else "is not partitioned"
            hint = f"write partitionBy: [{', '.join(map(str, found))}]" if found else "leave partitionBy out"
            wanted = ", ".join(map(str, given))
            raise _problem(f"the table {self._spec.table} {by}, and not by {wanted}", hint, "partitionBy")
        for term in found:
            kind = self._results.field(term.column).type
            if not term.unit and kind not in PARTITIONING:
                message = f"the table {self._spec.table} is partitioned by {term}, which is {sql_type(kind)}"
                hint = (
                    "write to a table that is partitioned by BOOLEAN, integer, STRING or DATE columns, or units of time"
                )
                raise _problem(message, hint, "partitionBy")
        return tuple(found)

    def _refresh(self) -> None:
        assert self._catalog is not None
        self._open = self._catalog.load_table(self._spec.table)

    def _transaction(self) -> Transaction:
        """Return a transaction that the catalog refuses if another one was faster: whether to repeat it is ours to say.

        The library repeats commits by itself, by a property of the table; here it sees another value.
        """
        metadata = self._table.metadata
        properties = metadata.properties | {"commit.retry.num-retries": "0"}
        own = Table(
            self._table.name(),
            metadata.model_copy(update={"properties": properties}),
            self._table.metadata_location,
            self._table.io,
            self._table.catalog,
        )
        return StagedTransaction(own)

    def _begin(self, driver: int) -> None:
        transaction = self._transaction()
        transaction.update_snapshot().merge_append().commit()
        transaction.set_properties({self._drivers: str(driver)})
        transaction.commit_transaction()

    def _commit(self, changes: Changes, batch: ResultBatch) -> None:
        transaction = self._transaction()
        requirement = AssertDefaultSpecId.model_validate({"default-spec-id": self._table.metadata.default_spec_id})
        # Private: no public method adds a requirement, without which the partitioning could be changed meanwhile
        transaction._stage((), (requirement,))
        named = {"millrace.query": self._query, "millrace.batch": str(batch.number)}
        update = transaction.update_snapshot(snapshot_properties=named)
        replacements: list[Replacement] = []
        if self._spec.key and self._table.current_snapshot() is not None:
            keys = key_rows(self.folder, [*changes.added, *changes.removed], self._spec.key, self.columns)
            replacements = without_keys(self._table, keys, self.folder, f"batch-{batch.number:010d}-kept-")
        self._replace(update.overwrite() if replacements else update.merge_append(), replacements, changes.added)
        transaction.set_properties(
            {self._batches: str(batch.number), self._drivers: str(self._driver), self._checkpoints: self._checkpoint}
        )
        transaction.commit_transaction()

    def _replace(self, producer: _FileChanges, replacements: Sequence[Replacement], added: Sequence[DataFile]) -> None:
        """Stage files that are added, and files that take the place of others and stay in their partitions."""
        metadata = self._table.metadata
        for entry in file_entries(added, self._data_path, self.terms, metadata):
            producer.append_data_file(entry)
        for each in replacements:
            for old in each.old:
                producer.delete_data_file(old)
            for entry in file_entries(each.new, self._data_path, (), metadata, each.old[0].partition):
                producer.append_data_file(entry)
        producer.commit()


class _FileChanges(Protocol):
    """The changes of files of one snapshot, as the library stages them."""

    def append_data_file(self, data_file: FileEntry) -> object: ...

    def delete_data_file(self, data_file: FileEntry) -> object: ...

    def commit(self) -> None: ...


class _Rewrite(_OverwriteFiles):
    """A snapshot with the same rows in other files, which readers of changes skip.

    Its operation is ``replace``, which the library reads and never writes: it has no public class for it, and
    ``overwrite`` would have readers of changes read all rows again.
    """

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - never changed
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


def _is_below(folder: Folder, place: Folder) -> bool:
    return str(folder) == str(place) or str(folder).startswith(f"{place}/")


def _problem(message: str, hint: str, part: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{FIELD}.{part}"))


class IcebergSink(LakehouseSink[IcebergSinkSpec, IcebergTarget]):
    """A sink that appends to an Iceberg table, or upserts and deletes its rows by key; see ``LakehouseSink``."""

    @property
    def place(self) -> str:
        """Name of the table."""
        return f"Iceberg table {self._spec.table}"

    def _checked_columns(self) -> pa.Schema:
        terms = list(map(PartitionTerm.of, self._spec.partition_by))
        plain = [term.column for term in terms if not term.unit]
        columns = result_schema(self._results, plain, self._spec.sort_by, FIELD)
        for term in terms:
            if term.unit:
                term.require_time(columns, f"{FIELD}.partitionBy")
        require_key(columns, self._keys.columns or (), FIELD)
        if self._spec.location is not None and self._spec.is_local:
            require_data(absolute_path(self._spec.location))
        if self._spec.catalog.file is not None:
            require_data(absolute_path(self._spec.catalog.file))
        return columns

    def _new_target(self, columns: pa.Schema) -> IcebergTarget:
        return IcebergTarget(self._spec, columns, self._query, self._checkpoint)

    def _write(self, results: DataFrame, batch: ResultBatch) -> int:
        changes = self._changes(results, batch)
        rows = sum(each.rows for each in (*changes.added, *changes.removed))
        if rows:
            self._target.write(changes, batch)
        for each in changes.removed:
            with suppress(OSError):  # compaction removes what is left
                (self._target.folder / each.name).unlink()
        return rows

    def _changes(self, results: DataFrame, batch: ResultBatch) -> Changes:
        """Let tasks write the rows of a batch, those with removed keys apart."""
        schema, terms = self._target.columns, self._target.terms
        keyed = bool(self._keys.columns)
        rows = key_changes(results, self._keys, FIELD) if keyed else results
        computed = [term.expression(schema) for term in terms if term.unit]
        rows = rows.select("*", *computed) if computed else rows
        parts = (*([REMOVED] if keyed else []), *(term.computed for term in terms))
        if order := [*parts, *self._spec.sort_by]:
            rows = rows.sortWithinPartitions(*map(named, order))
        writer = FileWriter(self._target.folder, f"batch-{batch.number:010d}-", pa.schema(schema), parts, FIELD)
        files = write_files(rows, writer)
        removed = [each for each in files if each.values.get(REMOVED)]
        return Changes([each for each in files if each not in removed], removed)
