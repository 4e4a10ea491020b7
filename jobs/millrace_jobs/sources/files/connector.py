"""The connector of the source ``files``."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError
from millrace_api.model.files import FileOrder, FilesSourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.disk import process_folder
from millrace_jobs.sources.base import Rejected
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.static_tables import RecordsAsTable, TableRead, WholeTable
from millrace_jobs.stores.objects import ObjectPath


class FilesConnector(SourceConnector[FilesSourceSpec]):
    """Opens files, in a folder or an object store."""

    def check(self, spec: FilesSourceSpec, context: SourceContext) -> None:
        """Check the columns of the first file, and of the newest one, since older ones may lack columns added later."""
        source = self.open(spec, context)
        if source.has_seen_files:
            source.check_newest()

    def open(self, spec: FilesSourceSpec, context: SourceContext) -> FilesSource:
        """Return the source of the files that a path names; with a state in an object store, it works in a folder."""
        state = context.state
        source = FilesSource(
            context.name,
            spec.path,
            spec.format.value,
            self.schema(context.source),
            str(state if isinstance(state, Path) else _working_folder()),
            max_files_per_batch=spec.max_files_per_batch,
            header=spec.header,
            delimiter=spec.delimiter,
            timestamp_format=context.source.timestamp_format.value,
            corrupt=context.corrupt,
            mirrored=state if isinstance(state, ObjectPath) else None,
            in_path=spec.partition_columns,
            by_name=spec.order is FileOrder.BY_NAME,
        )
        try:
            source.check()
        except MillraceError as error:
            error.failure = FailureClass.SOURCE  # the class that the batch reading the file would report
            raise
        return source

    def open_table(self, spec: FilesSourceSpec, context: SourceContext) -> WholeTable:
        """Return the files as a table."""
        assert isinstance(context.state, Path)
        return _FilesAsTable(self, spec, context, context.state)


@dataclass(frozen=True)
class _FilesAsTable:
    """Files as a table; each read forgets which files the one before has seen."""

    connector: FilesConnector
    spec: FilesSourceSpec
    context: SourceContext
    workspace: Path

    def read(self, known: str | None) -> TableRead:
        self.workspace.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.workspace))
        try:
            source = self.connector.open(self.spec, replace(self.context, state=folder))
            opened = RecordsAsTable(source).read(known)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

        def records() -> Iterator[pa.RecordBatch | Rejected]:
            try:
                yield from opened.records
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return TableRead(opened.version, records())


def _working_folder() -> Path:
    """Return a new folder, which is removed at the end of this process."""
    folder, _ = process_folder("millrace-files-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
