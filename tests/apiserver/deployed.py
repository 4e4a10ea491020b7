"""Apply many small queries at once, and check whether they are deployed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import yaml

from unit.api.documents import ON_CLUSTER


def apply_queries(kubectl: Callable[..., str], names: Sequence[str]) -> None:
    """Apply one small query per name; where their pods find nodes, they need a claim, see ``lab.claims``."""
    documents = [yaml.safe_load(ON_CLUSTER) for _ in names]
    for document, name in zip(documents, names, strict=True):
        document["metadata"]["name"] = name
    kubectl("apply", "-f", "-", document=documents)


def are_deployed(kubectl: Callable[..., str], names: Sequence[str]) -> bool:
    """Return whether each query has a driver according to its status."""
    queries = {each["metadata"]["name"]: each for each in json.loads(kubectl("get", "sq", "-o", "json"))["items"]}
    return all(queries[name].get("status", {}).get("driver", {}).get("pod") for name in names)
