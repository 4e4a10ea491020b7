"""Connection: brokers and the login to them, named once and referred to by queries of the same namespace."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.kafka_options import KNOWN_OPTIONS
from millrace_api.model.metadata import ObjectMeta
from millrace_api.model.registries import SchemaRegistrySpec
from millrace_api.model.values import ConnectionName

CONNECTION_KIND = "Connection"


class ConnectionMeta(ObjectMeta):
    """Kubernetes' own metadata of a Connection."""

    name: ConnectionName = Field(description="Name of the Connection.", examples=["trips"])


class KafkaConnectionSpec(KafkaConnection):
    """A Kafka cluster, the login to it, and the schema registry of its messages."""

    rules: ClassVar[tuple[Rule, ...]] = (KNOWN_OPTIONS,)

    bootstrap_servers: Annotated[
        str, Field(min_length=1, max_length=4096), External(ExternalKind.BROKERS, port=9092)
    ] = Field(
        description="Brokers to start from, host:port, separated by commas; clients learn of the others from them.",
        examples=["kafka:9092"],
    )
    registry: SchemaRegistrySpec | None = Field(
        default=None, description="Schema registry of the messages; default: none."
    )


class ConnectionSpec(Model):
    """What a connection leads to. Kafka is the only kind; others become fields beside it."""

    kafka: KafkaConnectionSpec = Field(
        description="A Kafka cluster.", examples=["{bootstrapServers: 'kafka:9092', tls: {}}"]
    )


class NamedConnection(Model):
    """Brokers and the login to them, which the queries of the namespace refer to by name."""

    api_version: Literal["millrace.io/v1alpha1"] = Field(
        description="Version of the API.", examples=["millrace.io/v1alpha1"]
    )
    kind: Literal["Connection"] = Field(description="Kind of the object.", examples=["Connection"])
    metadata: ConnectionMeta = Field(description="Name and labels.", examples=["{name: trips}"])
    spec: ConnectionSpec = Field(description="What it leads to.", examples=["{kafka: {bootstrapServers: kafka:9092}}"])

    @property
    def name(self) -> str:
        """The name that queries refer to."""
        return self.metadata.name
