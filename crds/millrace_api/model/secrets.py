"""Secrets of connections: passwords, certificates and keys.

Every secret is given by reference only: a StreamQuery never holds the secret itself.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.values import Path, Text


class SecretKeyRef(Model):
    """One entry of a Kubernetes Secret."""

    name: Annotated[Text, External(ExternalKind.SECRETS)] = Field(
        description="Name of a Secret in the query's own namespace.", examples=["kafka-login"]
    )
    key: Text = Field(description="Entry of the Secret.", examples=["password"])


class SecretValue(Model):
    """A reference to a secret; the secret itself is never written into a StreamQuery."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("secret_key_ref", "file", "env", hint="say where the secret is, such as env: KAFKA_PASSWORD"),
    )

    secret_key_ref: SecretKeyRef | None = Field(default=None, description="An entry of a Kubernetes Secret.")
    file: Annotated[Path | None, External(ExternalKind.LOGINS)] = Field(
        default=None, description="A file that holds the secret and nothing else."
    )
    env: Text | None = Field(
        default=None, description="An environment variable of the driver and the executors that holds the secret."
    )


class Tls(Model):
    """TLS to the servers; without any field, the system's certificate authorities are trusted."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "certificate and key belong together",
            "write both, or neither",
            ("certificate", "key"),
            "has(self.certificate) == has(self.key)",
            lambda tls: (tls.certificate is None) == (tls.key is None),
        ),
    )

    ca: SecretValue | None = Field(default=None, description="Certificate authority of the servers, PEM.")
    certificate: SecretValue | None = Field(default=None, description="Client certificate, PEM.")
    key: SecretValue | None = Field(default=None, description="Key of the client certificate, PEM.")
