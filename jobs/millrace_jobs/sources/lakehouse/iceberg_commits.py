"""The commits of an Iceberg table: the snapshots that led to the current one, and the files that each has added.

Changes of rows are read where files are rewritten for these (copy-on-write).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import _read_deletes, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from millrace_api.errors import MillraceError, MissingInputError, Problem
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_api.model.lakehouse import OBJECTS, OtherCommits, TableStart
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.iceberg_catalog import catalog_errors, open_catalog
from millrace_jobs.lakehouse.iceberg_io import folder_of
from millrace_jobs.sources.lakehouse.data_files import AddedFile, FileChanges, packed_places
from millrace_jobs.sources.lakehouse.table_columns import FILE_ID, FieldKeys, field_keys
from millrace_jobs.sources.lakehouse.table_commits import TablePosition, not_only_added
from millrace_jobs.stores.objects import ObjectPath

_COUNTS = {ManifestEntryStatus.DELETED: "deleted-data-files", ManifestEntryStatus.ADDED: "added-data-files"}
"""What a snapshot's summary has as the number of files that the snapshot has removed or added."""


class IcebergCommits:
    """The commits of an Iceberg table, for the source ``name``; a commit is named by the id of its snapshot."""

    table_id: str
    schema: pa.Schema

    def __init__(self, spec: IcebergSourceSpec, name: str) -> None:
        self._spec, self._name = spec, name
        self._field = f"spec.sources.{name}.iceberg"
        self._catalog: Catalog | None = None
        self._open: Table | None = None
        self._next: dict[int | None, Snapshot] = {}
        self._oldest: Snapshot | None = None
        self._deletes: dict[str, tuple[DataFile, ...]] = {}
        file = spec.catalog.file
        if file is not None:
            require_data(absolute_path(file))
            if not absolute_path(file).exists():
                message = f"source {name}: there is no catalog at {absolute_path(file)}"
                raise MissingInputError(Problem(message, "correct the path", field=f"{self._field}.catalog.file"))

    def __str__(self) -> str:
        return f"Iceberg table {self._spec.table}"

    @property
    def _table(self) -> Table:
        assert self._open is not None, "the table has not been opened"
        return self._open

    def refresh(self) -> None:
        """Look for new snapshots."""
        before = None if self._open is None else self._open.current_snapshot()
        with catalog_errors(f"reading the {self} of source {self._name}", self._field):
            self._catalog = self._catalog or open_catalog(self._spec, self._field)
            try:
                self._open = self._catalog.load_table(self._spec.table)
            except (NoSuchTableError, NoSuchNamespaceError):
                message = f"source {self._name}: the catalog has no table {self._spec.table}"
                problem = Problem(message, "create it, or correct the name", field=f"{self._field}.table")
                raise MissingInputError(problem) from None
            self.table_id = str(self._table.metadata.table_uuid)
            self.schema = schema_to_pyarrow(self._table.schema())
        now = self._table.current_snapshot()
        if now is not None and (before is None or before.snapshot_id != now.snapshot_id):
            ancestors = list(ancestors_of(now, self._table.metadata))
            self._oldest = ancestors[-1]
            self._next = {each.parent_snapshot_id: each for each in ancestors}

    def start(self) -> TablePosition:
        """Return where a new query starts."""
        current = self._table.current_snapshot()
        if (chosen := self._spec.starting_snapshot) is not None:
            found = [each for each in self._next.values() if each.snapshot_id == chosen]
            if not found:
                message = f"source {self._name}: the {self} has no snapshot {chosen} that led to its current one"
                hint = "write one that its history has, or startFrom"
                raise MillraceError(Problem(message, hint, field=f"{self._field}.startingSnapshot"))
            return _beginning(found[0])
        if current is None:
            metadata = self._table.metadata
            sequence = None if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number
            return TablePosition(None, is_done=True, sequence=sequence)
        if self._spec.start_from is TableStart.LATEST:
            return replace(_beginning(current), is_done=True)
        return replace(_beginning(current), is_whole=True)

    def keys(self, declared: pa.Schema) -> FieldKeys:
        """Return by what the files know the declared columns.

        Raises MillraceError if a column has a value in files that are older than it, which would be read as NULL.
        """
        schema = self._table.schema()
        for column in declared:
            if schema.find_field(column.name, case_sensitive=False).initial_default is not None:
                message = f"source {self._name}: column {column.name} of the {self} has a default in older files"
                hint = "leave it out of the schema: Millrace cannot read it"
                raise MillraceError(Problem(message, hint, field=f"spec.sources.{self._name}.schema"))
        mapping = self._table.name_mapping()
        names = [] if mapping is None else [(name, str(each.field_id)) for each in mapping.root for name in each.names]
        return FieldKeys(field_keys(declared, self.schema, FILE_ID), by_id=True, names=tuple(names))

    def following(self, at: TablePosition) -> TablePosition | None:
        """Return the beginning of the next snapshot; None if the position is in the current one.

        Once a snapshot has expired, the next one may not name it any more: then their sequence numbers are compared.
        Raises MillraceError if the snapshot is no ancestor of the current one, or what came after it has expired.
        """
        commit, current, oldest = at.commit, self._table.current_snapshot(), self._oldest
        if current is None or current.snapshot_id == commit:
            return None
        if commit is not None and commit in self._next:
            return _beginning(self._next[commit])
        if oldest is not None and at.sequence is not None and oldest.sequence_number == at.sequence + 1:
            return _beginning(oldest)
        if commit is None:
            what = "the first snapshots of the {0} have expired"
        elif self._table.snapshot_by_id(commit) is None:
            what = "snapshots of the {0} have expired that are still to be read, after {1}"
        else:
            what = "the {0} was set back: snapshot {1}, which was read, did not lead to its current one"
        hint = "start with another checkpoint, and let snapshots stay for longer than the query may lag behind"
        message = f"source {self._name}: {what.format(self, commit)}"
        raise MillraceError(Problem(message, hint, field=self._field))

    def behind(self, at: TablePosition) -> int:
        """Return the number of known snapshots after that of a position."""
        number, following = 0, self.following(at)
        while following is not None:
            number, following = number + 1, self.following(following)
        return number

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files that a snapshot has added, in the order of its manifests.

        Raises MillraceError if it also changes or removes rows, and the query does not skip such commits; or it has
        expired.
        """
        snapshot = self._snapshot(commit)
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation is Operation.REPLACE:
            return []
        if operation is not Operation.APPEND:
            if self._spec.other_commits is OtherCommits.SKIP:
                return []
            operations = [] if operation is None else [operation.value]
            raise not_only_added(self._name, f"snapshot {commit} of the {self}", operations, self._field)
        with catalog_errors(f"reading snapshot {commit} of the {self}", self._field):
            entries = [
                entry
                for entry in self._entries(snapshot, only_own=True)
                if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == commit
            ]
        return [self._file(entry.data_file, snapshot.timestamp_ms) for entry in entries]

    def existing(self, commit: int) -> Sequence[AddedFile]:
        """Return all files that the table has at a snapshot, in the order in which they were added."""
        snapshot = self._snapshot(commit)
        with catalog_errors(f"reading snapshot {commit} of the {self}", self._field):
            entries = list(self._entries(snapshot))
            manifests = snapshot.manifests(self._table.io)
            if any(each.content is ManifestContent.DELETES for each in manifests):
                tasks = list(self._table.scan(snapshot_id=commit).plan_files())
                self._deletes = {
                    str(self._place(task.file)): tuple(task.delete_files) for task in tasks if task.delete_files
                }
        times = {each.snapshot_id: each.timestamp_ms for each in self._table.metadata.snapshots}
        entries.sort(key=lambda entry: (entry.sequence_number or 0, entry.data_file.file_path))
        return [
            self._file(entry.data_file, times.get(entry.snapshot_id or 0, snapshot.timestamp_ms)) for entry in entries
        ]

    def deleted(self, commit: int, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return which rows of these files are deleted at a snapshot whose ``existing`` files were asked for."""
        needed = {delete.file_path: delete for path in paths for delete in self._deletes.get(path, ())}
        places: dict[str, list[np.ndarray]] = {}
        with catalog_errors(f"reading the deletes of snapshot {commit} of the {self}", self._field):
            for delete in needed.values():
                # Private: the public scan applies deletes to rows, and tasks need the places themselves
                for path, found in _read_deletes(self._table.io, delete).items():
                    places.setdefault(str(folder_of(path, f"{self._field}.table")), []).append(found.to_numpy())
        return {path: packed_places(np.concatenate(places[path])) for path in paths if path in places}

    def _snapshot(self, commit: int) -> Snapshot:
        snapshot = self._table.snapshot_by_id(commit)
        if snapshot is None:
            message = f"source {self._name}: snapshot {commit} of the {self} has expired, and is still to be read"
            hint = "start with another checkpoint, and let snapshots stay for longer than the query may lag behind"
            raise MillraceError(Problem(message, hint, field=self._field))
        return snapshot

    def _entries(self, snapshot: Snapshot, *, only_own: bool = False) -> Iterator[ManifestEntry]:
        """Yield the data files that a snapshot lists, or those in the manifests that it has added."""
        for manifest in snapshot.manifests(self._table.io):
            is_wanted = not only_own or manifest.added_snapshot_id == snapshot.snapshot_id
            if is_wanted and manifest.content is ManifestContent.DATA:
                yield from manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)

    def _file(self, file: DataFile, written_ms: int) -> AddedFile:
        if file.file_format is not FileFormat.PARQUET:
            message = f"source {self._name}: the {self} has a file in {file.file_format.value}: {file.file_path}"
            hint = "write it again in Parquet, which Millrace can read"
            raise MillraceError(Problem(message, hint, field=f"{self._field}.table"))
        place = str(self._place(file))
        return AddedFile(
            place,
            max(file.file_size_in_bytes, 1),
            file.record_count,
            written_ms,
            place in self._deletes,
            tuple(self._partition_values(file)),
        )

    def _partition_values(self, file: DataFile) -> Iterator[tuple[str, str | None]]:
        """Yield the values of columns that the table is partitioned by as they are, by their numbers."""
        schema = self._table.schema()
        for place, field in enumerate(self._table.specs()[file.spec_id].fields):
            if str(field.transform) != "identity":
                continue
            value = file.partition[place]
            if field.source_id in schema.field_ids:
                kind = schema.find_type(field.source_id)
                yield str(field.source_id), None if value is None else field.transform.to_human_string(kind, value)

    def _place(self, file: DataFile) -> Path | ObjectPath:
        """Return the place of a file, which has to be in the table's location if the query names one."""
        place = folder_of(file.file_path, f"{self._field}.table")
        location = self._spec.location
        if location is not None:
            folder = ObjectPath.of(location) if location.startswith(OBJECTS) else absolute_path(location)
            if not str(place).startswith(f"{folder}/"):
                message = f"source {self._name}: the {self} has a file outside of {folder}: {place}"
                hint = "write the location of the table, or leave it out"
                raise MillraceError(Problem(message, hint, field=f"{self._field}.location"))
        return place


def _beginning(snapshot: Snapshot) -> TablePosition:
    return TablePosition(snapshot.snapshot_id, sequence=snapshot.sequence_number)


class IcebergChanges(IcebergCommits):
    """The commits of an Iceberg table, each with the changes that it has made to the table's rows.

    The changes of a snapshot are the rows of the files that it removes and adds. That holds as long as all rows of
    these files are rows of the table: delete files, which mark some as deleted, are refused. All changes have the time
    of the snapshot, in ``written_ms``.
    """

    def start(self) -> TablePosition:
        """Return where a new query starts."""
        at = super().start()
        return replace(at, time_ms=0 if at.commit is None else self._snapshot(at.commit).timestamp_ms)

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files with the changes of a snapshot, those that it removes first.

        Raises MillraceError if it has delete files, or does not say which files it removes; or it has expired.
        """
        snapshot = self._snapshot(commit)
        if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
            return []
        files: dict[ManifestEntryStatus, list[AddedFile]] = {status: [] for status in _COUNTS}
        with catalog_errors(f"reading snapshot {commit} of the {self}", self._field):
            manifests = snapshot.manifests(self._table.io)
            own = [each for each in manifests if each.added_snapshot_id == commit]
            for manifest in own:
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                    if entry.snapshot_id != commit or entry.status not in files:
                        continue
                    if manifest.content is ManifestContent.DELETES:
                        raise self._marks_rows(commit)
                    files[entry.status].append(self._file(entry.data_file, snapshot.timestamp_ms))
        if files[ManifestEntryStatus.DELETED] and any(each.content is ManifestContent.DELETES for each in manifests):
            raise self._marks_rows(commit)
        for status, name in _COUNTS.items():  # some writers leave others than the snapshot says
            count = None if snapshot.summary is None else snapshot.summary.get(name)
            if count is not None and int(count) != len(files[status]):
                message = (
                    f"source {self._name}: snapshot {commit} of the {self} says {name}={count}, and its manifests have "
                    f"{len(files[status])}"
                )
                hint = "start with another checkpoint, from a later snapshot"
                raise MillraceError(Problem(message, hint, field=self._field))
        return [
            replace(file, has_deleted_rows=False, changes=FileChanges(status is ManifestEntryStatus.DELETED))
            for status, found in files.items()
            for file in found
        ]

    def _marks_rows(self, commit: int) -> MillraceError:
        message = (
            f"source {self._name}: snapshot {commit} of the {self} has delete files, which mark rows as deleted "
            "(merge-on-read), and from which Millrace cannot read changes"
        )
        hint = (
            "set write.delete.mode, write.update.mode and write.merge.mode to copy-on-write in the table, rewrite its "
            "files, and start with another checkpoint"
        )
        return MillraceError(Problem(message, hint, field=self._field))
