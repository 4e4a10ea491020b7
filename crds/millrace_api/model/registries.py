"""Schemas of messages that a schema registry or a descriptor set has, and the login to a registry."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Authored, Model, Rule
from millrace_api.model.changes import FREE, RECORDS
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.secrets import SecretValue, Tls
from millrace_api.model.values import Flag, Path, Text, text

MOST_DESCRIPTOR_TEXT = 256 << 10
"""Most characters of a descriptor set that is written into a spec."""

MessageName = Annotated[
    str,
    *text(
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        256,
        "the name of a Protobuf message",
        "write it with its package, such as shop.orders.Order",
    ),
]
DescriptorText = Annotated[
    str,
    *text(
        r"[A-Za-z0-9+/\n]+={0,2}\n?",
        MOST_DESCRIPTOR_TEXT,
        "a descriptor set in base64 of at most 256 KiB",
        "write what protoc --include_imports --descriptor_set_out=/dev/stdout ... | base64 -w0 prints, or give a "
        "larger one as descriptorFile",
    ),
]


class RegistryLogin(Model):
    """Login to a schema registry: a user and a password, a bearer token, or a client certificate."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "username and password belong together",
            "write both, or neither",
            ("username", "password"),
            "has(self.username) == has(self.password)",
            lambda login: (login.username is None) == (login.password is None),
        ),
        Rule(
            "username and token exclude one another",
            "keep the login that the registry asks for",
            ("username", "token"),
            "!has(self.username) || !has(self.token)",
            lambda login: login.username is None or login.token is None,
        ),
    )

    username: SecretValue | None = Field(default=None, description="User name, for HTTP basic authentication.")
    password: SecretValue | None = Field(default=None, description="Password.", examples=["{env: REGISTRY_PASSWORD}"])
    token: SecretValue | None = Field(default=None, description="Bearer token, read again for every request.")
    tls: Tls | None = Field(
        default=None, description="Certificate authority of the registry, and client certificate; needs an https URL."
    )


class SchemaRegistrySpec(Model):
    """A schema registry and the login to it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "login.tls needs a registry with TLS",
            "write url: https://..., or leave login.tls out",
            ("url",),
            "!has(self.login) || !has(self.login.tls) || self.url.startsWith('https://')",
            lambda registry: (
                registry.login is None or registry.login.tls is None or registry.url.startswith("https://")
            ),
        ),
    )

    url: Annotated[Text, External(ExternalKind.SCHEMA_REGISTRIES)] = Field(
        description="URL of the registry.", examples=["http://registry:8081"]
    )
    login: RegistryLogin | None = Field(default=None, description="Login to the registry; default: none.")


_LOGIN = "Login to the registry of the connection."


class Avro(Model):
    """How Avro messages are decoded; without writerSchema, by the registry of the connection."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "exactly one of writerSchema, registry is needed",
            "give the schema itself, or leave it out beside connection: NAME of a Connection with a registry",
            ("writer_schema", "registry"),
            None,
            lambda avro: (avro.writer_schema is None) != (avro.registry is None),
        ),
    )

    writer_schema: Annotated[Text | None, RECORDS] = Field(
        default=None,
        description="Avro schema as JSON; messages carry no framing. Default: those in the registry of the connection, "
        "whose framing messages carry.",
    )
    registry: Annotated[Text | None, External(ExternalKind.SCHEMA_REGISTRIES), FREE] = Field(
        default=None,
        description="URL of a schema registry; messages carry its framing.",
        json_schema_extra=Authored.NOTHING.keywords,
    )
    login: Annotated[RegistryLogin | None, FREE] = Field(
        default=None, description=_LOGIN, json_schema_extra=Authored.NOTHING.keywords
    )


_PLACES = ("descriptor_file", "descriptor_set", "registry")


class Protobuf(Model):
    """How Protobuf messages are decoded; without descriptors, by the registry of the connection."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "exactly one of descriptorFile, descriptorSet, registry is needed",
            "give the descriptors that protoc --descriptor_set_out writes, or leave them out beside connection: NAME "
            "of a Connection with a registry",
            _PLACES,
            "!has(self.descriptorFile) || !has(self.descriptorSet)",
            lambda protobuf: sum(getattr(protobuf, place) is not None for place in _PLACES) == 1,
        ),
        Rule(
            "message is missing",
            "write the name of the message with its package, such as message: shop.orders.Order",
            (),
            "has(self.message) || !(has(self.descriptorFile) || has(self.descriptorSet))",
            lambda protobuf: protobuf.message is not None or protobuf.registry is not None,
        ),
    )

    message: Annotated[MessageName | None, RECORDS] = Field(
        default=None,
        description="Full name of the message; by a registry: the only one that is read, default: the one that each "
        "message names.",
        examples=["shop.orders.Order"],
    )
    descriptor_file: Annotated[Path | None, External(ExternalKind.FILES), RECORDS] = Field(
        default=None, description="File with a FileDescriptorSet; messages carry no framing."
    )
    descriptor_set: Annotated[DescriptorText | None, RECORDS] = Field(
        default=None, description="A FileDescriptorSet in base64, up to 256 KiB; messages carry no framing."
    )
    registry: Annotated[Text | None, External(ExternalKind.SCHEMA_REGISTRIES), FREE] = Field(
        default=None,
        description="URL of a schema registry; messages carry its framing.",
        json_schema_extra=Authored.NOTHING.keywords,
    )
    login: Annotated[RegistryLogin | None, FREE] = Field(
        default=None, description=_LOGIN, json_schema_extra=Authored.NOTHING.keywords
    )


class MessageFormat(StrEnum):
    """How a result is written in a Kafka message."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class SubjectNaming(StrEnum):
    """Under which subject of a registry the schema of results is: by topic, by record, or by both."""

    TOPIC_NAME = "TopicName"
    RECORD_NAME = "RecordName"
    TOPIC_RECORD_NAME = "TopicRecordName"


class ResultSchemas(Model):
    """The schema of the results, in the registry of the connection."""

    registry: Annotated[Text, External(ExternalKind.SCHEMA_REGISTRIES)] = Field(
        description="URL of the schema registry.",
        examples=["http://registry:8081"],
        json_schema_extra=Authored.NOTHING.keywords,
    )
    login: RegistryLogin | None = Field(default=None, description=_LOGIN, json_schema_extra=Authored.NOTHING.keywords)
    subjects: SubjectNaming = Field(
        default=SubjectNaming.TOPIC_NAME,
        description="Subject of the schema: TOPIC-value (TopicName), the record's name (RecordName), or TOPIC-RECORD "
        "(TopicRecordName).",
    )
    record: MessageName | None = Field(
        default=None,
        description="Full name of the record; default: millrace. and the query's name, such as millrace.TripsByCell.",
        examples=["shop.TripsByCell"],
    )
    register_schema: Flag = Field(
        default=True,
        validation_alias="register",
        serialization_alias="register",
        description="Register the schema of the results where the subject does not have it; false: write by the latest "
        "schema of the subject, which has to fit.",
    )

    def subject(self, topic: str, record: str) -> str:
        """Return the subject of the schema of a record in the values of a topic."""
        if self.subjects is SubjectNaming.TOPIC_NAME:
            return f"{topic}-value"
        return record if self.subjects is SubjectNaming.RECORD_NAME else f"{topic}-{record}"
