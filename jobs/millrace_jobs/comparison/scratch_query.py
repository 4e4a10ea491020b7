"""The form of a query that a comparison runs: it keeps its state in a temporary folder, and reports to no other system.

Its sink stays in the spec, since the state can depend on its kind. ``kept_results`` sees to it that it is not opened.
"""

from __future__ import annotations

from pathlib import Path

from millrace_api.model.deployment import CheckpointSpec, PlacementSetting
from millrace_api.model.kafka import KafkaOffsets
from millrace_api.model.lakehouse import TableStart
from millrace_api.model.sources import CorruptPolicy, CorruptRecordsSpec, SourceSpec
from millrace_api.model.streamquery import StreamQuery


def scratch_query(query: StreamQuery, name: str, checkpoint: Path, *, from_beginning: bool) -> StreamQuery:
    """Return a query that writes nothing but its results, and these where ``Endpoints`` say.

    Args:
        query: the query of the user.
        name: the name that both versions have in the comparison, whatever those in their files.
        checkpoint: folder of its checkpoint in the comparison.
        from_beginning: whether to read topics and tables from their beginning where the query would begin at their end.
    """
    spec = query.spec
    sources = {name: _scratch_source(source, from_beginning=from_beginning) for name, source in spec.sources.items()}
    changed = {
        "sources": sources,
        "checkpoint": CheckpointSpec(uri=checkpoint.as_uri()),
        "snapshots": None,
        "event_log": None,
        "lineage": None,
        "lookups": None,
        "partitioner": spec.partitioner.model_copy(update={"placement": PlacementSetting.INLINE}),
    }
    return named(query, name).model_copy(update={"spec": spec.model_copy(update=changed), "status": None})


def named(query: StreamQuery, name: str) -> StreamQuery:
    """Return a query under another name."""
    return query.model_copy(update={"metadata": query.metadata.model_copy(update={"name": name})})


def _scratch_source(source: SourceSpec, *, from_beginning: bool) -> SourceSpec:
    """Return a source that counts the records it would write as dead letters."""
    changed: dict[str, object] = {}
    if source.corrupt_records.policy is CorruptPolicy.DEAD_LETTER:
        changed["corrupt_records"] = CorruptRecordsSpec(policy=CorruptPolicy.DROP)
    kafka = source.kafka
    if kafka is not None and from_beginning and kafka.starting_offsets is KafkaOffsets.LATEST:
        changed["kafka"] = kafka.model_copy(update={"starting_offsets": KafkaOffsets.EARLIEST})
    lakehouse = source.lakehouse
    if lakehouse is not None and from_beginning and lakehouse.start_from is TableStart.LATEST:
        changed[source.kind] = lakehouse.model_copy(update={"start_from": TableStart.TABLE})
    return source.model_copy(update=changed)
