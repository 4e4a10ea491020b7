"""All objects of a query, in the order in which they are applied.

``lifecycle.step`` compares them with those that were observed, and ``lifecycle.objects.applying`` applies what is
missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from millrace_api.crd import GROUP, PLURAL
from millrace_api.model.confinement import CONFINEMENT_FILE, Confinement
from millrace_api.model.plan import PLAN_KEY, Plan
from millrace_api.model.streamquery import DRIVER, EXECUTOR, StreamQuery
from millrace_api.validation.connections import reference_names, without_references

from .auth import with_auth
from .configuration import configuration, with_configuration
from .driver_config import executor_secrets, mounted_query, spark_defaults
from .gangs import pod_groups, with_gang
from .names import BLOCK_PORT, METRICS_PORT, RPC_PORT, SERVICE_PORT, Manifest, Owner
from .network import headless, job_network_policy, service_port
from .partitioner import Partitioners, partitioner_objects
from .pod_defaults import PodDefaults
from .pods import driver_pod, executor_pod
from .spec_changes import REVISION, placement_subject, revision
from .tenancy_policy import IdentityEndpoint

PLAN_SETTINGS = "millrace.io/asked"
"""Annotation of the plan's ConfigMap: the result of ``plan_settings`` for the spec that the plan follows."""


REFERENCES = "millrace.io/connections"
"""Annotation of the last healthy spec: the names of Connections that it was resolved from, by their fields, as JSON."""

AUTO_FOR = "autoFor"
"""Setting beside those of a plan, with placement Auto: what the placement is decided for."""


_SMALL, _MEDIUM = 4 << 10, 16 << 10
"""Bytes of JSON up to which the YAML of a document is kept for the next steps: of many documents, and of some.

Most documents have two thousand.
"""


class _ManifestDumper(yaml.CSafeDumper):
    """YAML dumper without anchors and with ``|`` for multi-line text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ManifestDumper.add_representer(str, _text)


def objects(
    query: StreamQuery,
    owner: Owner,
    plan: Plan,
    defaults: PodDefaults,
    *,
    running: bool,
    auth: str,
    partitioners: Partitioners | None = None,
    confinement: Confinement | None = None,
    available: int | None = None,
    identities: Iterable[IdentityEndpoint] = (),
) -> list[Manifest]:
    """Return the desired objects of a query under this plan; the driver last, because it needs all the others.

    The same input gives the same objects, so applying them again changes nothing. ``running`` is whether the driver
    should run now. ``auth`` is the name of the Secret that driver and executors share. ``partitioners`` are the
    replicas in pods of their own; with None, there are no objects for them. ``confinement`` is what the driver has to
    enforce. ``available`` is the number of executors that run where no more can; None where those of the plan can.
    ``identities`` is where driver and executors may get their identity in a cloud.
    """
    document, secrets = mounted_query(query)
    executor = with_auth(executor_pod(query, owner, defaults, executor_secrets(query)), EXECUTOR, auth)
    files = {
        "query.yaml": to_yaml(document),
        "spark-defaults.conf": spark_defaults(query, owner, defaults, executor),
        "executor-pod.yaml": to_yaml(executor),
    }
    if confinement is not None:
        files[CONFINEMENT_FILE] = confinement.to_json()
    config_map = configuration(owner, files)
    mounted = config_map["metadata"]["name"]
    pod = with_gang(driver_pod(query, owner, defaults, secrets), query, owner, defaults)
    driver = with_auth(with_configuration(pod, DRIVER, mounted), DRIVER, auth)
    account = [] if query.spec.service_account_name else [owner.manifest("v1", "ServiceAccount", owner.driver, {})]
    return [
        *account,
        _role(owner, mounted),
        _role_binding(owner, query.spec.service_account_name or owner.driver),
        config_map,
        _plan(query, owner, plan),
        _service(query, owner),
        job_network_policy(owner, identities, query.spec.lookups),
        _disruption_budget(owner, plan.executors if available is None else min(plan.executors, available)),
        *pod_groups(pod, query, owner, defaults, running=running),
        *(
            []
            if partitioners is None
            else partitioner_objects(query, owner, partitioners, mounted, defaults, identities)
        ),
        _stateful_set(owner, driver, running=running),
    ]


def healthy_spec(query: StreamQuery, owner: Owner) -> Manifest:
    """Return the ConfigMap with the spec to roll back to if a later one does not become healthy.

    The spec is as drivers read it, so that an operator of an earlier version reads it, too. The names of its
    Connections are beside it: messages and policies refer to them.
    """
    document = query.spec.to_short_document()
    data = {"spec.json": to_json(without_references(document))}
    config_map = owner.manifest("v1", "ConfigMap", owner.healthy, {"data": data})
    names = reference_names(document)
    config_map["metadata"]["annotations"] = {
        REVISION: revision(query.spec),
        **({REFERENCES: to_json(names)} if names else {}),
    }
    return config_map


def plan_settings(query: StreamQuery) -> str:
    """Return the plan settings that the spec asks for, as JSON; a later change of them changes the plan."""
    wanted = Plan.initial(query.spec).to_document()
    if (subject := placement_subject(query.spec)) is not None:
        wanted[AUTO_FOR] = subject
    return to_json({name: value for name, value in wanted.items() if name != "epoch"})


def _plan(query: StreamQuery, owner: Owner, plan: Plan) -> Manifest:
    document = plan.to_short_document() | {"executors": plan.executors}  # people read it, too
    config_map = owner.manifest("v1", "ConfigMap", owner.plan, {"data": {PLAN_KEY: to_json(document)}})
    config_map["metadata"]["annotations"] = {PLAN_SETTINGS: plan_settings(query)}
    return config_map


def with_plan_entry(desired: Iterable[Manifest], owner: Owner, key: str, text: str) -> list[Manifest]:
    """Return the desired objects, of which the plan's ConfigMap has another entry."""
    at = "ConfigMap", owner.plan
    return [
        each | {"data": each["data"] | {key: text}} if (each["kind"], each["metadata"]["name"]) == at else each
        for each in desired
    ]


def _role(owner: Owner, configuration: str) -> Manifest:
    """Return the driver's Role: manage pods, which RBAC cannot restrict by label, and read and patch its plan.

    It may also read the configuration of the version to run, which it does not mount if that version takes over in it.
    By the verb ``drive``, the chart's admission policy knows the accounts of drivers.
    """
    pods = ["create", "get", "list", "watch", "patch", "delete", "deletecollection"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": pods},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [owner.plan],
            "verbs": ["get", "watch", "patch"],
        },
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [configuration], "verbs": ["get"]},
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["drive"]},
    ]
    return owner.manifest("rbac.authorization.k8s.io/v1", "Role", owner.driver, {"rules": rules})


def _role_binding(owner: Owner, account: str) -> Manifest:
    group = "rbac.authorization.k8s.io"
    parts = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": owner.driver},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": owner.namespace}],
    }
    return owner.manifest(f"{group}/v1", "RoleBinding", owner.driver, parts)


def _service(query: StreamQuery, owner: Owner) -> Manifest:
    """Return a headless Service by which executors and readers find the driver even before it is ready."""
    opened = query.spec.lookups
    scheme = "https" if opened is not None and opened.tls is not None else "http"
    lookups = [] if opened is None else [service_port("lookups", SERVICE_PORT, scheme)]
    spec = headless(
        owner.selector(DRIVER),
        service_port("driver-rpc", RPC_PORT, "tcp"),
        service_port("blocks", BLOCK_PORT, "tcp"),
        service_port("metrics", METRICS_PORT, "http"),
        *lookups,
    )
    spec["publishNotReadyAddresses"] = True
    return owner.manifest("v1", "Service", owner.driver, {"spec": spec}, DRIVER)


def _disruption_budget(owner: Owner, executors: int) -> Manifest:
    """Allow one evicted executor of so many at a time.

    One that is not ready may always go, so that it never blocks a drain. The driver has no budget, or draining its node
    would never end.
    """
    spec = {
        "minAvailable": max(executors - 1, 0),
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": owner.selector(EXECUTOR)},
    }
    return owner.manifest("policy/v1", "PodDisruptionBudget", owner.executors, {"spec": spec}, EXECUTOR)


def _stateful_set(owner: Owner, template: Manifest, *, running: bool) -> Manifest:
    """Return a StatefulSet, which never runs two drivers: it waits until the old pod is known to be gone.

    The operator drains and replaces the pod; a change of the template alone does not.
    """
    spec = {
        "replicas": int(running),
        "serviceName": owner.driver,
        "selector": {"matchLabels": owner.selector(DRIVER)},
        "updateStrategy": {"type": "OnDelete"},
        "template": template,
    }
    return owner.manifest("apps/v1", "StatefulSet", owner.driver, {"spec": spec}, DRIVER)


def to_yaml(*documents: Any) -> str:
    """Format documents as YAML, with fields in their given order."""
    text = msgspec.json.encode(documents)
    if len(text) > _MEDIUM:
        return _yaml_of(text)
    return _small(text) if len(text) <= _SMALL else _medium(text)


def _yaml_of(documents: bytes) -> str:
    """Format a list of documents in JSON as YAML, which takes a millisecond; most steps of a query need the same."""
    return yaml.dump_all(msgspec.json.decode(documents), Dumper=_ManifestDumper, sort_keys=False, width=120)


_small = lru_cache(maxsize=2048)(_yaml_of)  # two for each of a thousand queries; 30 MB at most, and 7 as a rule
_medium = lru_cache(maxsize=128)(_yaml_of)


def to_json(value: Any) -> str:
    """Format a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"))
