"""The demo's scenarios: what of the example's query differs, and the loads that it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from lab.parts.millrace_images import EXAMPLE
from millrace_api.model.deployment import Placement


@dataclass(frozen=True)
class DemoScenario:
    """A query and its loads.

    Attributes:
        low, high: loads in records/s.
        rounds: rounds of the digest that the aggregator computes of each record.
        partitioner: what the query says of its partitioner besides the example.
    """

    low: float
    high: float
    rounds: int
    partitioner: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """Return the query."""
        document: dict[str, Any] = yaml.safe_load((EXAMPLE / "query.yaml").read_text(encoding="utf-8"))
        spec = document["spec"]
        spec["query"]["python"]["options"]["rounds"] = self.rounds
        spec["partitioner"] |= self.partitioner
        return document


def _limited(processors: str) -> dict[str, Any]:
    """Return a pod template for replicas that get a share of a processor, as the example's executors do."""
    resources = {"requests": {"cpu": processors}, "limits": {"cpu": processors}}
    return {"spec": {"containers": [{"name": "partitioner", "resources": resources}]}}


SCENARIOS = {
    Placement.INLINE: DemoScenario(low=1_000.0, high=4_000.0, rounds=300, partitioner={}),
    # A replica places a record in a tenth of the time of a digest: eight times the records, of a sixth of the work.
    Placement.DEDICATED: DemoScenario(
        low=8_000.0,
        high=32_000.0,
        rounds=50,
        partitioner={
            "placement": "Dedicated",
            "replicas": {"initial": 1, "max": 4},
            "pod": {"podTemplate": _limited("40m")},
        },
    ),
}
"""The scenario of each placement. The two cores of a small machine are enough for either of them."""
