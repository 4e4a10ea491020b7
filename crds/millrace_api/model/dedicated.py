"""What a spec alone says against partitioner replicas in processes of their own."""

from __future__ import annotations

from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import Spec


def dedicated_obstacle(spec: Spec) -> str | None:
    """Return why replicas in processes of their own cannot serve a query; None if the spec does not rule them out.

    The driver may still refuse them, because only it knows whether the query is routed, and whether Arrow computes its
    expressions.
    """
    if spec.partitioner.algorithm is Algorithm.NATIVE:
        return "algorithm native places no records"
    for name, source in spec.sources.items():
        kafka = source.kafka
        if kafka is None:
            return f"source {name} is not kafka"
        if kafka.topic_pattern is not None or kafka.partitions is not None:
            return f"source {name} does not read whole topics by name"
        if kafka.ending_timestamp is not None:
            return f"source {name} has an endingTimestamp"
    return None
