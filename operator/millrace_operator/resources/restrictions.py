"""Restrictions on queries: reserved Spark settings, the restricted pod security level, and cluster requirements.

Anyone who may create a StreamQuery in a namespace can write one, and an operator with more rights turns it into pods.
So a query must not allow more than its author could do with pods of the restricted level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from millrace_api.errors import Problem, quote
from millrace_api.model.code import CONFIG_MAPS
from millrace_api.model.externals import ExternalKind, given
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.places import paths

from .bandwidth import wrong_bandwidths
from .checkpoint_volume import checkpoint_problems
from .confinement import checkpoint_overlaps
from .driver_config import AUTH_FILE, CODE_VOLUME
from .pod_labels import PREFIX, label_problems, reserved_label
from .spec_values import CONTAINERS, entries, pod_templates
from .template_schema import schema_problems

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
    "spark.executor.minMemoryOverhead",
    "spark.executor.pyspark.memory",
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
    "spark.unsafe.offHeap",
    "spark.yarn.",
)
"""Reserved Spark settings, or prefixes of them, by which a query could bypass its spec.

The last two are earlier names of others, which Spark still reads (``SparkConf.allAlternatives``). A plugin runs in the
driver before Spark's scheduler has read its settings, and could change reserved ones. Other settings that load code,
such as ``spark.extraListeners``, ``spark.sql.extensions``, ``spark.sql.queryExecutionListeners`` or a class path, are
allowed: a query runs code of its user's anyway, and that code may do no more by coming that way. Code from elsewhere
than the image is refused where a policy restricts images, see ``permissions.py``.
"""

_SIZES = {
    "spark.driver.cores": "spec.driver.cores",
    "spark.driver.memory": "spec.driver.memory",
    "spark.executor.cores": "spec.executors.cores",
    "spark.executor.instances": "spec.executors.initial",
    "spark.executor.memory": "spec.executors.memory",
    "spark.executor.minMemoryOverhead": "spec.executors.memory",
    "spark.executor.pyspark.memory": "spec.executors.memory",
    "spark.memory.offHeap.": "spec.executors.memory",
    "spark.unsafe.offHeap": "spec.executors.memory",
    "spark.yarn.driver.memoryOverhead": "spec.driver.memory",
    "spark.yarn.executor.memoryOverhead": "spec.executors.memory",
}
"""Fields to write instead of some of these settings, by setting or prefix."""

_RESERVED = tuple(name.lower() for name in _OURS)
"""The reserved names in lower case, so that no spelling of them is taken for another setting."""

_SETTING = re.compile(r"[A-Za-z0-9._-]+")
"""Valid setting names; blanks or escapes could smuggle other settings into a properties file."""

_SECRET = re.compile(r"secret|passw|passphrase|token|(access|account|private|api)[._-]?key|sas[._-]?key", re.IGNORECASE)
"""Names of settings, environment variables and system properties that are secrets.

Spark hides fewer (``spark.redaction.regex``).
"""

_SECRET_WITHIN = re.compile(rf"({_SECRET.pattern})[\w.-]{{0,256}}+\s*+=\s*+[^\s,;]", re.IGNORECASE)
"""A secret within a value, such as ``-Dfs.s3a.secret.key=...``, or ``password="..."`` in a login.

A search takes time in proportion to the text, also where the name of a secret is repeated all the way.
"""

_LOGIN = re.compile(r"://[^/?#\s:]*+:[^/?#\s@]*+@")
"""A URI with a user and a password; no part is tried twice, so that long texts of colons do not take hours.

A user alone is no secret: ``abfss://container@account`` has a container there.
"""

_JAVA_OPTIONS = re.compile(r"spark[.](driver|executor)[.](extra|default)JavaOptions", re.IGNORECASE)
_LOGIN_HINT = "leave it out of the address, and log in by a Secret, such as that of sasl in a Connection"

_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""Volume types that the restricted level allows."""

_PROFILES = ("container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.", "seccomp.security.")
_PROFILE = "an annotation may not choose a security profile, which Kubernetes would take as it is"
"""What is said of annotations that older versions of Kubernetes had for security profiles."""

_POD_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "serviceAccount", "serviceAccountName", "nodeName")
_ALLOWED = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostUsers",
        "hostname",
        "imagePullSecrets",
        "initContainers",
        "nodeSelector",
        "os",
        "preemptionPolicy",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "securityContext",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""Fields of a pod that a template may have, beside those whose values are checked one by one."""

_ALLOWED_CONTEXT = frozenset(
    {
        "allowPrivilegeEscalation",
        "appArmorProfile",
        "capabilities",
        "fsGroup",
        "fsGroupChangePolicy",
        "privileged",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    }
)
"""Fields of a security context that a template may have."""

_MOUNT_HINT = "mount a Secret by driver.podTemplate and executors.podTemplate, or let the service account log in"
_HINT = "leave it out: pods run at Kubernetes' restricted security level, under their own service account"


def problems(query: StreamQuery) -> list[Problem]:
    """Return all forbidden or missing parts of a query on a cluster, each with its field."""
    conf = query.spec.spark_conf
    found = [problem for name, value in conf.items() for problem in _setting_problems(name, value)]
    if query.spec.service_account_name == "default":
        message = '"default" is the account of all pods that name none, which would get the rights of the driver'
        hint = "leave it out, or write another account"
        found.append(Problem(message, hint, field="spec.serviceAccountName"))
    named = given(query.spec, "spec", ExternalKind.BROKERS, ExternalKind.SCHEMA_REGISTRIES)
    for field, address in (*((each.field, each.value) for each in named), *paths(query.spec)):
        if _LOGIN.search(f"://{address.partition('://')[2] or address}"):
            message = "has a password in it, which everyone who may read ConfigMaps would see"
            found.append(Problem(message, _LOGIN_HINT, field=field))
    found += label_problems(query.spec)
    found += _code_problems(query)
    malformed = [
        problem
        for field, template in pod_templates(query.spec).items()
        for problem in _template_problems(field, template)
    ]
    if not malformed:
        found = [*checkpoint_problems(query), *checkpoint_overlaps(query), *found]
    return [*found, *malformed]


def _code_problems(query: StreamQuery) -> Iterator[Problem]:
    """Yield the own code that is beside the query's file, which no pod has."""
    for number, file in enumerate(query.spec.code or ()):
        if file.path is not None and not file.path.startswith("/"):
            message = f"{quote(file.place)} is relative to the query's file, and pods have only the query"
            hint = "write an s3a:// or https:// URI, or file:// and an absolute path in the image"
            yield Problem(message, hint, field=f"spec.code[{number}].uri")


def _setting_problems(name: str, value: str) -> Iterator[Problem]:
    """Yield what is wrong with a Spark setting; values are not repeated, since they may be secrets."""
    field = f"spec.sparkConf[{name}]"
    if not _SETTING.fullmatch(name):
        message, hint = f"{name!r} is not the name of a setting", "write letters, digits, '.', '-' and '_'"
        yield Problem(message, hint, field="spec.sparkConf")
    if name.lower().startswith(_RESERVED):
        yield Problem(f'"{name}" is set by Millrace itself', _instead(name), field=field)
    elif _SECRET.search(name):
        message = f'"{name}" is a secret, which everyone who may read ConfigMaps would see'
        yield Problem(message, _MOUNT_HINT, field=field)
    elif _SECRET_WITHIN.search(value) or _LOGIN.search(value):
        message = f'the value of "{name}" has a secret in it, which everyone who may read ConfigMaps would see'
        yield Problem(message, _MOUNT_HINT, field=field)
    elif _JAVA_OPTIONS.fullmatch(name) and "-Dspark." in re.sub(r"[\"'\\]", "", value):
        message = f'"{name}" has Spark settings in it, past the checks of spec.sparkConf'
        yield Problem(message, "write them as settings of their own", field=field)


def _instead(name: str) -> str:
    for prefix, field in _SIZES.items():
        if name.lower().startswith(prefix.lower()):
            return f"write {field}"
    return "leave it out"


def _template_problems(field: str, template: Mapping[str, Any]) -> Iterator[Problem]:
    unknown = sorted(set(template) - {"metadata", "spec"})
    if unknown:
        hint = "leave it out, or write it below spec if it is a field of the pod"
        yield Problem(f'a pod template has metadata and spec, not "{unknown[0]}"', hint, field=field)
    malformed = list(_malformed(template)) or list(schema_problems(template))
    for place, message, hint in malformed:
        yield Problem(message, hint, field=f"{field}.{place}")
    metadata = template.get("metadata")
    for part in ("labels", "annotations"):
        names = metadata.get(part) if isinstance(metadata, Mapping) else None
        for name in map(str, names if isinstance(names, Mapping) else ()):
            if part == "annotations" and name.startswith(_PROFILES):
                yield Problem(_PROFILE, "write securityContext.appArmorProfile", field=f"{field}.metadata.{part}")
            elif part == "labels" and (found := reserved_label(name)) is not None:
                yield Problem(*found, field=f"{field}.metadata.{part}")
            elif name.startswith(PREFIX):
                hint = "leave it out, or write it without that prefix"
                yield Problem(f'"{name}" is the operator\'s own', hint, field=f"{field}.metadata.{part}")
    spec = template.get("spec")
    for place, value in () if malformed else _forbidden(spec if isinstance(spec, Mapping) else {}):
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
    for kind, listed in (("containers", spec.get("containers", [])), ("initContainers", spec.get("initContainers"))):
        if not isinstance(listed, list) and (listed is not None or kind == "containers"):
            yield f"spec.{kind}", f"{_quoted(listed)} is not a list", "write a list of containers, each with its name"
        for number, container in enumerate(listed if isinstance(listed, list) else ()):
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
    for name in sorted(set(spec) - _ALLOWED - {*_POD_FIELDS, *CONTAINERS, "automountServiceAccountToken"}):
        if spec[name]:
            yield name, spec[name]
    yield from _forbidden_context("securityContext", spec.get("securityContext"))
    for number, volume in entries(spec, "volumes"):
        for kind in sorted(set(volume) - {"name"} - _VOLUMES):
            yield f"volumes[{number}].{kind}", volume[kind]
        if str(volume.get("name")).startswith(CODE_VOLUME):
            yield f"volumes[{number}].name", volume["name"]
    for kind in CONTAINERS:
        for number, container in entries(spec, kind):
            at = f"{kind}[{number}]"
            yield from _forbidden_context(f"{at}.securityContext", container.get("securityContext"))
            for index, port in entries(container, "ports"):
                if port.get("hostPort"):
                    yield f"{at}.ports[{index}].hostPort", port["hostPort"]
            for index, mount in entries(container, "volumeMounts"):
                if _covers_ours(str(mount.get("mountPath"))):
                    yield f"{at}.volumeMounts[{index}].mountPath", mount["mountPath"]
            for place, host in _asked_hosts(container):
                yield f"{at}.{place}.host", host


def _covers_ours(path: str) -> bool:
    """Return whether a mount would be in the place of the code, of the Secret by another spelling, or within them.

    One in the place of the Secret in the same spelling is replaced.
    """
    folder, place = PurePosixPath(AUTH_FILE).parent, PurePosixPath("/" + normpath(path).lstrip("/"))
    return place.is_relative_to(CONFIG_MAPS) or (path != str(folder) and place.is_relative_to(folder))


def _asked_hosts(container: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the hosts that the kubelet would ask from the node's network, for a probe or a hook, instead of the pod."""
    hooks = container.get("lifecycle")
    hooks = {f"lifecycle.{name}": hook for name, hook in hooks.items()} if isinstance(hooks, Mapping) else {}
    for name, handler in {**container, **hooks}.items():
        if isinstance(handler, Mapping) and (name.endswith("Probe") or name in hooks):
            for kind in ("httpGet", "tcpSocket"):
                action = handler.get(kind)
                if isinstance(action, Mapping) and action.get("host"):
                    yield f"{name}.{kind}", action["host"]


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
    for name in sorted(set(context) - _ALLOWED_CONTEXT):
        if context[name]:
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


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool | int) else "set"
