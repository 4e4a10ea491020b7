"""The commits of a Delta table, from its log: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.

The library says which version is the newest, and which files the table has at a version. It does not say which files a
version has added, so these are read from the log itself: a JSON file for each version, one action on each line.

For the change data feed, a version has change files, or its changes are the rows of the files that it adds and removes:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#reader-requirements-for-addcdcfile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from millrace_api.errors import MillraceError, MissingInputError, Problem
from millrace_api.model.lakehouse import DeltaSourceSpec, OtherCommits, TableStart
from millrace_jobs.confinement import require_data
from millrace_jobs.lakehouse.delta_store import delta_options, delta_place, plain_path
from millrace_jobs.lakehouse.errors import lakehouse_error
from millrace_jobs.places import Place
from millrace_jobs.sources.lakehouse.data_files import CHANGE_TYPE, AddedFile, DeletionVector, FileChanges, packed
from millrace_jobs.sources.lakehouse.table_columns import FieldKeys, field_keys, metadata_of
from millrace_jobs.sources.lakehouse.table_commits import BYTES_PER_RECORD, TablePosition, not_only_added
from millrace_jobs.sources.stored_files import look, unreadable

_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of tables that this reader knows; a table with another one may mean something else by its files."""

_PHYSICAL_NAME = b"delta.columnMapping.physicalName"

_FEED = "delta.enableChangeDataFeed"
_LOOKED_AT = 1000  # versions among which the one that has switched the feed on is looked for
_END_MS = 253_402_300_800_000  # the year 10000 in ms since 1970, from which on no TIMESTAMP is


class DeltaCommits:
    """The commits of a Delta table, for the source ``name``; a commit is named by its version."""

    table_id: str
    schema: pa.Schema

    def __init__(self, spec: DeltaSourceSpec, name: str) -> None:
        self._spec, self._name = spec, name
        self._field = f"spec.sources.{name}.delta"
        self._folder = delta_place(spec)
        self._open: DeltaTable | None = None
        self._newest: tuple[int, str] = (-1, "")
        self._deleted: tuple[int, dict[str, bytes]] | None = None
        if isinstance(self._folder, Path):
            require_data(self._folder)

    def __str__(self) -> str:
        return f"Delta table {self._folder}"

    @property
    def _table(self) -> DeltaTable:
        assert self._open is not None, "the table has not been opened"
        return self._open

    def refresh(self) -> None:
        """Look for new versions, and check what the table asks of its readers.

        The library only looks for versions after the newest one that it knows, so it does not notice that this one is
        another table's by now.
        """
        with self._errors("reading"):
            if self._open is None or self._log_file() != self._newest:
                self._open = self._at_version(None)
                self._newest = self._log_file()
            else:
                self._open.update_incremental()
                if self._open.version() != self._newest[0]:
                    self._newest = self._log_file()
            metadata = self._table.metadata()
            self.table_id = str(metadata.id)
            self.schema = pa.schema(self._table.schema().to_arrow())
        self._require_readable(metadata.configuration)

    def start(self) -> TablePosition:
        """Return where a new query starts."""
        newest = self._table.version()
        if (version := self._spec.starting_version) is not None:
            if version > newest:
                message = f"source {self._name}: the newest version of the {self} is {newest}, not yet {version}"
                raise MillraceError(Problem(message, "write an earlier one", field=f"{self._field}.startingVersion"))
            self._actions(version)
            return TablePosition(version)
        if self._spec.start_from is TableStart.LATEST:
            return TablePosition(newest, is_done=True)
        return TablePosition(newest, is_whole=True)

    def keys(self, declared: pa.Schema) -> FieldKeys:
        """Return by what the files know the declared columns."""
        return FieldKeys(field_keys(declared, self.schema, _PHYSICAL_NAME))

    def following(self, at: TablePosition) -> TablePosition | None:
        """Return the beginning of the next version; None if the table has no newer one."""
        version = 0 if at.commit is None else at.commit + 1
        return TablePosition(version) if version <= self._table.version() else None

    def behind(self, at: TablePosition) -> int:
        """Return the number of known versions after that of a position."""
        return max(self._table.version() - (-1 if at.commit is None else at.commit), 0)

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files that a version has added to the table's rows, in the order of the log.

        Raises MillraceError if it also changes or removes rows, and the query does not skip such commits; or the log
        does not have it any more.
        """
        actions = self._actions(commit)
        changed = any(each["remove"].get("dataChange", True) for each in actions if "remove" in each)
        if changed or any("cdc" in each for each in actions):
            if self._spec.other_commits is OtherCommits.SKIP:
                return []
            operations = [each["commitInfo"].get("operation") for each in actions if "commitInfo" in each]
            raise not_only_added(self._name, f"version {commit} of the {self}", operations[:1], self._field)
        added = [each["add"] for each in actions if "add" in each]
        return [self._file(each) for each in added if each.get("dataChange", True)]

    def existing(self, commit: int) -> Sequence[AddedFile]:
        """Return all files that the table has at a version, by time and name."""
        with self._errors(f"reading version {commit} of"):
            found = pa.table(self._version(commit).get_add_actions())
        values: dict[str, list[str | None]] = {}
        if "partition" in found.column_names:
            partitions = found.column("partition").combine_chunks()
            for field in partitions.type:
                texts = pc.struct_field(partitions, field.name).cast(pa.string()).to_pylist()
                is_known = field.name in self.schema.names  # files and their partitions may have another name for it
                key = metadata_of(self.schema.field(field.name), _PHYSICAL_NAME, field.name) if is_known else field.name
                values[key] = texts
        rows = found.select(["path", "size_bytes", "modification_time", "num_records"]).to_pylist()
        files = [
            AddedFile(
                self._place(row["path"]),
                max(int(row["size_bytes"]), 1),
                _records(row["num_records"], row["size_bytes"]),
                int(row["modification_time"]),
                "deletionVectors" in self._features(),
                tuple((key, texts[number] or None) for key, texts in values.items()),
            )
            for number, row in enumerate(rows)
        ]
        return sorted(files, key=lambda file: (file.written_ms, file.path))

    def deleted(self, commit: int, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return which rows of these files have deletion vectors at a version."""
        if self._deleted is None or self._deleted[0] != commit:
            with self._errors(f"reading the deletion vectors of version {commit} of"):
                found = pa.table(self._version(commit).deletion_vectors())
                kept = (
                    np.asarray(each.values.to_numpy(zero_copy_only=False), np.bool_)
                    for each in found["selection_vector"]
                )
                paths_of = map(plain_path, found["filepath"].to_pylist())
                self._deleted = commit, {path: packed(~rows) for path, rows in zip(paths_of, kept, strict=True)}
        known = self._deleted[1]
        return {path: known[plain] for path in paths if (plain := plain_path(path)) in known}

    def _file(self, action: Mapping[str, Any]) -> AddedFile:
        """Return the file of an action; one that does not add the file may lack its size and its time."""
        stats = json.loads(action.get("stats") or "{}")
        size = int(action.get("size") or 0)
        return AddedFile(
            self._place(action["path"]),
            max(size, 1),
            _records(stats.get("numRecords"), size),
            int(action.get("modificationTime") or 0),
            action.get("deletionVector") is not None,
            tuple((name, value or None) for name, value in (action.get("partitionValues") or {}).items()),
        )

    def _place(self, path: str) -> str:
        """Return the place of a data file, which the log names by a path in the table's folder."""
        parts = urlsplit(path)
        if parts.scheme or path.startswith("/"):
            folder = str(self._folder).replace("s3a:", "s3:", 1)
            plain = unquote(path.replace("s3a:", "s3:", 1).removeprefix("file://"))
            is_elsewhere, name = not plain.startswith(f"{folder}/"), plain.removeprefix(f"{folder}/")
        else:
            is_elsewhere, name = False, unquote(path)
        if is_elsewhere or ".." in name.split("/"):
            message = f"source {self._name}: the {self} has files elsewhere, such as {path}, as shallow clones have"
            raise MillraceError(Problem(message, "read the table that was cloned", field=f"{self._field}.path"))
        return f"{self._folder}/{name}"

    def _log_file(self) -> tuple[int, str]:
        """Return the newest known version, and what distinguishes its file from others of that name; empty if gone."""
        version = self._table.version()
        file = self._file_of(version)
        try:
            if isinstance(file, Path):
                found = file.stat()
                return version, f"{found.st_size} {found.st_mtime_ns}"
            return version, file.tag()
        except FileNotFoundError:
            return version, ""

    def _file_of(self, version: int) -> Place:
        return self._folder / "_delta_log" / f"{version:020d}.json"

    def _actions(self, version: int) -> list[dict[str, Any]]:
        file = self._file_of(version)
        try:
            return [json.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
        except FileNotFoundError:
            message = f"source {self._name}: the {self} has removed version {version} from its log"
            hint = "start with another checkpoint, and let delta.logRetentionDuration be longer than the query may lag"
            raise MillraceError(Problem(message, hint, field=self._field)) from None
        except OSError as error:
            raise unreadable(str(file), error) from error

    def _version(self, version: int) -> DeltaTable:
        return self._table if version == self._table.version() else self._at_version(version)

    def _at_version(self, version: int | None) -> DeltaTable:
        try:
            return DeltaTable(str(self._folder), version=version, storage_options=delta_options(self._folder))
        except TableNotFoundError:
            message = f"source {self._name}: there is no Delta table at {self._folder}"
            problem = Problem(message, "create it, or correct the path", field=f"{self._field}.path")
            raise MissingInputError(problem) from None

    def _features(self) -> set[str]:
        protocol = self._table.protocol()
        if protocol.min_reader_version >= 3:
            return set(protocol.reader_features or ())
        return {"columnMapping"} if protocol.min_reader_version == 2 else set()

    def _require_readable(self, configuration: Mapping[str, str]) -> None:
        names = {name.removesuffix("-preview").removesuffix("-dev"): name for name in self._features()}
        unknown = sorted(name for plain, name in names.items() if plain not in _FEATURES)
        if configuration.get("delta.columnMapping.mode") == "id":
            unknown.append("columnMapping by id")
        if unknown:
            message = f"source {self._name}: the {self} has {', '.join(unknown)}, which Millrace cannot read"
            raise MillraceError(Problem(message, "drop that from the table, or read another", field=self._field))

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise lakehouse_error(error, f"{doing} the {self} of source {self._name}", self._field) from error


def _records(counted: int | None, size: int) -> int:
    return max(size // BYTES_PER_RECORD, 1) if counted is None else int(counted)


class DeltaChanges(DeltaCommits):
    """The commits of a Delta table, each with the changes that it has made to the table's rows.

    All changes of a commit have its time, in ``written_ms``.
    """

    def start(self) -> TablePosition:
        """Return where a new query starts. Raises MillraceError if that version has no change data feed."""
        at = super().start()
        assert at.commit is not None
        with self._errors(f"reading version {at.commit} of"):
            configuration = self._version(at.commit).metadata().configuration
        if not _is_on(configuration):
            since = self._switched_on(at.commit)
            hint = f"set {_FEED} to true in the table"
            raise self._without_feed(at.commit, f"write {since} or a later one, which have it" if since else hint)
        return replace(at, time_ms=self._time_ms(at.commit))

    def refresh(self) -> None:
        """Look for new versions, and check what the table asks of its readers."""
        super().refresh()
        if CHANGE_TYPE in self.schema.names:
            message = f"source {self._name}: the {self} has a column {CHANGE_TYPE} of its own, as its change files have"
            raise MillraceError(Problem(message, "rename the column", field=self._field))

    def added(self, commit: int) -> Sequence[AddedFile]:
        """Return the files with the changes of a version, those with deletes first.

        A change file has both kinds of rows, and is there twice. Raises MillraceError if the version has no change data
        feed, or the log does not have it any more.
        """
        actions = self._actions(commit)
        for each in actions:
            if "metaData" in each and not _is_on(each["metaData"].get("configuration") or {}):
                raise self._without_feed(commit, f"set {_FEED} to true in the table, and start with another checkpoint")
        files = [self._file(each["cdc"]) for each in actions if "cdc" in each]
        found = [
            replace(file, records=-(-file.records // 2), changes=FileChanges(deletes, is_typed=True))
            for deletes in (True, False)
            for file in files
        ] or list(self._derived(commit, actions))
        if not found:
            return []
        time = self._time_ms(commit, actions)
        return [replace(file, written_ms=time, has_deleted_rows=False) for file in found]

    def _derived(self, commit: int, actions: Sequence[Mapping[str, Any]]) -> Iterator[AddedFile]:
        """Yield the files that a version without change files has removed, and those that it has added.

        A file that is removed and added again has other deleted rows than before, and only these have changed.
        """
        removed, added = (
            {
                self._place(each[kind]["path"]): each[kind]
                for each in actions
                if kind in each and each[kind].get("dataChange", True)
            }
            for kind in ("remove", "add")
        )
        before: dict[str, AddedFile] | None = None
        for path, remove in removed.items():
            if path not in added and (remove.get("size") is None or remove.get("partitionValues") is None):
                before = before or {file.path: file for file in self.existing(commit - 1)}
            yield from self._changed(path, remove, added.get(path), deletes=True, known=(before or {}).get(path))
        for path, add in added.items():
            yield from self._changed(path, add, removed.get(path), deletes=False)

    def _changed(
        self,
        path: str,
        action: Mapping[str, Any],
        other: Mapping[str, Any] | None,
        *,
        deletes: bool,
        known: AddedFile | None = None,
    ) -> Iterator[AddedFile]:
        """Yield the file of an action with the rows that are in the table by it, and not by the other one."""
        vectors = []
        for each in (action, other or {}):
            try:
                vectors.append(DeletionVector.of(each.get("deletionVector"), self._place))
            except (ValueError, KeyError) as error:
                raise MillraceError(Problem(str(error), "write the file again", path)) from error
        without, only = vectors
        if other is not None and only in (None, without):
            return
        given = {name: value for name, value in action.items() if value is not None}
        file = known or self._file({**(other or {}), **given})
        if only is not None:
            assert other is not None
            counts = [(each.get("deletionVector") or {}).get("cardinality", 0) for each in (other, action)]
            file = replace(file, records=max(counts[0] - counts[1], 1))
        yield replace(file, changes=FileChanges(deletes, only=only, without=without))

    def _time_ms(self, version: int, actions: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Return the time of a commit: as it says itself, or when its file was written."""
        file = self._file_of(version)
        if actions is None:
            if not file.exists():  # a checkpoint has replaced it
                return max((each.written_ms for each in self.existing(version)), default=0)
            actions = self._actions(version)
        info: Mapping[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        for name in ("inCommitTimestamp", "timestamp"):
            time = info.get(name)
            if isinstance(time, int) and 0 <= time < _END_MS:
                return time
        try:
            return look(str(file)).mtime_ns // 1_000_000
        except OSError as error:
            raise unreadable(str(file), error) from error

    def _without_feed(self, version: int, hint: str) -> MillraceError:
        message = f"source {self._name}: version {version} of the {self} has no change data feed"
        return MillraceError(Problem(message, hint, field=self._field))

    def _switched_on(self, version: int) -> int | None:
        """Return the first of the next versions that has switched the feed on, if one has."""
        newest = self._table.version()
        for later in range(version + 1, min(newest, version + _LOOKED_AT) + 1):
            for each in self._actions(later):
                if "metaData" in each and _is_on(each["metaData"].get("configuration") or {}):
                    return later
        return None


def _is_on(configuration: Mapping[str, str | None]) -> bool:
    return str(configuration.get(_FEED)).lower() == "true"
