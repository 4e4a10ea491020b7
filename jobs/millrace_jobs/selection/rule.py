"""What to run before anything is measured: the stream partitioner selection rule of paper 000, section 7."""

from __future__ import annotations

from millrace_jobs.partitioners.registry import ALGORITHMS, NATIVE

FEW = 10
"""So many times fewer groups than a worker's records are "significantly less", which the paper leaves open."""

MANY_WINDOWS = 4
"""Windows per record from which combining by pane beats Spark's own plan (docs/benchmarks.md has the figures)."""

EVEN = "shuffle"
"""The rule's choice for few groups."""

COLLOCATING = "cam" if "cam" in ALGORITHMS else "pkg"
"""The rule's choice for all others: of AM and cAM the one that splits a key where that helps."""


def by_rule(groups: float, rows: float, workers: int) -> str:
    """The rule's choice for a batch of ``rows`` records with ``groups`` different keys.

    Shuffle if groups are far fewer than the records of a worker; else AM or cAM, which have the best trade-off
    between imbalance and aggregation cost.
    """
    return EVEN if groups * FEW <= rows / workers else COLLOCATING


def starting_algorithm(*, sql: bool, windows: int, grouped: bool) -> str:
    """What a query starts as, of which no batch has been seen: Spark's own plan where it is strong, else by rule.

    Args:
        sql: the query is SQL, so that Spark's own plan with its map-side aggregation is there; else its aggregator
            is Python code.
        windows: windows that a record is in.
        grouped: there are keys; how many is not known. Without any, there is one group.
    """
    if sql and windows < MANY_WINDOWS:
        return NATIVE
    return COLLOCATING if grouped else EVEN
