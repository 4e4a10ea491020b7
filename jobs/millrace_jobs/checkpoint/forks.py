"""A query that begins from a snapshot of another one's checkpoint, with results in places of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.evolution import check_changes
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshots import fill, verify
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.places import Place, place_of

FIELD = "spec.checkpoint.fromSnapshot"


def begin_from(snapshot: str, root: Place, spark: Place, query: StreamQuery) -> None:
    """Make a checkpoint without a batch from a snapshot, while this process holds its lease.

    The checkpoint gets an id of its own, by which sinks distinguish its batches from those of the original.

    Args:
        snapshot: URI of the snapshot.
        root: the checkpoint, in which an interrupted attempt may have left files.
        spark: the place of Spark's part in it.
        query: the query.

    Raises:
        MillraceError: the snapshot is not whole, or damaged; the query cannot go on from its state, or writes where the
            original does. Nothing has been changed then.
        OSError: a place cannot be read or written.
    """
    place = place_of(snapshot)
    try:
        verify(place)
        origin = Marker.read(place)
        assert origin is not None, "the manifest has it"
        before = origin.query.model_copy(update={"metadata": query.metadata})
        check_changes(before, query, SparkLog(place / "spark"), origin.layout)
    except MillraceError as error:
        raise MillraceError(*(replace(each, field=each.field or FIELD) for each in error.problems)) from None
    if problems := list(_shared_places(origin.query, query)):
        raise MillraceError(*problems)
    fill(place, root, replace(origin, id=str(uuid.uuid4()), query=before), spark)


def _shared_places(origin: StreamQuery, query: StreamQuery) -> Iterator[Problem]:
    """Yield the outputs that the original writes, too: results after the snapshot would be there twice."""
    for field, output in query.spec.outputs.items():
        others = (each.sink for each in origin.spec.outputs.values())
        if output.sink.console is None and any(map(output.sink.is_place_of, others)):
            message = f"is where {origin.name} writes, whose snapshot this query starts from"
            hint = "write another folder, topic or table; to go on as that query, use millrace snapshot restore"
            yield Problem(message, hint, field=f"{field}.sink")
