"""What the operator has seen of the cluster, by query, as its watches told it: nothing is asked for to know it."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import ValidationError

from millrace_api.model.annotations import is_set
from millrace_api.model.applied import APPLIED_KEY, PLAN_KEY, Applied
from millrace_api.model.labels import QUERY
from millrace_api.model.plan import Plan
from millrace_api.model.status import Status
from millrace_api.model.streamquery import Spec

from ..resources.names import Manifest, Owner
from ..resources.objects import ASKED
from ..resources.spec_fields import REVISION
from .conditions import moment

ObjectKey = tuple[str, str]
"""Kind and name of an object in the namespace of its query."""


class QueryKey(NamedTuple):
    """Which query."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ObservedQuery:
    """One query as it was last seen: ``body`` is the whole object, ``objects`` all that carry its label."""

    body: Mapping[str, Any]
    objects: Mapping[ObjectKey, Manifest] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        """The query as the owner of its objects."""
        metadata = self.body["metadata"]
        return Owner(metadata["namespace"], metadata["name"], metadata["uid"])

    @property
    def generation(self) -> int:
        """Of the spec."""
        return int(self.body["metadata"]["generation"])

    @cached_property
    def status(self) -> Status:
        """What was reported last; empty where there is nothing, or nothing that this version understands."""
        try:
            return Status.model_validate(self.body.get("status") or {}, by_name=False)
        except ValidationError:
            return Status()

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that the driver follows; None where there is none yet, or none that can be read."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return Plan.from_json(held["data"][PLAN_KEY])
        except (KeyError, TypeError, ValidationError):
            return None

    @cached_property
    def applied(self) -> Applied | None:
        """What the driver says of the plan that it follows; None where it has said nothing yet."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return Applied.from_json(held["data"][APPLIED_KEY])
        except (KeyError, TypeError, ValidationError):
            return None

    @cached_property
    def asked(self) -> dict[str, Any] | None:
        """What the spec asked of that plan; None where that is not known."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return dict(json.loads(held["metadata"]["annotations"][ASKED]))
        except (KeyError, TypeError, ValueError):
            return None

    @cached_property
    def healthy(self) -> tuple[str, Spec] | None:
        """The last spec under which the driver was healthy, and its revision; None where there is none yet."""
        held = self._own("ConfigMap", self.owner.healthy)
        try:
            spec = Spec.model_validate_json(held["data"]["spec.json"], by_name=False)
            return held["metadata"]["annotations"][REVISION], spec
        except (KeyError, TypeError, ValidationError):
            return None

    @property
    def driver(self) -> Manifest | None:
        """The driver's pod."""
        return self.objects.get(("Pod", self.owner.driver_pod))

    @property
    def stateful_set(self) -> Manifest | None:
        """What keeps the driver's pod."""
        return self.objects.get(("StatefulSet", self.owner.driver))

    @property
    def revision(self) -> str | None:
        """What the driver's pod was made from; None where there is no pod."""
        pod = self.driver
        return None if pod is None else pod["metadata"].get("annotations", {}).get(REVISION, "")

    @property
    def is_drained(self) -> bool:
        """Whether there is no driver, and none comes."""
        held = self.stateful_set
        if self.driver is not None or held is None:
            return self.driver is None
        return not held["spec"].get("replicas", 1) and not held.get("status", {}).get("replicas", 0)

    @property
    def deleted_at(self) -> datetime | None:
        """When its deletion was asked for."""
        stamp = self.body["metadata"].get("deletionTimestamp")
        return None if stamp is None else moment(stamp)

    @property
    def memory(self) -> Manifest:
        """What scaling has kept; empty where there is nothing."""
        return self._own("ConfigMap", self.owner.scaling)

    def _own(self, kind: str, name: str) -> Manifest:
        """An object of this very query, and not of one that had its name before; empty where there is none."""
        held = self.objects.get((kind, name), {})
        owners = held.get("metadata", {}).get("ownerReferences") or ()
        return held if any(each.get("uid") == self.owner.uid for each in owners) else {}

    def is_set(self, annotation: str) -> bool:
        """Whether the query has one of ``millrace_api.model.annotations``."""
        return is_set(self.body["metadata"].get("annotations") or {}, annotation)


class Observations:
    """All queries and their objects; handlers put in what they see, workers take out what there is now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[QueryKey, Mapping[str, Any]] = {}
        self._objects: defaultdict[QueryKey, dict[ObjectKey, Manifest]] = defaultdict(dict)

    def query_seen(self, body: Mapping[str, Any]) -> QueryKey:
        """A query is there, as it is in ``body``."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            held = self._queries.get(key)
            if held is None or not _is_older(body, held):
                self._queries[key] = _without_managed_fields(body)
        return key

    def query_gone(self, body: Mapping[str, Any]) -> QueryKey:
        """A query has been deleted."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            held = self._queries.get(key)
            if held is not None and held["metadata"]["uid"] == body["metadata"]["uid"]:
                del self._queries[key]
        return key

    def object_seen(self, body: Manifest) -> QueryKey:
        """An object with a query's label is there; what is older than what was seen of it is passed over.

        An answer to a request and a watch that tells the same are not in order.
        """
        key = _query_of(body)
        with self._lock:
            held = self._objects[key].get(_key_of(body))
            if held is None or not _is_older(body, held):
                self._objects[key][_key_of(body)] = _without_managed_fields(body)
        return key

    def object_gone(self, body: Manifest) -> QueryKey:
        """Such an object has been deleted."""
        key, object_key = _query_of(body), _key_of(body)
        with self._lock:
            held = self._objects[key].get(object_key)
            if held is not None and held["metadata"]["uid"] == body["metadata"]["uid"]:
                del self._objects[key][object_key]
            if not self._objects[key]:
                del self._objects[key]
        return key

    def of(self, key: QueryKey) -> ObservedQuery | None:
        """What was seen of a query; None where there is none any more."""
        with self._lock:
            body = self._queries.get(key)
            return None if body is None else ObservedQuery(body, dict(self._objects.get(key, {})))

    def queries(self) -> list[QueryKey]:
        """All queries."""
        with self._lock:
            return list(self._queries)

    def generation(self, key: QueryKey) -> int | None:
        """Of a query's spec; None where there is none any more."""
        with self._lock:
            body = self._queries.get(key)
        return None if body is None else int(body["metadata"]["generation"])

    def phases(self) -> list[str]:
        """The phase of each query, as it was reported last; Pending where nothing was."""
        with self._lock:
            return [(body.get("status") or {}).get("phase", "Pending") for body in self._queries.values()]


def _query_of(body: Manifest) -> QueryKey:
    metadata = body["metadata"]
    return QueryKey(metadata["namespace"], metadata["labels"][QUERY])


def _key_of(body: Manifest) -> ObjectKey:
    return body["kind"], body["metadata"]["name"]


def _without_managed_fields(body: Mapping[str, Any]) -> Manifest:
    """They are as large as all the rest, and nobody asks for them."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}


def _is_older(body: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Versions of a resource are numbers that grow (Kubernetes 1.35 and later promise it)."""
    versions = [each["metadata"].get("resourceVersion", "0") for each in (body, held)]
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])
