"""An Iceberg table that one query writes to: created or checked at the start, and changed by one commit per batch.

A commit that writes a batch sets properties of the table beside its files: the number of the batch and that of the
driver, which is one higher with each start. Properties stay when snapshots expire. The catalog takes a commit only if
the table still has the snapshot that the driver has looked at, and each start commits a snapshot without files. So a
batch is in the table once, and a driver that another one has followed cannot commit.
"""

from __future__ import annotations

from collections.abc import Sequence
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

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_api.model.values import PositiveDuration
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.errors import retried
from millrace_jobs.lakehouse.iceberg_catalog import StagedTransaction, catalog_errors, open_catalog, require_namespace
from millrace_jobs.lakehouse.iceberg_io import FIELD, folder_of
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse.columns import PARTITIONING, TargetColumns, match_columns, sql_type
from millrace_jobs.sinks.lakehouse.data_files import DataFile, Folder
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
from millrace_jobs.sinks.lakehouse.sink import NO_BATCH, BatchesInTable, require_known, taken_over
from millrace_jobs.stores.objects import ObjectPath


@dataclass(frozen=True)
class Changes:
    """What a batch changes.

    Args:
        added: files with rows that are added.
        removed: files with rows whose keys are removed; they are no part of the table.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()


class IcebergTarget:
    """The table of a sink.

    Args:
        spec: what the user wrote about it.
        results: columns of the results, as from ``result_schema``.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
    """

    def __init__(self, spec: IcebergSinkSpec, results: pa.Schema, query: str, checkpoint_id: str) -> None:
        self._spec, self._results = spec, stored_types(results)
        self._query, self._checkpoint = query, checkpoint_id
        self._batches = f"millrace.{checkpoint_id}.batch"
        self._drivers = f"millrace.{checkpoint_id}.driver"
        self._checkpoints = f"millrace.query.{query}.checkpoint"
        self._driver = 0
        self._last = NO_BATCH
        self._catalog: Catalog | None = None
        self._open: Table | None = None
        self._columns = TargetColumns(self._results)
        self._terms: tuple[PartitionTerm, ...] = ()

    @property
    def last(self) -> int:
        """The last batch in the table; NO_BATCH if there is none."""
        return self._last

    @property
    def columns(self) -> pa.Schema:
        """The columns that are written, with the table's types and the numbers by which Iceberg knows them."""
        full = arrow_schema(self._table.schema())
        return pa.schema([full.field(name) for name in self._results.names])

    @property
    def terms(self) -> tuple[PartitionTerm, ...]:
        """What the table is partitioned by."""
        return self._terms

    @property
    def folder(self) -> Folder:
        """Where data files are written."""
        return folder_of(self._data_path)

    def take(self, last: LastBatch) -> None:
        """Create the table or check it, fence other drivers on this checkpoint, and find the last batch in it.

        Raises:
            MillraceError: the table cannot be used, does not suit the results, or does not match Spark's log.
        """
        doing = f"opening the table {self._spec.table}"
        with catalog_errors(doing):
            self._catalog = self._catalog or open_catalog(self._spec)
            self._open = self._opened() or self._created()
            self._require_place()
            self._terms = self._matched_terms()
            self._columns = self._matched()
            require_known(self._record, last, self._query, self._spec.table, f"{FIELD}.table")
            if self._columns.added:
                self._add_columns()
            if isinstance(self.folder, Path):
                require_data(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)
        retried(self._fence)
        batch = self._record.batch
        self._last = NO_BATCH if batch is None else batch

    def write(self, changes: Changes, batch: ResultBatch) -> None:
        """Add rows, and with a key replace and remove those that have it, in a commit with the batch's number.

        Raises:
            MillraceError: another driver has taken over, or the commit fails.
        """
        doing = f"writing batch {batch.number} to the table {self._spec.table}"

        def checked() -> None:
            with catalog_errors(doing):
                self._refresh()
                if self._has(batch):
                    return
                if self._number(self._drivers) != self._driver:
                    raise taken_over(self._query, self._spec.table, batch.number, FIELD)
                self._commit(changes, batch)

        retried(checked)
        self._last = batch.number

    def compact(self) -> None:
        """Merge small files into larger ones, expire snapshots, and remove files that no snapshot has.

        It gives way to other writers: what is not compacted now, is the next time. The rows stay as they are.
        """
        retention = self._spec.maintenance.retention
        try:
            with catalog_errors(f"compacting the table {self._spec.table}"):
                self._refresh()
                replacements = merged(self._table, self.folder, "compacted-")
                if replacements:
                    transaction = self._transaction()
                    self._replace(_Rewrite(Operation.OVERWRITE, transaction, self._table.io), replacements, [])
                    transaction.commit_transaction()
                    self._refresh()
                expire_snapshots(self._table, retention)
                self._refresh()
                remove_orphans(self._table, retention)
        except TransientError:
            return

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
            self._number(self._batches),
            self._number(self._drivers),
            other is not None and other != self._checkpoint,
        )

    def _number(self, name: str) -> int | None:
        found = self._table.properties.get(name)
        return None if found is None else int(found)

    def _opened(self) -> Table | None:
        assert self._catalog is not None
        try:
            return self._catalog.load_table(self._spec.table)
        except NoSuchTableError:
            return None

    def _created(self) -> Table:
        assert self._catalog is not None
        location = self._spec.location
        if location is None and not self._spec.catalog.has_places:
            message = f"the table {self._spec.table} does not exist, and its catalog has no place for it"
            raise _problem(message, "write location: a folder, or s3a:// with a bucket and a prefix", "location")
        if location is not None:
            location = f"file://{absolute_path(location)}" if self._spec.is_local else self._object_location(location)
        schema = iceberg_schema(self._results)
        fields = [
            PartitionField(schema.find_field(term.column).field_id, number, term.transform, term.field_name)
            for number, term in enumerate(map(PartitionTerm.of, self._spec.partition_by), 1000)
        ]
        properties = _properties(self._spec.maintenance.retention)
        require_namespace(self._catalog, self._spec.namespace)
        try:
            return self._catalog.create_table(
                self._spec.table, schema, location, PartitionSpec(*fields), properties=properties
            )
        except TableAlreadyExistsError:  # of two queries that create it at once, the second finds the first one's
            return self._catalog.load_table(self._spec.table)

    def _object_location(self, location: str) -> str:
        """Return a place as engines know it; a metastore, which makes a folder there, knows it as Hadoop's client."""
        return location.rstrip("/") if self._spec.catalog.hive else f"s3{location.rstrip('/')[3:]}"

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

    def _matched(self) -> TargetColumns:
        known = arrow_schema(self._table.schema())
        name, evolution = self._spec.table, self._spec.schema_evolution
        return match_columns(self._results, known, name, self._spec.key, evolution, FIELD)

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

    def _add_columns(self) -> None:
        with self._table.update_schema() as update:
            for each in iceberg_schema(pa.schema(self._columns.added)).fields:
                update.add_column(each.name, each.field_type)
        self._refresh()

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

    def _fence(self) -> None:
        with catalog_errors("fencing other drivers"):
            self._refresh()
            began = (self._number(self._drivers) or 0) + 1
            transaction = self._transaction()
            transaction.update_snapshot().merge_append().commit()
            transaction.set_properties({self._drivers: str(began)})
            transaction.commit_transaction()
        self._driver = began

    def _commit(self, changes: Changes, batch: ResultBatch) -> None:
        transaction = self._transaction()
        requirement = AssertDefaultSpecId.model_validate({"default-spec-id": self._table.metadata.default_spec_id})
        # Private: no public method adds a requirement, without which the partitioning could be changed meanwhile
        transaction._stage((), (requirement,))
        named = {"millrace.query": self._query, "millrace.batch": str(batch.number)}
        update = transaction.update_snapshot(snapshot_properties=named)
        replacements = self._replacements(changes, batch)
        self._replace(update.overwrite() if replacements else update.merge_append(), replacements, changes.added)
        transaction.set_properties(
            {
                self._batches: str(batch.number),
                self._drivers: str(self._driver),
                self._checkpoints: self._checkpoint,
            }
        )
        transaction.commit_transaction()

    def _replacements(self, changes: Changes, batch: ResultBatch) -> list[Replacement]:
        if not self._spec.key or self._table.current_snapshot() is None:
            return []
        keys = key_rows(self.folder, [*changes.added, *changes.removed], self._spec.key, self.columns)
        return without_keys(self._table, keys, self.folder, f"batch-{batch.number:010d}-kept-")

    def _replace(self, producer: _FileChanges, replacements: Sequence[Replacement], added: Sequence[DataFile]) -> None:
        """Stage files that are added, and files that take the place of others and stay in their partitions."""
        metadata = self._table.metadata
        for entry in file_entries(added, self._data_path, self._terms, metadata):
            producer.append_data_file(entry)
        for each in replacements:
            for old in each.old:
                producer.delete_data_file(old)
            for entry in file_entries(each.new, self._data_path, (), metadata, each.old[0].partition):
                producer.append_data_file(entry)
        producer.commit()

    def _has(self, batch: ResultBatch) -> bool:
        """Return whether this driver has committed the batch."""
        return self._number(self._drivers) == self._driver and self._number(self._batches) == batch.number


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


def _properties(retention: PositiveDuration) -> dict[str, str]:
    """Return the properties of a new table: metadata stay few, and snapshots for as long as asked for."""
    return {
        "format-version": "2",
        "commit.manifest-merge.enabled": "true",
        "write.metadata.delete-after-commit.enabled": "true",
        "history.expire.max-snapshot-age-ms": str(retention.microseconds // 1000),
    }


def _is_below(folder: Folder, place: Folder) -> bool:
    return str(folder) == str(place) or str(folder).startswith(f"{place}/")


def _problem(message: str, hint: str, part: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field=f"{FIELD}.{part}"))
