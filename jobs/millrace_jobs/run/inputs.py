"""The input of a run: its sources and static tables, and notes on what it waits for or did not find.

``job`` opens them before it starts Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import Spec
from millrace_api.validation.checkpoint_overlap import overlaps, place_parts
from millrace_api.validation.places import is_object
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import checkpoint_above
from millrace_jobs.disk import absolute_path, cache_folder
from millrace_jobs.places import Place
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.sources.base import CHANGED, Source
from millrace_jobs.sources.connector import open_source, schema_of
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.static_tables import read_static_table
from millrace_jobs.stores.objects import ObjectPath


@runtime_checkable
class _ReadsFiles(Protocol):
    """A source that reads files or a table: the class of the latter is loaded by queries with one only."""

    @property
    def input(self) -> str: ...

    def reads(self, file: Path | str) -> bool: ...


def open_sources(spec: Spec, state: Place, workspace: Path) -> dict[str, Source]:
    """Open the sources that stream; ``state`` is the place of what they remember in the checkpoint."""
    cache = (cache_folder() or workspace) / "recordings"
    with attributed_to(FailureClass.SOURCE):
        return {
            name: open_source(name, source, state / name, cache)
            for name, source in spec.sources.items()
            if not source.is_static
        }


def read_static_tables(spec: Spec, workspace: Path, say: Callable[[str], None]) -> dict[str, pa.Table]:
    """Read the static tables that are read once, and say how many of their records were left out.

    A checkpoint has nothing of them: the next start reads all of them again.
    """
    tables = {}
    for name, source in spec.sources.items():
        if source.table is None or not source.is_static or source.has_contents:
            continue
        with attributed_to(FailureClass.SOURCE):
            opened = open_source(name, source, workspace / "static" / name, workspace)
            table = read_static_table(opened, source.table.keys)
        if table.rejected:
            say(f"source {name}: {table.rejected} records of the static table do not decode")
        if table.incomplete:
            keys = " or ".join(source.table.keys)
            say(f"source {name}: {table.incomplete} records of the static table are no rows: they have no {keys}")
        tables[name] = table.rows
    return tables


def user_schemas(spec: Spec, sources: Mapping[str, Source]) -> dict[str, pa.Schema]:
    """Return the user's columns of all sources, static tables included."""
    static = {name: schema_of(source) for name, source in spec.sources.items() if source.is_static}
    user = {
        name: pa.schema([field for field in source.schema if field.name not in CHANGED.names])
        for name, source in sources.items()
    }
    return user | static


def require_other_places(spec: Spec, sources: Mapping[str, Source]) -> None:
    """Check that no source reads the files that the query writes, and no checkpoint holds them, whatever their paths.

    Raises:
        MillraceError: what the query writes would come back as records, or be among the files of a query's state.
    """
    written = {}
    for field, output in spec.outputs.items():
        if (files := output.sink.given.result_files) is not None:
            written[f"{field}.sink.{output.sink.kind}.{files.field}"] = (files.first_file, "result")
    for name, source in spec.sources.items():
        if (folder := source.corrupt_records.path) is not None:
            written[f"spec.sources.{name}.corruptRecords.path"] = (f"{folder}/{name}-0.jsonl", "dead letter")
    if spec.event_log is not None:
        file = f"{spec.event_log.path.rstrip('/')}/eventlog_v2_app/events_1_app.zstd"
        written["spec.eventLog.path"] = (file, "event of Spark")
    if spec.lineage is not None and spec.lineage.file is not None:
        written["spec.lineage.file"] = (spec.lineage.file, "event of lineage")
    for field, (file, what) in written.items():
        if not is_object(file) and (checkpoint := checkpoint_above(absolute_path(file))) is not None:
            message = f"every {what} would be written into {checkpoint}, which is the checkpoint of a query"
            raise MillraceError(Problem(message, "write to a folder outside of it", field=field))
        for name, opened in sources.items():
            if isinstance(opened, _ReadsFiles) and opened.reads(file if is_object(file) else absolute_path(file)):
                message = f"source {name} reads the {opened.input}, so every {what} would come back as a record"
                raise MillraceError(Problem(message, "write to another folder", field=field))


def require_outside(spec: Spec, checkpoint: Place) -> None:
    """Check that neither the checkpoint nor a place that the query writes to is within the other, whatever their paths.

    Raises:
        MillraceError: one is, or an event log or lineage is among results.
    """
    for found in overlaps(spec, _real_parts(checkpoint), _real_parts_of):
        raise MillraceError(Problem(found.message, found.hint, field=found.field))


def _real_parts_of(place: str) -> tuple[str, ...]:
    return _real_parts(ObjectPath.of(place) if is_object(place) else absolute_path(place))


def _real_parts(place: Place) -> tuple[str, ...]:
    return place_parts(str(place)) if isinstance(place, ObjectPath) else place.resolve().parts


def waiting_note(sources: Mapping[str, Source]) -> str:
    """Return what to say once a run has read all files that are present; empty if other sources stream, too."""
    inputs = [source.input for source in sources.values() if isinstance(source, FilesSource)]
    if len(inputs) < len(sources):
        return ""
    read = f"all records were read of the {', and of the '.join(inputs)}"
    return f"{read}: waiting for new files; --once and --available-now end a run here"


def unread_note(
    spec: Spec,
    sources: Mapping[str, Source],
    checkpoint: Checkpoint,
    before: Mapping[str, Mapping[str, Any]],
    *,
    closes: bool = False,
) -> str:
    """Return why a run that has ended has read nothing, from the offsets ``before``; empty if that is not known.

    ``closes`` is whether it has closed windows that an earlier run left open.
    """
    after = checkpoint.committed()
    if before and all(offset["position"] == before[name]["position"] for name, offset in after.items()):
        if closes:
            return "no new record was read: this run closed the windows that an earlier run had left open"
        return nothing_new_note(spec, checkpoint.root)
    return no_record_note(sources, after)


def nothing_new_note(spec: Spec, checkpoint: Place) -> str:
    """Return what to say of a run on a checkpoint that has processed all input before, and how to start over."""
    places: list[Path | str] = []
    for sink in (output.sink.given for output in spec.outputs.values()):
        if sink.catalog_table is not None:
            places.append(sink.catalog_table)
        elif (files := sink.result_files) is not None:
            places.append(files.place if is_object(files.place) else absolute_path(files.place))
    results = "".join(f" and {place}" for place in places)
    done = "nothing new: all input was processed by an earlier run"
    return f"{done}; remove {checkpoint}{results} to start over"


def no_record_note(sources: Mapping[str, Source], offsets: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where a run that read no record has looked for files; empty if it did not look for files alone.

    Args:
        sources: the sources by name.
        offsets: their offsets after the last batch; a source without a batch has none.
    """
    files = {name: source.input for name, source in sources.items() if isinstance(source, FilesSource)}
    if len(files) < len(sources):
        return ""
    found = [
        f"source {name} found no record in the {place}"
        if name in offsets and offsets[name]["position"]["files"]
        else f"source {name} found no {place}"
        for name, place in files.items()
    ]
    return f"no record was read: {', and '.join(found)}"
