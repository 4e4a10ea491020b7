"""The operator is killed before and after each of its requests, and started again: the end is the same as without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unit.resources.cases import SMALLEST

from .operators import running_operator, start_operator
from .test_operator import PATIENCE, status_of, wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

KINDS = "sts,svc,cm,pdb,netpol,role,rolebinding,sa"
LABELLED = ("-l", "millrace.io/query=trips-by-cell", "-o", "json")
SUSPENDED = SMALLEST + "  state: Suspended\n"
CHANGED = SMALLEST + "  executors: {initial: 4}\n  image: example.org/other:2\n"
SCENARIOS = {
    "create": ([], SMALLEST, 11),
    "suspend": ([SMALLEST], SUSPENDED, 3),
    "resume": ([SMALLEST, SUSPENDED], SMALLEST, 3),
    "update": ([SMALLEST], CHANGED, 3),
}
"""What is applied before, and settles; then at last; and how many requests the operator makes for that at least."""

DEATHS = [
    (scenario, dies)
    for scenario, (*_, requests) in SCENARIOS.items()
    for dies in [*(f"before {number}" for number in range(1, requests + 1)), f"after {requests}"]
]
"""What an operator knows dies with it, so to die after a request is to die before the next."""


def settled(kubectl: Callable[..., str], text: str) -> Callable[[], bool]:
    """Whether all is as the document wants it."""
    wanted = "Suspended" if "Suspended" in text else "Deploying"
    pod = None if wanted == "Suspended" else "trips-by-cell-driver-0"

    def look() -> bool:
        query = json.loads(kubectl("get", "sq", "trips-by-cell", "-o", "json"))
        status = query.get("status", {})
        current = status.get("observedGeneration") == query["metadata"]["generation"]
        progress = [each["reason"] for each in status.get("conditions", ()) if each["type"] == "Progressing"]
        return (
            current
            and status["phase"] == wanted
            and progress in (["Deploying"], ["Settled"])
            and status.get("driver", {}).get("pod") == pod
        )

    return look


def everything(kubectl: Callable[..., str], namespace: str) -> dict[str, Any]:
    """What there is of the query, without what is another in every run."""
    found = {}
    for each in json.loads(kubectl("get", KINDS, *LABELLED))["items"]:
        content = {name: part for name, part in each.items() if name not in ("metadata", "status")}
        found[f"{each['kind']} {each['metadata']['name']}"] = json.loads(json.dumps(content).replace(namespace, "NS"))
        found[f"{each['kind']} {each['metadata']['name']}"].pop("secrets", None)
    status = status_of(kubectl, "trips-by-cell")
    status["conditions"] = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
    (status.get("driver") or {}).pop("startTime", None)
    return found | {"status": status}


@pytest.fixture(scope="module")
def ends() -> dict[str, dict[str, Any]]:
    """How each scenario ends without a death, as far as that was seen."""
    return {}


@pytest.mark.parametrize(("scenario", "dies"), [(scenario, None) for scenario in SCENARIOS] + DEATHS)
def test_a_death_at_any_request_makes_no_difference(
    plane: Any, namespace: str, kubectl: Any, tmp_path: Path, ends: Any, scenario: str, dies: str | None
) -> None:
    before, last, _ = SCENARIOS[scenario]
    if before:
        with running_operator(plane, tmp_path, namespace=namespace):
            for text in before:
                kubectl("apply", "-f", "-", document=text)
                wait_until(settled(kubectl, text))
    kubectl("apply", "-f", "-", document=last)
    if dies is not None:
        dying = start_operator(plane, tmp_path / "dying.log", namespace=namespace, dies=dies)
        assert dying.wait(PATIENCE) == 9, dying.said
    with running_operator(plane, tmp_path, namespace=namespace):
        wait_until(settled(kubectl, last))
        end = everything(kubectl, namespace)
    assert len(end) == 10
    assert end == ends.setdefault(scenario, end)
