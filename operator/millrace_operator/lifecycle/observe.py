"""Cache of the observed cluster state by query, filled from watches so that reads need no API request."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from kubernetes.utils.quantity import parse_quantity
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
"""Kind and name of an object in its query's namespace."""


class QueryKey(NamedTuple):
    """Namespace and name of a query."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ObservedQuery:
    """Query as last observed: ``body`` is the whole object, ``objects`` are all objects with its label."""

    body: Mapping[str, Any]
    objects: Mapping[ObjectKey, Manifest] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        """The query as the owner of its objects."""
        metadata = self.body["metadata"]
        return Owner(metadata["namespace"], metadata["name"], metadata["uid"])

    @property
    def generation(self) -> int:
        """Generation of the spec."""
        return int(self.body["metadata"]["generation"])

    @cached_property
    def status(self) -> Status:
        """Last reported status; empty if there is none or this version cannot read it."""
        try:
            return Status.model_validate(self.body.get("status") or {}, by_name=False)
        except ValidationError:
            return Status()

    @cached_property
    def plan(self) -> Plan | None:
        """Plan that the driver follows; None if there is none yet or it cannot be read."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return Plan.from_json(held["data"][PLAN_KEY])
        except (KeyError, TypeError, ValidationError):
            return None

    @cached_property
    def applied(self) -> Applied | None:
        """Driver's report on the plan it follows; None if there is no readable report yet."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return Applied.from_json(held["data"][APPLIED_KEY])
        except (KeyError, TypeError, ValidationError):
            return None

    @cached_property
    def asked(self) -> dict[str, Any] | None:
        """Plan settings that the spec asked for when the plan was written; None if unknown."""
        held = self._own("ConfigMap", self.owner.plan)
        try:
            return dict(json.loads(held["metadata"]["annotations"][ASKED]))
        except (KeyError, TypeError, ValueError):
            return None

    @cached_property
    def healthy(self) -> tuple[str, Spec] | None:
        """Revision and spec under which the driver was last healthy; None if there is none yet."""
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
        """StatefulSet of the driver's pod."""
        return self.objects.get(("StatefulSet", self.owner.driver))

    @property
    def revision(self) -> str | None:
        """Revision that the driver's pod was created from; None without a pod."""
        pod = self.driver
        return None if pod is None else pod["metadata"].get("annotations", {}).get(REVISION, "")

    @property
    def is_drained(self) -> bool:
        """Whether there is no driver and none will be started."""
        held = self.stateful_set
        if self.driver is not None or held is None:
            return self.driver is None
        return not held["spec"].get("replicas", 1) and not held.get("status", {}).get("replicas", 0)

    @property
    def deleted_at(self) -> datetime | None:
        """Time when the deletion was requested; None if it was not."""
        stamp = self.body["metadata"].get("deletionTimestamp")
        return None if stamp is None else moment(stamp)

    @property
    def memory(self) -> Manifest:
        """ConfigMap with the saved scaling state; empty if there is none."""
        return self._own("ConfigMap", self.owner.scaling)

    def _own(self, kind: str, name: str) -> Manifest:
        """Return an object owned by this query, not by an earlier one of the same name; empty if there is none."""
        held = self.objects.get((kind, name), {})
        owners = held.get("metadata", {}).get("ownerReferences") or ()
        return held if any(each.get("uid") == self.owner.uid for each in owners) else {}

    def is_set(self, annotation: str) -> bool:
        """Return whether one of ``millrace_api.model.annotations`` is set on the query."""
        return is_set(self.body["metadata"].get("annotations") or {}, annotation)


class Observations:
    """Thread-safe cache of all queries and their objects; handlers write to it, workers read from it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[QueryKey, Mapping[str, Any]] = {}
        self._objects: defaultdict[QueryKey, dict[ObjectKey, Manifest]] = defaultdict(dict)

    def query_seen(self, body: Mapping[str, Any]) -> QueryKey:
        """Store a query as it is in ``body``, unless a newer version is stored; return its key."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            held = self._queries.get(key)
            if held is None or not _is_older(body, held):
                self._queries[key] = _without_managed_fields(body)
        return key

    def query_gone(self, body: Mapping[str, Any]) -> QueryKey:
        """Remove a deleted query; return its key."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            held = self._queries.get(key)
            if held is not None and held["metadata"]["uid"] == body["metadata"]["uid"]:
                del self._queries[key]
        return key

    def object_seen(self, body: Manifest) -> QueryKey:
        """Store an object with a query's label, unless a newer version is stored; return the query's key.

        Responses to requests and watch events about the same object may arrive out of order.
        """
        key = _query_of(body)
        with self._lock:
            held = self._objects[key].get(_key_of(body))
            if held is None or not _is_older(body, held):
                self._objects[key][_key_of(body)] = _without_managed_fields(body)
        return key

    def object_gone(self, body: Manifest) -> QueryKey:
        """Remove a deleted object; return the key of its query."""
        key, object_key = _query_of(body), _key_of(body)
        with self._lock:
            held = self._objects[key].get(object_key)
            if held is not None and held["metadata"]["uid"] == body["metadata"]["uid"]:
                del self._objects[key][object_key]
            if not self._objects[key]:
                del self._objects[key]
        return key

    def of(self, key: QueryKey) -> ObservedQuery | None:
        """Return the observed state of a query, or None if it no longer exists."""
        with self._lock:
            body = self._queries.get(key)
            return None if body is None else ObservedQuery(body, dict(self._objects.get(key, {})))

    def queries(self) -> list[QueryKey]:
        """Return the keys of all queries."""
        with self._lock:
            return list(self._queries)

    def generation(self, key: QueryKey) -> int | None:
        """Return the generation of a query's spec, or None if the query no longer exists."""
        with self._lock:
            body = self._queries.get(key)
        return None if body is None else int(body["metadata"]["generation"])

    def phases(self) -> list[str]:
        """Return the last reported phase of each query; Pending if none was reported."""
        with self._lock:
            return [(body.get("status") or {}).get("phase", "Pending") for body in self._queries.values()]


def _query_of(body: Manifest) -> QueryKey:
    metadata = body["metadata"]
    return QueryKey(metadata["namespace"], metadata["labels"][QUERY])


def _key_of(body: Manifest) -> ObjectKey:
    return body["kind"], body["metadata"]["name"]


def _without_managed_fields(body: Mapping[str, Any]) -> Manifest:
    """Return the object without its managed fields, which are unused and as large as the rest."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}


def _is_older(body: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    """Compare resource versions, which are increasing numbers (guaranteed from Kubernetes 1.35 on)."""
    versions = [each["metadata"].get("resourceVersion", "0") for each in (body, held)]
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])


_QUANTITIES = frozenset({"cpu", "memory", "storage", "ephemeral-storage", "sizeLimit"})
"""Fields with several spellings of one value: the API server turns 7168Mi into 7Gi."""


def missing_of(seen: ObservedQuery, wanted: Iterable[Manifest]) -> list[Manifest]:
    """Return the desired objects that are missing or differ, in the order in which to apply them."""
    return [each for each in wanted if not covers(seen.objects.get((each["kind"], each["metadata"]["name"])), each)]


def covers(found: Any, wanted: Any, name: str = "") -> bool:
    """Return whether an observed value has everything that is wanted; additional fields are ignored.

    Additional fields belong to the API server or to other clients. ``name`` is the field's name. The API server omits
    empty values and normalizes quantities.
    """
    if found is None and (wanted is False or wanted in ("", [], {})):
        return True
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(part), each, part) for part, each in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted) or (name in _QUANTITIES and _same_quantity(found, wanted))


def _same_quantity(found: Any, wanted: Any) -> bool:
    try:
        return bool(parse_quantity(found) == parse_quantity(wanted))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return False
