"""Lease on the API server that holds the record of a leader election."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from kubernetes.client import ApiException

from ..leadership.election import Record
from ..resources.names import Manifest
from .client import Client, ResourceKind

_LEASES = ResourceKind("Lease", "apis/coordination.k8s.io/v1", "leases")


class LeaseApi:
    """API for one Lease. Raises the errors of ``Client.request``.

    Args:
        client: an unfenced client, because a candidate changes the lease before it holds it.
        namespace: namespace of the Lease.
        name: name of the Lease.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def read(self, seconds: float) -> Record | None:
        """Read the record within ``seconds``; return None if the Lease does not exist."""
        try:
            lease = self._client.request("GET", _LEASES.path(self._namespace, self._name), {}, timeout=seconds)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _record_of(lease)

    def write(self, record: Record, seconds: float) -> Record:
        """Create the Lease, or replace the version that the record names; return the new record."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")  # informational: no decision depends on it
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.seconds,
            "acquireTime": record.acquired or now,
            "renewTime": now,
            "leaseTransitions": record.transitions,
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        method, path = "POST", _LEASES.path(self._namespace)
        if record.version:
            metadata["resourceVersion"] = record.version
            method, path = "PUT", _LEASES.path(self._namespace, self._name)
        lease = {**_LEASES.type_meta, "metadata": metadata, "spec": spec}
        return _record_of(self._client.request(method, path, {}, lease, timeout=seconds))


def _record_of(lease: Manifest) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        seconds=spec.get("leaseDurationSeconds") or 1,
        version=lease["metadata"]["resourceVersion"],
        transitions=spec.get("leaseTransitions") or 0,
        acquired=spec.get("acquireTime"),
    )
