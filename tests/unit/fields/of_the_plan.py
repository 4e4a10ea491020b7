"""Probes of the plan, as an operator or a user writes it: the pin of the next batches, and the budget of executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_api.validation.loading import load_plan, read_query
from millrace_jobs.plan.plan_source import pin_of
from millrace_operator.resources.manifests import objects
from millrace_operator.resources.pod_defaults import PodDefaults

from .documents import ON_CLUSTER
from .of_kafka import OWNER
from .probe import ABSENT, Document, Probe

PLAN = {"plan": {"epoch": 3, "algorithm": "prompt", "replicas": 2, "parallelism": 4}}
ALGORITHMS = tuple(map(str, Algorithm))
VALUES = {
    "epoch": (3, 4),
    "algorithm": ALGORITHMS,
    "parameters": (ABSENT, {"budget": 5}, {"budgets": 5}),
    "replicas": (2, 3),
    "parallelism": (4, 5),
    "executors": (2, 3),
    "placement": ("Inline", "Dedicated"),
}


def read(document: Document) -> Plan:
    """Read a plan from a file in the working folder."""
    file = Path("plan.yaml")
    file.write_text(yaml.safe_dump(document["plan"]))
    return load_plan(file)


def followed(plan: Plan) -> object:
    """Return what the next batches are pinned to, and how many executors may not be evicted."""
    made = objects(
        read_query(ON_CLUSTER),
        OWNER,
        plan,
        PodDefaults("example.org/jobs"),
        running=True,
        auth="trips-by-cell-auth-0123456789",
    )
    budget = next(each["spec"] for each in made if each["kind"] == "PodDisruptionBudget")
    return pin_of(plan), budget["minAvailable"]


def of_the_plan() -> Iterator[Probe]:
    """Yield a probe for each field of a plan."""
    for name, values in VALUES.items():
        yield Probe(f"plan.{name}", PLAN, values, followed, read)
    own = {"plan": PLAN["plan"] | {"parameters": {"class": "distribution:Counting"}}}
    yield Probe("plan.algorithm", own, ("hash", "python"), lambda plan: plan.algorithm, read)
