"""A query's checkpoint, its event log and the other places that it writes to: which may not be within which.

Results within the checkpoint would be among the files of its state. A checkpoint, an event log or lineage among results
would be read as results, or be removed by whatever cleans a table. Folders whose names begin with ``_`` or ``.`` are
what readers skip and table formats leave alone, so each of them may be in one of these, beside the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from posixpath import normpath
from typing import NamedTuple

from millrace_api.errors import quote
from millrace_api.model.externals import ExternalKind, given
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.validation.places import folder_of, is_object

_OWN = frozenset({"_millrace", "_staging", "_delta_log", "_delta_index", "_change_data"})
"""Folders among results that sinks and table formats use themselves."""

_OUTSIDE = "write a folder outside of it, which is no other query's checkpoint"
_NOT_AMONG = "write another place for one of them, or a checkpoint in a folder of it whose name begins with _"
_BESIDE = "write another place, or one in a folder of it whose name begins with _"

_EVENT_LOG, _LINEAGE = "spec.eventLog.path", "spec.lineage.file"
_REPORTS = (_EVENT_LOG, _LINEAGE)
"""Fields of places that the query writes reports about itself to."""

_PLACES = (ExternalKind.DATA, ExternalKind.TABLES, ExternalKind.FILES)
"""What sinks write to; files are not among results: a catalog is one."""

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
    """Yield the places of results, catalogs, dead letters, event log and lineage, as far as the query names them."""
    for field, output in spec.outputs.items():
        for each in given(output.sink, f"{field}.sink", *_PLACES):
            yield WrittenPlace(each.field, each.value, each.kind is not ExternalKind.FILES)
    for name, source in spec.sources.items():
        if source.corrupt_records.path is not None:
            yield WrittenPlace(f"spec.sources.{name}.corruptRecords.path", source.corrupt_records.path, False)
    if spec.event_log is not None:
        yield WrittenPlace(_EVENT_LOG, spec.event_log.path, False)
    if spec.lineage is not None and spec.lineage.file is not None:
        yield WrittenPlace(_LINEAGE, spec.lineage.file, False)


def named_overlaps(query: StreamQuery) -> Iterator[PlaceProblem]:
    """Yield the places that overlap, as far as what the query says shows it.

    Where relative paths lead, and links, is known where the query runs.
    """
    checkpoint = query.spec.checkpoint
    uri = f".millrace/{query.name}" if checkpoint is None else checkpoint.uri
    return overlaps(query.spec, None if uri is None else place_parts(folder_of(uri) or uri), place_parts)


def overlaps(spec: Spec, checkpoint: Parts | None, parts: Callable[[str], Parts]) -> Iterator[PlaceProblem]:
    """Yield the places that overlap with the checkpoint, and those of reports that are among results.

    Args:
        spec: the spec of the query.
        checkpoint: the place of its checkpoint; None if it is not known.
        parts: returns the parts of a place that is written in the spec.
    """
    places = [(each, parts(each.place)) for each in written_places(spec)]
    for each, place in places:
        if checkpoint is not None and (found := overlap(each, place, checkpoint)) is not None:
            yield found
        for other, results in places if each.field in _REPORTS else ():
            if other.holds_results and _is_among(place, results):
                message = f"{quote(each.place, 200)} is among the results in {quote(other.place, 200)}"
                yield PlaceProblem(each.field, message, _BESIDE)


def overlap(each: WrittenPlace, place: Parts, checkpoint: Parts) -> PlaceProblem | None:
    """Return the problem of a place that is within the checkpoint, or holds results and has the checkpoint in it."""
    if place[: len(checkpoint)] == checkpoint:
        return PlaceProblem(each.field, f"{quote(each.place, 200)} is within the query's own checkpoint", _OUTSIDE)
    if not each.holds_results or not _is_among(checkpoint, place):
        return None
    message = f"the query's own checkpoint is within {quote(each.place, 200)}, among the results"
    return PlaceProblem(each.field, message, _NOT_AMONG)


def _is_among(place: Parts, results: Parts) -> bool:
    """Return whether a place is at or within that of results, and not in a folder there which readers skip."""
    below = place[len(results) : len(results) + 1]
    is_skipped = any(name.startswith((".", "_")) and name not in _OWN for name in below)
    return place[: len(results)] == results and not is_skipped


def place_parts(place: str) -> Parts:
    """Return the parts of a path, or of a place in an object store."""
    if is_object(place):
        return tuple(part for part in place.split("/") if part)
    path = normpath(place)
    return ("/" if path.startswith("/") else "", *(part for part in path.split("/") if part not in ("", ".")))
