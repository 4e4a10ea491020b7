"""Objects for partitioner replicas in pods of their own, where ``placement`` is Dedicated.

They are a StatefulSet and not a Deployment because its pods have stable numbers. A replica's number is its
transactional id in Kafka, so that a successor aborts at once what its predecessor left open. With fewer replicas, those
with the highest numbers end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace_api.model.streamquery import PARTITIONER, StreamQuery

from .configuration import with_configuration
from .driver_config import source_secrets
from .names import METRICS_PORT, Manifest, Owner
from .network import headless, partitioner_network_policy, service_port
from .pod_defaults import PodDefaults
from .pods import partitioner_account, partitioner_pod
from .tenancy_policy import IdentityEndpoint


@dataclass(frozen=True)
class Partitioners:
    """Replicas that should run.

    Attributes:
        replicas: their number, 0 or more.
        image: their image.
        configuration: name of the ConfigMap that they mount: the running driver's; None for that of the next driver.
    """

    replicas: int
    image: str
    configuration: str | None = None


def partitioner_objects(
    query: StreamQuery,
    owner: Owner,
    wanted: Partitioners,
    configuration: str,
    defaults: PodDefaults,
    identities: Iterable[IdentityEndpoint] = (),
) -> list[Manifest]:
    """Return the desired objects for replicas, the StatefulSet last; ``configuration`` is that of the next driver.

    ``identities`` is where replicas may get their identity in a cloud, if their login to Kafka is by it.
    """
    pod = partitioner_pod(query, owner, replace(defaults, image=wanted.image), source_secrets(query))
    template = with_configuration(pod, PARTITIONER, wanted.configuration or configuration)
    return [
        owner.manifest("v1", "ServiceAccount", owner.partitioner, {"automountServiceAccountToken": False}, PARTITIONER),
        _service(owner),
        partitioner_network_policy(owner, identities if partitioner_account(query) else ()),
        _disruption_budget(owner),
        _stateful_set(owner, wanted.replicas, template),
    ]


def _service(owner: Owner) -> Manifest:
    """Return the headless Service that a StatefulSet needs; it has the port that Prometheus scrapes."""
    spec = headless(owner.selector(PARTITIONER), service_port("metrics", METRICS_PORT, "http"))
    return owner.manifest("v1", "Service", owner.partitioner, {"spec": spec}, PARTITIONER)


def _disruption_budget(owner: Owner) -> Manifest:
    """Allow one evicted replica at a time; one that is not ready may always go, so that it never blocks a drain."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": owner.selector(PARTITIONER)},
    }
    return owner.manifest("policy/v1", "PodDisruptionBudget", owner.partitioner, {"spec": spec}, PARTITIONER)


def _stateful_set(owner: Owner, replicas: int, template: Manifest) -> Manifest:
    """Return a StatefulSet that starts and ends replicas side by side, and rolls a changed template one by one."""
    spec = {
        "replicas": replicas,
        "serviceName": owner.partitioner,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": owner.selector(PARTITIONER)},
        "template": template,
    }
    return owner.manifest("apps/v1", "StatefulSet", owner.partitioner, {"spec": spec}, PARTITIONER)
