"""Restrictions on queries: reserved Spark settings, the restricted pod security level, and cluster requirements.

Anyone who may create a StreamQuery in a namespace can write one, and an operator with more rights turns it into pods.
So a query must not allow more than its author could do with pods of the restricted level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from millrace_api.errors import Problem, quote
from millrace_api.model.deployment import CheckpointSpec
from millrace_api.model.streamquery import StreamQuery

from .bandwidth import wrong_bandwidths

_OURS = (
    "spark.app.id",
    "spark.authenticate",
    "spark.blockManager.port",
    "spark.decommission.",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.cores",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.driver.port",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.io.encryption.",
    "spark.kubernetes.",
    "spark.local.dir",
    "spark.master",
    "spark.memory.offHeap.",
    "spark.network.crypto.",
    "spark.plugins",
    "spark.ssl.",
    "spark.storage.decommission.",
    "spark.submit.",
)
"""Reserved Spark settings, or prefixes of them, by which a query could bypass its spec."""

_SIZES = {
    "spark.driver.cores": "spec.driver.cores",
    "spark.driver.memory": "spec.driver.memory",
    "spark.executor.cores": "spec.executors.cores",
    "spark.executor.instances": "spec.executors.initial",
    "spark.executor.memory": "spec.executors.memory",
    "spark.memory.offHeap.": "spec.executors.memory",
}
"""Fields to write instead of some of these settings, by setting or prefix."""

_SETTING = re.compile(r"[A-Za-z0-9._-]+")
"""Valid setting names; blanks or escapes could smuggle other settings into a properties file."""

_SECRET = re.compile(r"secret|password|token|access[.]?key|account[.]key", re.IGNORECASE)
"""Names of settings that are secrets; but for the last one, Spark hides the same (``spark.redaction.regex``)."""

_PREFIX = "millrace.io/"
"""Prefix of the labels by which the operator knows a query's pods, and of its annotations."""

_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""Volume types that the restricted level allows."""

_POD_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "serviceAccount", "serviceAccountName", "nodeName")
_HINT = "leave it out: pods run at Kubernetes' restricted security level, under their own service account"


def problems(query: StreamQuery) -> list[Problem]:
    """Return all forbidden or missing parts of a query on a cluster, each with its field."""
    found = [*_checkpoint_problems(query.spec.checkpoint)]
    found += [
        Problem(f'"{name}" is set by Millrace itself', _instead(name), field=f"spec.sparkConf[{name}]")
        for name in query.spec.spark_conf
        if name.startswith(_OURS)
    ]
    found += [
        Problem(
            f"{name!r} is not the name of a setting", "write letters, digits, '.', '-' and '_'", field="spec.sparkConf"
        )
        for name in query.spec.spark_conf
        if not _SETTING.fullmatch(name)
    ]
    found += [
        Problem(
            f'"{name}" is a secret, which everyone who may read ConfigMaps would see',
            "mount a Secret by driver.podTemplate and executors.podTemplate, or let the service account log in",
            field=f"spec.sparkConf[{name}]",
        )
        for name in query.spec.spark_conf
        if _SECRET.search(name) and not name.startswith(_OURS)
    ]
    spec = query.spec
    pods = {"driver": spec.driver, "executors": spec.executors, "partitioner.pod": spec.partitioner.pod}
    for field, pod in pods.items():
        if pod.pod_template is not None:
            found += _template_problems(f"spec.{field}.podTemplate", pod.pod_template)
    return found


def _checkpoint_problems(checkpoint: CheckpointSpec | None) -> Iterator[Problem]:
    """Yield problems of the checkpoint, which must be on storage that the driver and all executors share."""
    hint = "write checkpoint: {claim: NAME}, a PersistentVolumeClaim that driver and executors can mount"
    if checkpoint is None:
        yield Problem("a query on a cluster needs a checkpoint", hint, field="spec.checkpoint")
    elif checkpoint.uri is not None and not checkpoint.uri.startswith("file:"):
        message = f'a checkpoint at "{checkpoint.uri}" is not supported on a cluster'
        yield Problem(message, hint, field="spec.checkpoint.uri")


def _instead(name: str) -> str:
    for prefix, field in _SIZES.items():
        if name.startswith(prefix):
            return f"write {field}"
    return "leave it out"


def _template_problems(field: str, template: Mapping[str, Any]) -> Iterator[Problem]:
    unknown = sorted(set(template) - {"metadata", "spec"})
    if unknown:
        hint = "leave it out, or write it below spec if it is a field of the pod"
        yield Problem(f'a pod template has metadata and spec, not "{unknown[0]}"', hint, field=field)
    for place, message, hint in _malformed(template):
        yield Problem(message, hint, field=f"{field}.{place}")
    metadata = template.get("metadata")
    for part in ("labels", "annotations"):
        names = metadata.get(part) if isinstance(metadata, Mapping) else None
        for name in names if isinstance(names, Mapping) else ():
            if str(name).startswith(_PREFIX):
                hint = "leave it out, or write it without that prefix"
                yield Problem(f'"{name}" is the operator\'s own', hint, field=f"{field}.metadata.{part}")
    spec = template.get("spec")
    for place, value in _forbidden(spec if isinstance(spec, Mapping) else {}):
        yield Problem(f"may not be {_shown(value)}", _HINT, field=f"{field}.spec.{place}")


def _malformed(template: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield places in a pod template whose values have the wrong type, each with a message and a hint.

    The operator itself reads or extends these values, so the API server cannot be left to reject them. A null would
    remove what the operator sets there.
    """
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    yield from _not_a_mapping("metadata", metadata)
    if isinstance(metadata, Mapping):
        yield from _not_a_mapping("metadata.labels", metadata.get("labels", {}))
        yield from _not_a_mapping("metadata.annotations", metadata.get("annotations"), nullable=True)
        yield from wrong_bandwidths(template)
    yield from _not_a_mapping("spec", spec)
    if not isinstance(spec, Mapping):
        return
    yield from _not_a_mapping("spec.securityContext", spec.get("securityContext"), nullable=True)
    for kind, entries in (("containers", spec.get("containers", [])), ("initContainers", spec.get("initContainers"))):
        if not isinstance(entries, list) and (entries is not None or kind == "containers"):
            yield f"spec.{kind}", f"{_quoted(entries)} is not a list", "write a list of containers, each with its name"
        for number, container in enumerate(entries if isinstance(entries, list) else ()):
            yield from _malformed_container(f"spec.{kind}[{number}]", container)


def _malformed_container(at: str, container: object) -> Iterator[tuple[str, str, str]]:
    yield from _not_a_mapping(at, container)
    if isinstance(container, Mapping):
        resources = container.get("resources")
        yield from _not_a_mapping(f"{at}.securityContext", container.get("securityContext"), nullable=True)
        yield from _not_a_mapping(f"{at}.resources", resources, nullable=True)
        if isinstance(resources, Mapping):
            for name in ("limits", "requests"):
                yield from _not_a_mapping(f"{at}.resources.{name}", resources.get(name), nullable=True)


def _not_a_mapping(place: str, value: object, *, nullable: bool = False) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, Mapping) and not (nullable and value is None):
        yield place, f"{_quoted(value)} is not a mapping", "write its fields below it, or leave it out"


def _quoted(value: object) -> str:
    return "null" if value is None else quote(value)


def _forbidden(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield places in a pod's spec, with values, that the restricted level or the fixed service account forbids."""
    for name in _POD_FIELDS:
        if spec.get(name):
            yield name, spec[name]
    if spec.get("automountServiceAccountToken") is not None:
        yield "automountServiceAccountToken", spec["automountServiceAccountToken"]
    yield from _forbidden_context("securityContext", spec.get("securityContext"))
    for number, volume in _entries(spec, "volumes"):
        for kind in sorted(set(volume) - {"name"} - _VOLUMES):
            yield f"volumes[{number}].{kind}", volume[kind]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for number, container in _entries(spec, kind):
            at = f"{kind}[{number}]"
            yield from _forbidden_context(f"{at}.securityContext", container.get("securityContext"))
            for index, port in _entries(container, "ports"):
                if port.get("hostPort"):
                    yield f"{at}.ports[{index}].hostPort", port["hostPort"]


def _forbidden_context(at: str, context: object) -> Iterator[tuple[str, Any]]:
    if not isinstance(context, Mapping):
        return
    for name in ("privileged", "allowPrivilegeEscalation"):
        if context.get(name):
            yield f"{at}.{name}", context[name]
    if context.get("runAsNonRoot") is False:
        yield f"{at}.runAsNonRoot", False
    if context.get("runAsUser") == 0:
        yield f"{at}.runAsUser", 0
    for name in ("procMount", "seLinuxOptions", "windowsOptions", "sysctls"):
        if context.get(name):
            yield f"{at}.{name}", context[name]
    for name in ("seccompProfile", "appArmorProfile"):
        profile = context.get(name)
        if isinstance(profile, Mapping) and profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{at}.{name}.type", profile.get("type")
    capabilities = context.get("capabilities")
    if isinstance(capabilities, Mapping):
        for capability in capabilities.get("add") or ():
            if capability != "NET_BIND_SERVICE":
                yield f"{at}.capabilities.add", capability
        if "drop" in capabilities and "ALL" not in (capabilities["drop"] or ()):
            yield f"{at}.capabilities.drop", capabilities["drop"]


def _entries(holder: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    entries = holder.get(name)
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping):
            yield number, entry


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool | int) else "set"
