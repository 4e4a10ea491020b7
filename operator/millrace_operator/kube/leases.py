"""Lease on the API server that holds the record of a leader election."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from kubernetes.client import ApiClient, ApiException, CoordinationV1Api, V1Lease, V1LeaseSpec, V1ObjectMeta

from ..leadership.election import Record


class LeaseApi:
    """API for one Lease. Raises ApiException for a refusal and urllib3's errors if the API server is unreachable.

    Args:
        client: an unfenced client, because a candidate changes the lease before it holds it.
        namespace: namespace of the Lease.
        name: name of the Lease.
    """

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._api = CoordinationV1Api(client)
        self._namespace = namespace
        self._name = name

    def read(self, seconds: float) -> Record | None:
        """Read the record within ``seconds``; return None if the Lease does not exist."""
        try:
            lease = self._api.read_namespaced_lease(self._name, self._namespace, _request_timeout=seconds)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _record_of(lease)

    def write(self, record: Record, seconds: float) -> Record:
        """Create the Lease, or replace the version that the record names; return the new record."""
        lease = self._lease_of(record)
        if record.version:
            return _record_of(
                self._api.replace_namespaced_lease(self._name, self._namespace, lease, _request_timeout=seconds)
            )
        return _record_of(self._api.create_namespaced_lease(self._namespace, lease, _request_timeout=seconds))

    def _lease_of(self, record: Record) -> V1Lease:
        """Build the Lease; its timestamps are informational, no decision depends on them."""
        now = datetime.now(UTC)
        return V1Lease(
            metadata=V1ObjectMeta(name=self._name, namespace=self._namespace, resource_version=record.version or None),
            spec=V1LeaseSpec(
                holder_identity=record.holder,
                lease_duration_seconds=record.seconds,
                acquire_time=record.acquired or now,
                renew_time=now,
                lease_transitions=record.transitions,
            ),
        )


def _record_of(lease: V1Lease) -> Record:
    spec, metadata = lease.spec or V1LeaseSpec(), lease.metadata or V1ObjectMeta()
    return Record(
        holder=spec.holder_identity or "",
        seconds=spec.lease_duration_seconds or 1,
        version=metadata.resource_version or "",
        transitions=spec.lease_transitions or 0,
        acquired=spec.acquire_time,
    )
