"""How the records of a batch were placed on its workers."""

from __future__ import annotations

import numpy as np

from millrace_jobs.agent.progress import BatchReport
from millrace_jobs.partitioners.metrics import PlacementCost, cost_of_counts


def placement_of(report: BatchReport) -> PlacementCost | None:
    """The cost of a batch's placement, from what its workers counted; None where no record was routed.

    The report's number of distinct keys is an estimate. What the workers counted bounds it, since a key is on at
    least one worker: max ‖L_w‖ ≤ ‖S‖ ≤ Γ. An estimate outside of these bounds is moved to the nearer one.
    """
    if not sum(report.worker_rows):
        return None
    rows, keys = np.array(report.worker_rows), np.array(report.worker_keys)
    distinct = report.distinct_keys
    if distinct is not None:
        distinct = min(max(distinct, int(keys.max())), int(keys.sum()))
    return cost_of_counts(rows, keys, distinct_keys=distinct)
