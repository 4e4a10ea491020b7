"""What a table knows of a query's batches, and what follows: which tables do not match a checkpoint, and which drivers
have been replaced.

Each format keeps the record in its own way, in the commit that writes a batch: Delta as application transactions,
Iceberg as properties of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.sinks.base import LastBatch

NO_BATCH = -1
"""Number before that of the first batch."""


@dataclass(frozen=True)
class BatchesInTable:
    """What a table knows.

    Args:
        batch: number of the last batch of this checkpoint that is in the table; None if there is none.
        driver: number of the last driver that has begun on this checkpoint; None if there was none.
        of_another_checkpoint: whether the query has filled the table from another checkpoint.
    """

    batch: int | None
    driver: int | None
    of_another_checkpoint: bool


def require_known(found: BatchesInTable, last: LastBatch, query: str, table: str, field: str) -> None:
    """Refuse a table that does not have the batches that Spark's log has, or has others.

    Args:
        found: what the table knows.
        last: what Spark's log knows.
        query: name of the query.
        table: the table, as messages name it.
        field: the field of the spec that names it.

    Raises:
        MillraceError: they do not match.
    """
    what = hint = ""
    if found.batch is not None and found.batch > (NO_BATCH if last.begun is None else last.begun):
        newest = "no batch" if last.begun is None else f"no batch after {last.begun}"
        what = f"has results up to batch {found.batch}, but the checkpoint knows of {newest}"
        hint = "restore the newest checkpoint, or write another table"
    elif found.driver is None and last.committed is not None and not last.elsewhere:
        what = f"has no record of its batches, but the checkpoint has finished batch {last.committed}"
        hint = f"restore the table, or start over with a new table and {ANOTHER_CHECKPOINT}"
    elif found.driver is None and last.begun is None and found.of_another_checkpoint:
        what = f"has results of an earlier run of {query}, which began with another checkpoint"
        hint = "to start over, remove the table, or write another one"
    if what:
        raise MillraceError(Problem(f"the table {table} {what}", hint, field=field))


def taken_over(query: str, table: str, batch: int, field: str) -> MillraceError:
    """Return the error of a driver that another one has followed."""
    message = f"another driver has taken over writing the results of {query} to the table {table} before batch {batch}"
    return MillraceError(
        Problem(message, "run only one driver on a checkpoint: stop this one or the other one", field=field)
    )
