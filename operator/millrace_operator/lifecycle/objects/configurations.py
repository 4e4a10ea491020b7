"""Configurations of drivers on the cluster: which are of no more use, and which cannot be used.

When another image or spec needs another configuration, the operator makes it and names it in the template of the
driver's StatefulSet, which is that of the next pod. The pod that runs keeps its own until it is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from millrace_api.model.streamquery import DRIVER, PARTITIONER, ROLE_LABEL

from ...resources.configuration import mounted_configuration
from ...resources.names import Manifest
from ..observed_query import ObservedQuery
from ..pods.driver_health import ready_since


def unused_configurations(observed: ObservedQuery, desired: Iterable[Manifest]) -> list[Manifest]:
    """Return the configurations that no pod has or will get; ``desired`` are the query's objects, which exist."""
    sets = [each for each in (observed.stateful_set, observed.partitioner_set) if each is not None]
    if not all(map(_is_followed, sets)):
        return []
    used = {each["metadata"]["name"] for each in desired}
    used |= {mounted_configuration(observed.owner, each["spec"]["template"]) for each in sets}
    pods = [each for (kind, _), each in observed.objects.items() if kind == "Pod"]
    mounting = [each for each in pods if each["metadata"]["labels"].get(ROLE_LABEL) in (DRIVER, PARTITIONER)]
    used |= {mounted_configuration(observed.owner, each) for each in mounting}
    return [each for each in observed.configurations if each["metadata"]["name"] not in used]


def forged_configurations(observed: ObservedQuery, missing: Iterable[Manifest]) -> list[Manifest]:
    """Return the ConfigMaps in the place of missing configurations that another client has made with other content.

    They may be immutable, and a driver reads every file in them.
    """
    owner = observed.owner
    desired = [each for each in missing if owner.is_configuration(each["metadata"]["name"])]
    pairs = [(observed.objects.get((each["kind"], each["metadata"]["name"])), each) for each in desired]
    return [
        found
        for found, each in pairs
        if found is not None
        and owner.owns(found)
        and (found.get("data"), found.get("immutable")) != (each["data"], each["immutable"])
    ]


def lacks_configuration(observed: ObservedQuery) -> bool:
    """Return whether the driver is not ready and the configuration of its pod does not exist: it may never start."""
    name = observed.configuration
    if name is None or observed.driver is None or ("ConfigMap", name) in observed.objects:
        return False
    return ready_since(observed.driver) is None


def _is_followed(stateful_set: Manifest) -> bool:
    """Return whether the controller has seen the latest template, so that it makes no more pods from an earlier one."""
    generation = stateful_set["metadata"].get("generation", 0)
    return bool(stateful_set.get("status", {}).get("observedGeneration", 0) >= generation)
