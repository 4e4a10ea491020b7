"""Schemas of messages that a schema registry or a descriptor set has, and the login to a registry."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.secrets import SecretValue, Tls
from millrace_api.model.values import Path, Text, text

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


NEEDS_REGISTRY = Rule(
    "a login is one to a registry",
    "add registry: the URL of the registry, or leave login out",
    ("login",),
    "!has(self.login) || has(self.registry)",
    lambda schemas: schemas.login is None or schemas.registry is not None,
)
NEEDS_HTTPS = Rule(
    "login.tls needs a registry with TLS",
    "write registry: https://..., or leave login.tls out",
    ("registry",),
    "!has(self.login) || !has(self.login.tls) || !has(self.registry) || self.registry.startsWith('https://')",
    lambda schemas: (
        schemas.login is None
        or schemas.login.tls is None
        or schemas.registry is None
        or schemas.registry.startswith("https://")
    ),
)


class Avro(Model):
    """How Avro messages are decoded."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("writer_schema", "registry", hint="give the schema itself, or the registry's URL"),
        NEEDS_REGISTRY,
        NEEDS_HTTPS,
    )

    writer_schema: Text | None = Field(default=None, description="Avro schema as JSON; messages carry no framing.")
    registry: Text | None = Field(default=None, description="URL of a schema registry; messages carry its framing.")
    login: RegistryLogin | None = Field(default=None, description="Login to the registry; default: none.")


class Protobuf(Model):
    """How Protobuf messages are decoded."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "descriptor_file",
            "descriptor_set",
            "registry",
            hint="give the descriptors that protoc --descriptor_set_out writes, or the registry's URL",
        ),
        Rule(
            "message is missing",
            "write the name of the message with its package, such as message: shop.orders.Order",
            (),
            "has(self.message) || has(self.registry)",
            lambda protobuf: protobuf.message is not None or protobuf.registry is not None,
        ),
        NEEDS_REGISTRY,
        NEEDS_HTTPS,
    )

    message: MessageName | None = Field(
        default=None,
        description="Full name of the message; with registry: the only one that is read, default: the one that each "
        "message names.",
        examples=["shop.orders.Order"],
    )
    descriptor_file: Path | None = Field(
        default=None, description="File with a FileDescriptorSet; messages carry no framing."
    )
    descriptor_set: DescriptorText | None = Field(
        default=None, description="A FileDescriptorSet in base64, up to 256 KiB; messages carry no framing."
    )
    registry: Text | None = Field(default=None, description="URL of a schema registry; messages carry its framing.")
    login: RegistryLogin | None = Field(default=None, description="Login to the registry; default: none.")
