"""A query on the network: its Services, and NetworkPolicies that say who may reach its pods, and what they may reach.

Some networks count pods and nodes as no addresses of an ``ipBlock``, so that both are allowed by other rules as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace_api.model.lookups import EVERYWHERE, LookupsSpec
from millrace_api.model.streamquery import PARTITIONER, ROLE_LABEL

from .names import METRICS_PORT, SERVICE_PORT, Manifest, Owner
from .tenancy_policy import IdentityEndpoint

_ADDRESSES = (
    {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32"]},
    {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128", "fd00:ec2::23/128"]},
)
"""All addresses but those at which clouds serve metadata, which has credentials of the node."""

_IDENTITIES: Mapping[IdentityEndpoint, Manifest] = {
    IdentityEndpoint.EKS: {
        "to": [{"ipBlock": {"cidr": cidr}} for cidr in ("169.254.170.23/32", "fd00:ec2::23/128")],
        "ports": [{"port": 80, "protocol": "TCP"}],
    }
}
"""What admits a pod to the credentials of its own identity, by documents of the clouds."""

_API_SERVER = (443, 6443)
"""Usual ports of API servers, of the Service and on nodes."""

_REACHED: list[Manifest] = [
    # anywhere: caches of names on a node often have a link-local address
    {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]},
    {"to": [*({"ipBlock": block} for block in _ADDRESSES), {"namespaceSelector": {}}]},
]

_METRICS: Manifest = {"ports": [{"port": METRICS_PORT, "protocol": "TCP"}]}


def headless(selector: Mapping[str, str], *ports: Manifest) -> Manifest:
    """Return the spec of a headless Service, with the addresses of both IP families where the cluster has both."""
    return {
        "clusterIP": "None",
        "ipFamilyPolicy": "PreferDualStack",
        "selector": dict(selector),
        "ports": list(ports),
    }


def service_port(name: str, port: int, protocol: str) -> Manifest:
    """Return a port of a Service, which is that of the same name in the pods.

    A service mesh does not have to guess the protocol of its connections: ``http``, or ``tcp`` for anything else.
    """
    return {"name": name, "port": port, "targetPort": name, "appProtocol": protocol}


def job_network_policy(
    owner: Owner, identities: Iterable[IdentityEndpoint] = (), lookups: LookupsSpec | None = None
) -> Manifest:
    """Return the policy of driver and executors, which may get their identity in a cloud from these endpoints.

    They reach each other on all ports, and everyone reaches their metrics. Look-ups are open to the namespaces that the
    query names. Partitioner replicas have a policy of their own, since nothing but Kafka is between them and the job.
    """
    others = {"key": ROLE_LABEL, "operator": "NotIn", "values": [PARTITIONER]}
    selector = {"matchLabels": owner.selector(), "matchExpressions": [others]}
    api_server = {"ports": [{"port": port, "protocol": "TCP"} for port in _API_SERVER]}
    spec = {
        "podSelector": selector,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": selector}]}, _METRICS, *([] if lookups is None else [_readers(lookups)])],
        "egress": [*_REACHED, api_server, *(_IDENTITIES[each] for each in identities)],
    }
    return owner.manifest("networking.k8s.io/v1", "NetworkPolicy", owner.driver, {"spec": spec})


def _readers(lookups: LookupsSpec) -> Manifest:
    """Return the rule that opens the port for look-ups, at which no executor listens."""
    rule: Manifest = {"ports": [{"port": SERVICE_PORT, "protocol": "TCP"}]}
    if EVERYWHERE in lookups.namespaces:
        return rule
    if not lookups.namespaces:
        return rule | {"from": [{"podSelector": {}}]}
    names = [{"matchLabels": {"kubernetes.io/metadata.name": name}} for name in lookups.namespaces]
    return rule | {"from": [{"namespaceSelector": name} for name in names]}


def partitioner_network_policy(owner: Owner, identities: Iterable[IdentityEndpoint] = ()) -> Manifest:
    """Return the policy of partitioner replicas, which admits nothing but requests for metrics and probes.

    They may get their identity in a cloud from these endpoints.
    """
    spec = {
        "podSelector": {"matchLabels": owner.selector(PARTITIONER)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [_METRICS],
        "egress": [*_REACHED, *(_IDENTITIES[each] for each in identities)],
    }
    return owner.manifest("networking.k8s.io/v1", "NetworkPolicy", owner.partitioner, {"spec": spec}, PARTITIONER)
