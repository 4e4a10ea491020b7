"""Values of a spec that decide about more than the pods that every query has, each with its field, for policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from millrace_api.model.externals import ExternalKind, externals, given
from millrace_api.model.kafka_options import uses_zone
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec
from millrace_api.validation.places import is_object, paths, table_uris

AWS = "https://s3.amazonaws.com"
"""The S3 of AWS, as a policy names it."""

FieldValues = Iterator[tuple[str, str]]
"""Fields of a query, each with a value."""

SecretsOf = Callable[[str], Collection[str]]
"""Returns the names of the Secrets that the Connection of this name has now."""

CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
"""Fields of a pod with containers."""


def pod_templates(spec: Spec) -> dict[str, Mapping[str, Any]]:
    """Return the pod templates of a query by their fields."""
    pods = {"driver": spec.driver, "executors": spec.executors, "partitioner.pod": spec.partitioner.pod}
    return {
        f"spec.{field}.podTemplate": pod.pod_template for field, pod in pods.items() if pod.pod_template is not None
    }


def entries(holder: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the entries of a list in a pod template that are mappings, each with its number."""
    found = holder.get(name)
    for number, entry in enumerate(found if isinstance(found, list) else ()):
        if isinstance(entry, Mapping):
            yield number, entry


def images(spec: Spec) -> FieldValues:
    """Yield all images but the operator's default one. Volumes of the type ``image`` are refused for every query."""
    if spec.image is not None:
        yield "spec.image", spec.image
    for field, template in pod_templates(spec).items():
        for kind in CONTAINERS:
            for number, container in entries(template.get("spec", {}), kind):
                if container.get("image") is not None:
                    yield f"{field}.spec.{kind}[{number}].image", str(container["image"])


def tables_without_places(spec: Spec) -> Iterator[str]:
    """Yield the field of each table whose place only its catalog knows."""
    return (each.field for each in externals(spec, "spec", ExternalKind.TABLES) if each.value is None)


def s3_endpoints(spec: Spec) -> FieldValues:
    """Yield the URL of the S3 that the query uses, if it uses any; without one, it is that of AWS."""
    checkpoint = (spec.checkpoint and spec.checkpoint.uri) or ""
    code = (each.value for each in given(spec, "spec", ExternalKind.CODE))
    if spec.s3 is not None and spec.s3.endpoint is not None:
        yield "spec.s3.endpoint", spec.s3.endpoint
    elif any(tables_without_places(spec)) or any(
        map(is_object, (checkpoint, *(place for _, place in (*paths(spec), *table_uris(spec))), *code))
    ):
        yield "spec.s3.endpoint", AWS


def has_identity_in_cloud(sources: Mapping[str, SourceSpec]) -> bool:
    """Return whether any of these sources logs in with the identity that its pods have in a cloud."""
    return any(any(given(source, "spec", ExternalKind.IDENTITIES)) for source in sources.values())


def names_zone(spec: Spec) -> bool:
    """Return whether a client names the zone of the pod's node."""
    return any(uses_zone(each.value) for each in given(spec, "spec", ExternalKind.CLIENT_OPTIONS))


def readers(spec: Spec) -> FieldValues:
    """Yield the namespaces from which rows can be looked up; without any, only the query's own is one."""
    for number, name in enumerate(() if spec.lookups is None else spec.lookups.namespaces):
        yield f"spec.lookups.namespaces[{number}]", name


def lineage_namespaces(spec: Spec) -> FieldValues:
    """Yield the namespace that lineage names for the job, if it does."""
    if spec.lineage is not None and spec.lineage.namespace is not None:
        yield "spec.lineage.namespace", spec.lineage.namespace


def secrets(spec: Spec, *, of_connections: bool, secrets_of: SecretsOf | None = None) -> FieldValues:
    """Yield the names of Secrets that logins and pod templates read, and with ``of_connections`` those of Connections.

    Names of Secrets with which a node pulls images are no such: no container reads them. With ``secrets_of``, the spec
    was not resolved just now: of the Secrets beside the name of a Connection, only those that it has now are its own.
    """
    names = {f"{each.field.rsplit('.', 2)[0]}.": each.value for each in given(spec, "spec", ExternalKind.CONNECTIONS)}
    for each in given(spec, "spec", ExternalKind.SECRETS):
        name = next((name for at, name in names.items() if each.field.startswith(at)), None)
        is_of_connection = name is not None and (secrets_of is None or each.value in secrets_of(name))
        if of_connections or not is_of_connection:
            yield each.field, each.value
    for field, template in pod_templates(spec).items():
        yield from _secrets_in(template.get("spec"), f"{field}.spec")


def _secrets_in(value: Any, field: str) -> FieldValues:
    """Yield the names of Secrets in a part of a pod template: of volumes of all types, and of variables."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _secrets_in(entry, f"{field}[{number}]")
    for name, below in value.items() if isinstance(value, Mapping) else ():
        at = f"{field}.{name}"
        if name == "secretName" and isinstance(below, str):
            yield at, below
        is_reference = name == "secret" or name.lower().endswith(("secretref", "secretkeyref"))
        if is_reference and isinstance(below, Mapping) and isinstance(below.get("name"), str):
            yield f"{at}.name", below["name"]
        yield from _secrets_in(below, at)
