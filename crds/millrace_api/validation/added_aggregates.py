"""Whether the state of a query can take up an aggregate that a changed version adds.

Records of before the change are gone, so the aggregate has values only in windows that start after the newest window in
the state, and is NULL in the others. ``millrace_jobs.run.state_widening`` rewrites the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.dialect import parse_expression
from millrace_api.sql.groups import is_window
from millrace_api.sql.merged_parts import DEVIATIONS
from millrace_api.sql.outline import Outline
from millrace_api.validation.places import bucket_and_prefix


def why_not_added(now: StreamQuery, made: Outline, wanted: Outline, added: Sequence[str]) -> str | None:
    """Return why a state whose aggregates have columns of their own cannot take up others; None if it can.

    Args:
        now: the changed query.
        made: the outline of the query that built the state.
        wanted: the outline of the changed query, whose keys are the same.
        added: the aggregates that the state lacks.
    """
    checkpoint, spec = now.spec.checkpoint, now.spec
    if not any(is_window(parse_expression(key)) for key in wanted.keys):
        return "its groups have no window, after which all records would be counted"
    if spec.additional_outputs is not None or spec.emit is Emit.ON_WINDOW_END:
        return "rows are held back, in a state of another kind"
    if deviations := [call for call in added if parse_expression(call).find(*DEVIATIONS)]:
        return f"Spark keeps no {deviations[0]} of a group without records"
    if made.where != wanted.where:
        return "WHERE changes with it, so that windows lack records of which the state has nothing"
    if filtering := [call for call in added if call in wanted.filtering]:
        return f"HAVING reads {', '.join(filtering)}, which would be NULL in windows that are open"
    if checkpoint is not None and checkpoint.uri is not None and bucket_and_prefix(checkpoint.uri) is not None:
        return "a state in an object store is not rewritten"
    return None


def remark_on_added(added: Sequence[str]) -> str:
    """Return what the user should know of aggregates that a state takes up."""
    which = "is new: it counts" if len(added) == 1 else "are new: they count"
    return (
        f"{', '.join(added)} {which} in windows that start after the newest one in the state, and "
        f"{'is' if len(added) == 1 else 'are'} NULL in the others"
    )
