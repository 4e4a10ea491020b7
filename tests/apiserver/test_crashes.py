"""The operator is killed before and after each of its requests, and started again: the end is the same as without."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST

from .conftest import new_namespace
from .observed import PATIENCE, wait_until
from .operators import running_operator, start_operator

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(1800)]

KINDS = "sts,svc,cm,pdb,netpol,role,rolebinding,sa,pod"
LABEL = "millrace.io/query=trips-by-cell"
_RANDOM = re.compile("-(auth|query)-[0-9a-f]{10}")
"""End of the names of a driver's Secret, which is drawn for each driver, and of the configuration that names it."""
SUSPENDED = SMALLEST + "  suspend: true\n"
SCALED = SMALLEST + "  executors: {initial: 4}\n"
REPLACED = SMALLEST + "  image: example.org/other:2\n"
DELETED = ""
SCENARIOS = {
    "create": ([], SMALLEST, 12),
    "scale": ([SMALLEST], SCALED, 4),
    "update": ([SMALLEST], REPLACED, 6),
    "suspend": ([SMALLEST], SUSPENDED, 4),
    "resume": ([SMALLEST, SUSPENDED], SMALLEST, 3),
    "delete": ([SMALLEST], DELETED, 4),
}
"""What is applied before, and settles; then at last; and how many requests the operator makes for that at least."""


class Place:
    """A namespace in which a scenario is gone through; ``dies``: where the operator dies in it, None for nowhere."""

    def __init__(self, plane: ControlPlane, dies: str | None) -> None:
        self.namespace = new_namespace(plane)
        self.dies = dies
        self._plane = plane

    def kubectl(self, *arguments: str, document: object = None) -> str:
        done = self._plane.kubectl("--namespace", self.namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, text: str) -> None:
        if text == DELETED:
            self.kubectl("delete", "sq", "trips-by-cell", "--wait=false")
        else:
            self.kubectl("apply", "-f", "-", document=text)

    def is_settled(self, text: str) -> bool:
        """Whether all is as the document wants it."""
        queries = json.loads(self.kubectl("get", "sq", "--field-selector", "metadata.name=trips-by-cell", "-o", "json"))
        if text == DELETED:
            return not queries["items"] and not self.kubectl("get", KINDS, "-l", LABEL, "-o", "name")
        (query,) = queries["items"]
        wanted, pods = ("Suspended", []) if text == SUSPENDED else ("Deploying", ["trips-by-cell-driver-0"])
        found = query.get("status", {})
        driver = found.get("driver") or {}
        return bool(
            found.get("observedGeneration") == query["metadata"]["generation"]
            and found["phase"] == wanted
            and _reasons(found, "Progressing") in (["Deploying"], ["Settled"])
            and [value for name, value in driver.items() if name == "pod"] == pods
            and driver.get("revision") in (None, found["revision"])
            and self.kubectl("get", "cm", "-l", LABEL, "-o", "name").count("-query-") == 1
        )

    def everything(self) -> dict[str, Any]:
        """What there is of the query, without what is another in every run."""
        found: dict[str, Any] = {}
        for each in json.loads(self.kubectl("get", KINDS, "-l", LABEL, "-o", "json"))["items"]:
            content = {name: part for name, part in each.items() if name not in ("metadata", "status", "secrets")}
            if each["kind"] == "Pod":
                content = each["metadata"]["annotations"]
            text = _RANDOM.sub(r"-\1-RANDOM", json.dumps(content).replace(self.namespace, "NS"))
            found[_RANDOM.sub(r"-\1-RANDOM", f"{each['kind']} {each['metadata']['name']}")] = json.loads(text)
        for query in json.loads(self.kubectl("get", "sq", "-o", "json"))["items"]:
            if query["metadata"]["name"] == "trips-by-cell":
                found["finalizers"] = query["metadata"]["finalizers"]
                found["status"] = {name: part for name, part in query["status"].items() if name != "revisionTime"}
                conditions = query["status"]["conditions"]
                found["status"]["conditions"] = [(each["type"], each["status"], each["reason"]) for each in conditions]
        return found


def _reasons(status: dict[str, Any], type: str) -> list[str]:
    return [each["reason"] for each in status.get("conditions", ()) if each["type"] == type]


@pytest.fixture
def places(plane: ControlPlane) -> Iterator[Callable[[int], list[Place]]]:
    """Makes namespaces for a death before each of so many requests, for one after the last, and for none."""
    made: list[Place] = []

    def make(requests: int) -> list[Place]:
        # What an operator knows dies with it, so to die after a request is to die before the next.
        deaths = [None, *(f"before {number}" for number in range(1, requests + 1)), f"after {requests}"]
        made.extend(Place(plane, dies) for dies in deaths)
        return made

    yield make
    for place in made:
        plane.kubectl("delete", "namespace", place.namespace, "--wait=false")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_death_at_any_request_makes_no_difference(
    plane: ControlPlane, places: Callable[[int], list[Place]], tmp_path: Path, scenario: str
) -> None:
    before, last, requests = SCENARIOS[scenario]
    made = places(requests)
    everywhere = [option for place in made for option in ("--namespace", place.namespace)]
    if before:
        with running_operator(plane, tmp_path, *everywhere):
            for text in before:
                for place in made:
                    place.apply(text)
                for place in made:
                    wait_until(lambda place=place, text=text: place.is_settled(text))  # type: ignore[misc]
    for place in made:
        place.apply(last)
    for place in made:
        if place.dies is not None:
            log = tmp_path / f"{place.dies}.log"
            dying = start_operator(plane, log, namespace=place.namespace, dies=place.dies)
            assert dying.wait(PATIENCE) == 9, dying.said
    with running_operator(plane, tmp_path, *everywhere):
        for place in made:
            wait_until(lambda place=place: place.is_settled(last))  # type: ignore[misc]
        undisturbed, *others = [place.everything() for place in made]
    assert len(undisturbed) == {DELETED: 0, SUSPENDED: 11}.get(last, 12)
    for place, end in zip(made[1:], others, strict=True):
        assert end == undisturbed, place.dies
