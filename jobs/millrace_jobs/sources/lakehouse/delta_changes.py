"""The commits of a Delta table with the changes that its change data feed has.

A version has change files, or its changes are the rows of the files that it adds and removes. Which is the case is said
in https://github.com/delta-io/delta/blob/master/PROTOCOL.md#reader-requirements-for-addcdcfile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.lakehouse.change_reader import CHANGE_TYPE
from millrace_jobs.sources.lakehouse.deletion_vectors import DeletionVector
from millrace_jobs.sources.lakehouse.delta_commits import DeltaCommits
from millrace_jobs.sources.lakehouse.table_commits import AddedFile, FileChanges, TablePosition
from millrace_jobs.sources.seen_file import look, unreadable

_FEED = "delta.enableChangeDataFeed"

_LOOKED_AT = 1000
"""Versions among which the one that has switched the feed on is looked for."""

_END_MS = 253_402_300_800_000
"""The year 10000 in ms since 1970, from which on no TIMESTAMP is."""


class DeltaChanges(DeltaCommits):
    """The commits of a Delta table, each with the changes that it has made to the table's rows.

    All changes of a commit have its time, in ``written_ms``.
    """

    def start(self) -> TablePosition:
        """Return where a new query starts.

        Raises:
            MillraceError: that version has no change data feed.
        """
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

        A change file has both kinds of rows, and is there twice.

        Raises:
            MillraceError: the version has no change data feed, or the log does not have it any more.
        """
        actions = self._actions(commit)
        for each in actions:
            if "metaData" in each and not _is_on(each["metaData"].get("configuration") or {}):
                raise self._without_feed(commit, f"set {_FEED} to true in the table, and start with another checkpoint")
        found = list(self._typed(actions) or self._derived(commit, actions))
        if not found:
            return []
        time = self._time_ms(commit, actions)
        return [replace(file, written_ms=time, has_deleted_rows=False) for file in found]

    def _typed(self, actions: Sequence[Mapping[str, Any]]) -> list[AddedFile]:
        files = [self._file(each["cdc"]) for each in actions if "cdc" in each]
        return [
            replace(file, records=-(-file.records // 2), changes=FileChanges(deletes, is_typed=True))
            for deletes in (True, False)
            for file in files
        ]

    def _derived(self, commit: int, actions: Sequence[Mapping[str, Any]]) -> Iterator[AddedFile]:
        """Yield the files that a version without change files has removed, and those that it has added.

        A file that is removed and added again has other deleted rows than before, and only these have changed.
        """
        removed, added = (
            {self._place(each[kind]["path"]): each[kind] for each in actions if _changes_data(each.get(kind))}
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


def _changes_data(action: Mapping[str, Any] | None) -> bool:
    return action is not None and bool(action.get("dataChange", True))


def _is_on(configuration: Mapping[str, str | None]) -> bool:
    return str(configuration.get(_FEED)).lower() == "true"
