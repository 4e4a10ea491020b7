"""The commits of an Iceberg table with the changes of its rows, where files are rewritten for these (copy-on-write)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, Snapshot

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.lakehouse.iceberg_catalog import catalog_errors
from millrace_jobs.sources.lakehouse.iceberg_commits import IcebergCommits
from millrace_jobs.sources.lakehouse.table_commits import AddedFile, FileChanges, TablePosition

_COUNTS = {ManifestEntryStatus.DELETED: "deleted-data-files", ManifestEntryStatus.ADDED: "added-data-files"}
"""What a snapshot's summary has as the number of files that the snapshot has removed or added."""


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

        Raises:
            MillraceError: it has delete files, or does not say which files it removes; or it has expired.
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
        self._require_complete(snapshot, files)
        return [
            replace(file, has_deleted_rows=False, changes=FileChanges(status is ManifestEntryStatus.DELETED))
            for status, found in files.items()
            for file in found
        ]

    def _require_complete(self, snapshot: Snapshot, files: dict[ManifestEntryStatus, list[AddedFile]]) -> None:
        """Raise MillraceError if a snapshot has another number of files than it says, as some writers leave them."""
        for status, name in _COUNTS.items():
            count = None if snapshot.summary is None else snapshot.summary.get(name)
            if count is not None and int(count) != len(files[status]):
                message = (
                    f"source {self._name}: snapshot {snapshot.snapshot_id} of the {self} says {name}={count}, and its "
                    f"manifests have {len(files[status])}"
                )
                hint = "start with another checkpoint, from a later snapshot"
                raise MillraceError(Problem(message, hint, field=self._field))

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
