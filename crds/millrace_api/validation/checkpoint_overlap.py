"""A query's checkpoint and the places that it writes to: neither may be within the other.

Results within the checkpoint would be among the files of its state. A checkpoint among results would be read as
results, or be removed by whatever cleans a table. Folders whose names begin with ``_`` or ``.`` are what readers skip
and table formats leave alone, so a checkpoint may be in one of these, beside the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath
from typing import NamedTuple

from millrace_api.errors import quote
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.validation.places import folder_of, is_object

_OWN = frozenset({"_millrace", "_staging", "_delta_log", "_delta_index", "_change_data"})
"""Folders among results that sinks and table formats use themselves."""

_OUTSIDE = "write a folder outside of it, which is no other query's checkpoint"
_NOT_AMONG = "write another place for one of them, or a checkpoint in a folder of it whose name begins with _"

Parts = tuple[str, ...]
"""A place as the parts of its path, or as scheme, bucket and the parts of a key."""


class WrittenPlace(NamedTuple):
    """A place that a query writes to: its field, the place as it is written, and whether it holds results."""

    field: str
    place: str
    holds_results: bool


class PlaceProblem(NamedTuple):
    """What is wrong with a place: its field, the message and what to write instead."""

    field: str
    message: str
    hint: str


def written_places(spec: Spec) -> Iterator[WrittenPlace]:
    """Yield the places that results, catalogs and dead letters are written to, as far as the query names them."""
    for field, output in spec.outputs.items():
        sink = output.sink
        if sink.files is not None:
            yield WrittenPlace(f"{field}.sink.files.path", sink.files.path, True)
        if sink.delta is not None:
            yield WrittenPlace(f"{field}.sink.delta.path", sink.delta.path, True)
        if sink.iceberg is not None and sink.iceberg.location is not None:
            yield WrittenPlace(f"{field}.sink.iceberg.location", sink.iceberg.location, True)
        if sink.iceberg is not None and sink.iceberg.catalog.file is not None:
            yield WrittenPlace(f"{field}.sink.iceberg.catalog.file", sink.iceberg.catalog.file, False)
    for name, source in spec.sources.items():
        if source.corrupt_records.path is not None:
            yield WrittenPlace(f"spec.sources.{name}.corruptRecords.path", source.corrupt_records.path, False)


def named_overlaps(query: StreamQuery) -> Iterator[PlaceProblem]:
    """Yield the places that overlap with the checkpoint, as far as what the query says shows it.

    Where relative paths lead, and links, is known where the query runs.
    """
    checkpoint = query.spec.checkpoint
    uri = f".millrace/{query.name}" if checkpoint is None else checkpoint.uri
    if uri is None:
        return
    own = place_parts(folder_of(uri) or uri)
    for each in written_places(query.spec):
        if (found := overlap(each, place_parts(each.place), own)) is not None:
            yield found


def overlap(each: WrittenPlace, place: Parts, checkpoint: Parts) -> PlaceProblem | None:
    """Return the problem of a place that is within the checkpoint, or holds results and has the checkpoint in it."""
    if place[: len(checkpoint)] == checkpoint:
        return PlaceProblem(each.field, f"{quote(each.place, 200)} is within the query's own checkpoint", _OUTSIDE)
    if not each.holds_results or checkpoint[: len(place)] != place:
        return None
    below = checkpoint[len(place)]
    if below.startswith((".", "_")) and below not in _OWN:
        return None
    message = f"the query's own checkpoint is within {quote(each.place, 200)}, among the results"
    return PlaceProblem(each.field, message, _NOT_AMONG)


def place_parts(place: str) -> Parts:
    """Return the parts of a path, or of a place in an object store."""
    if is_object(place):
        return tuple(part for part in place.split("/") if part)
    path = normpath(place)
    return ("/" if path.startswith("/") else "", *(part for part in path.split("/") if part not in ("", ".")))
