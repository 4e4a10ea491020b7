"""Choice of an algorithm before anything is measured: the stream partitioner selection rule of paper 000, section 7."""

from __future__ import annotations

from millrace_jobs.partitioners.registry import NATIVE

SIGNIFICANTLY_LESS = 10
"""Factor by which groups are "significantly less" than a worker's records; the paper leaves it open."""

MANY_WINDOWS = 4
"""Number of windows per record from which combining by pane beats Spark's own plan (figures: docs/benchmarks.md)."""

EVEN = "shuffle"
"""The rule's choice for few groups."""

COLLOCATING = "cam"
"""The rule's choice for all other batches: of AM and cAM, the one that splits a key where that helps."""


def by_rule(groups: float, rows: float, workers: int) -> str:
    """Return the rule's choice for a batch of ``rows`` records with ``groups`` distinct keys.

    Shuffle if groups are far fewer than the records of a worker; otherwise AM or cAM, which have the best trade-off
    between imbalance and aggregation cost.
    """
    return EVEN if groups * SIGNIFICANTLY_LESS <= rows / workers else COLLOCATING


def starting_algorithm(*, sql: bool, windows: int, grouped: bool) -> str:
    """Return the algorithm that a query starts with: Spark's own plan where it is strong, otherwise by rule.

    Args:
        sql: the query is SQL, so that Spark's own plan with its map-side aggregation is available; otherwise its
            aggregator is Python code.
        windows: number of windows that a record is in.
        grouped: the query has keys, although their number is not known. Without keys there is one group.
    """
    if sql and windows < MANY_WINDOWS:
        return NATIVE
    return COLLOCATING if grouped else EVEN
