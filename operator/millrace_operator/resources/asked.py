"""What a query asks for beyond the pods that every query has, each value with its field: for a policy to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millrace_api.model.base import Model
from millrace_api.model.databases import DatabaseServerSpec
from millrace_api.model.iceberg import IcebergTableSpec
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.kafka_options import uses_zone
from millrace_api.model.registries import Avro, Protobuf, ResultSchemas
from millrace_api.model.secrets import SecretValue
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec
from millrace_api.validation.places import is_object, paths, table_uris

AWS = "https://s3.amazonaws.com"
"""The S3 of AWS, as a policy names it."""

Asked = Iterator[tuple[str, str]]
"""Fields of a query, each with a value."""

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


def images(spec: Spec) -> Asked:
    """Yield all images but the operator's default one. Volumes of the type ``image`` are refused for every query."""
    if spec.image is not None:
        yield "spec.image", spec.image
    for field, template in pod_templates(spec).items():
        for kind in CONTAINERS:
            for number, container in entries(template.get("spec", {}), kind):
                if container.get("image") is not None:
                    yield f"{field}.spec.{kind}[{number}].image", str(container["image"])


def brokers(spec: Spec) -> Asked:
    """Yield the addresses of all Kafka brokers."""
    for field, kafka in _connections(spec):
        for address in kafka.bootstrap_servers.split(","):
            if address.strip():
                yield f"{field}.bootstrapServers", address


def databases(spec: Spec, kind: type[DatabaseServerSpec]) -> Asked:
    """Yield the addresses of all database servers of a kind."""
    for field, database in _databases(spec):
        for server in database.host.split(",") if isinstance(database, kind) else ():
            yield f"{field}.host", server


def catalogs(spec: Spec) -> Asked:
    """Yield the URLs of all catalogs of tables, and of those that give out their tokens."""
    for field, iceberg in _iceberg(spec):
        rest = iceberg.catalog.rest
        if rest is not None:
            yield f"{field}.catalog.rest.uri", rest.uri
            if rest.token_uri is not None:
                yield f"{field}.catalog.rest.tokenUri", rest.token_uri


def tables_without_places(spec: Spec) -> Iterator[str]:
    """Yield the field of each table whose place only its catalog knows."""
    for field, iceberg in _iceberg(spec):
        if iceberg.location is None:
            yield f"{field}.location"


def s3_endpoints(spec: Spec) -> Asked:
    """Yield the URL of the S3 that the query uses, if it uses any; without one, it is that of AWS."""
    checkpoint = (spec.checkpoint and spec.checkpoint.uri) or ""
    if spec.s3 is not None and spec.s3.endpoint is not None:
        yield "spec.s3.endpoint", spec.s3.endpoint
    elif any(tables_without_places(spec)) or any(
        map(is_object, (checkpoint, *(place for _, place in (*paths(spec), *table_uris(spec)))))
    ):
        yield "spec.s3.endpoint", AWS


def token_endpoints(spec: Spec) -> Asked:
    """Yield the URLs that tokens for logins to Kafka come from."""
    for field, kafka in _connections(spec):
        if kafka.sasl is not None and kafka.sasl.oidc is not None:
            yield f"{field}.sasl.oidc.tokenEndpoint", kafka.sasl.oidc.token_endpoint


def role_arns(spec: Spec) -> Asked:
    """Yield the roles in AWS that logins to Kafka assume."""
    for field, kafka in _connections(spec):
        login = kafka.sasl.aws_msk_iam if kafka.sasl is not None else None
        if login is not None and login.role_arn is not None:
            yield f"{field}.sasl.awsMskIam.roleArn", login.role_arn


def has_identity_in_aws(sources: Mapping[str, SourceSpec]) -> bool:
    """Return whether any of these sources logs in to Kafka with the identity that its pods have in AWS."""
    logins = (source.kafka.sasl for source in sources.values() if source.kafka is not None)
    return any(sasl is not None and sasl.aws_msk_iam is not None for sasl in logins)


def names_zone(spec: Spec) -> bool:
    """Return whether a connection to Kafka names the zone of the pod's node."""
    return any(uses_zone(kafka.options) for _, kafka in _connections(spec))


def readers(spec: Spec) -> Asked:
    """Yield the namespaces from which rows can be looked up; without any, only the query's own is one."""
    for number, name in enumerate(() if spec.lookups is None else spec.lookups.namespaces):
        yield f"spec.lookups.namespaces[{number}]", name


def schema_registries(spec: Spec) -> Asked:
    """Yield the URLs of all schema registries."""
    for field, schemas in _registered(spec):
        if schemas.registry is not None:
            yield f"{field}.registry", schemas.registry


def lineage_receivers(spec: Spec) -> Asked:
    """Yield the URL that lineage is sent to."""
    if spec.lineage is not None and spec.lineage.http is not None:
        yield "spec.lineage.http.url", spec.lineage.http.url


def lineage_namespaces(spec: Spec) -> Asked:
    """Yield the namespace that lineage names for the job, if it does."""
    if spec.lineage is not None and spec.lineage.namespace is not None:
        yield "spec.lineage.namespace", spec.lineage.namespace


def login_files(spec: Spec) -> Asked:
    """Yield the paths of files that logins and certificates are read from."""
    for field, kafka in _connections(spec):
        yield from _secret_files(f"{field}.tls", kafka.tls)
        yield from _secret_files(f"{field}.sasl", kafka.sasl)
        yield from _secret_files(f"{field}.sasl.oidc", kafka.sasl and kafka.sasl.oidc)
    for field, database in _databases(spec):
        yield from _secret_files(field, database)
        yield from _secret_files(f"{field}.tls", database.tls)
    for field, iceberg in _iceberg(spec):
        yield from _secret_files(f"{field}.catalog.rest", iceberg.catalog.rest)
    yield from _secret_files("spec.s3", spec.s3)
    yield from _secret_files("spec.lineage.http", spec.lineage and spec.lineage.http)
    if spec.lookups is not None:
        yield from _secret_files("spec.lookups", spec.lookups)
        yield from _secret_files("spec.lookups.tls", spec.lookups.tls)
    for field, schemas in _registered(spec):
        if schemas.login is not None:
            yield from _secret_files(f"{field}.login", schemas.login)
            yield from _secret_files(f"{field}.login.tls", schemas.login.tls)


def _secret_files(field: str, part: Model | None) -> Asked:
    fields = {} if part is None else type(part).model_fields
    for name, declared in fields.items():
        value = getattr(part, name)
        if isinstance(value, SecretValue) and value.file is not None:
            yield f"{field}.{declared.serialization_alias}.file", value.file


def _connections(spec: Spec) -> Iterator[tuple[str, KafkaConnection]]:
    for name, source in spec.sources.items():
        if source.kafka is not None:
            yield f"spec.sources.{name}.kafka", source.kafka
    for field, output in spec.outputs.items():
        sink = output.sink
        if (kafka := sink.kafka or sink.table) is not None:
            yield f"{field}.sink.{sink.kind}", kafka


def _registered(spec: Spec) -> Iterator[tuple[str, Avro | Protobuf | ResultSchemas]]:
    """Yield what names a schema registry, if it does, and the login to it."""
    for name, source in spec.sources.items():
        if source.avro is not None:
            yield f"spec.sources.{name}.avro", source.avro
        if source.protobuf is not None:
            yield f"spec.sources.{name}.protobuf", source.protobuf
    for field, output in spec.outputs.items():
        if output.sink.kafka is not None and output.sink.kafka.schemas is not None:
            yield f"{field}.sink.kafka.schemas", output.sink.kafka.schemas


def _databases(spec: Spec) -> Iterator[tuple[str, DatabaseServerSpec]]:
    for name, source in spec.sources.items():
        database = source.postgres or source.mysql
        if database is not None:
            yield f"spec.sources.{name}.{source.kind}", database
    for field, output in spec.outputs.items():
        if output.sink.database is not None:
            yield f"{field}.sink.{output.sink.kind}", output.sink.database
    for field, iceberg in _iceberg(spec):
        if iceberg.catalog.postgres is not None:
            yield f"{field}.catalog.postgres", iceberg.catalog.postgres


def _iceberg(spec: Spec) -> Iterator[tuple[str, IcebergTableSpec]]:
    for name, source in spec.sources.items():
        if source.iceberg is not None:
            yield f"spec.sources.{name}.iceberg", source.iceberg
    for field, output in spec.outputs.items():
        if output.sink.iceberg is not None:
            yield f"{field}.sink.iceberg", output.sink.iceberg
