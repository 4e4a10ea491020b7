"""What the requests of a checkpoint in an object store cost; docs/object-stores.md says how they were counted."""

from __future__ import annotations

from typing import NamedTuple

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Spec
from millrace_api.validation.places import bucket_and_prefix

_CHANGE_DOLLARS, _READ_DOLLARS = 5e-6, 0.4e-6
"""List prices of AWS's S3 for a request: PUT or LIST, and GET or HEAD. DELETE is free."""

_MONTH_SECONDS = 30 * 86_400


class StoreRequests(NamedTuple):
    """The requests of a batch: those that are billed as changes (PUT, LIST), and reads (GET, HEAD)."""

    changes: float
    reads: float

    @property
    def dollars(self) -> float:
        """Their list price."""
        return self.changes * _CHANGE_DOLLARS + self.reads * _READ_DOLLARS


def requests_of_batch(state_partitions: int) -> StoreRequests:
    """Return the requests of a batch with records, counted in the log of a server."""
    return StoreRequests(12 + 3.5 * state_partitions, 16 + 2 * state_partitions)


def store_costs(spec: Spec) -> list[Problem]:
    """Return a note on what the batches of a query with a checkpoint in an object store cost; none for another one."""
    found = None if spec.checkpoint is None else bucket_and_prefix(spec.checkpoint.uri or "")
    if found is None:
        return []
    partitions = spec.state_partitions(spec.executors.max * spec.executors.cores.slots)
    if found[0] == "abfss":  # its prices differ by region and redundancy
        requests = 64 + 27 * partitions
        message = f"a batch makes about {requests} requests to Azure, all of them billed, and waits for most of them"
        return [Problem(message, "write a longer batchInterval to pay less", field="spec.checkpoint.uri")]
    if spec.s3 is not None and spec.s3.endpoint is not None:  # which has prices of its own, or none
        return []
    batch, seconds = requests_of_batch(partitions), spec.batch_interval.seconds
    month = batch.dollars * _MONTH_SECONDS / seconds
    message = (
        f"a batch makes about {batch.changes + batch.reads:.0f} requests to S3: one every {spec.batch_interval} costs "
        f"${month:,.0f} a month at the list prices of AWS"
    )
    return [Problem(message, "write a longer batchInterval to pay less", field="spec.checkpoint.uri")]
