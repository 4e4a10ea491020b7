"""Reaching a Kafka cluster: addresses, TLS and SASL, with every secret by reference only."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.values import Path, Text


class SecretKeyRef(Model):
    """One entry of a Kubernetes Secret."""

    name: Text = Field(description="Name of a Secret in the query's own namespace.", examples=["kafka-login"])
    key: Text = Field(description="Entry of the Secret.", examples=["password"])


class SecretValue(Model):
    """Where a secret is found; the secret itself is never written into a StreamQuery."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("secret_key_ref", "file", "env", hint="say where the secret is, such as env: KAFKA_PASSWORD"),
    )

    secret_key_ref: SecretKeyRef | None = Field(default=None, description="An entry of a Kubernetes Secret.")
    file: Path | None = Field(default=None, description="A file that holds the secret and nothing else.")
    env: Text | None = Field(
        default=None, description="An environment variable of the driver and the executors that holds the secret."
    )


class Tls(Model):
    """TLS to the brokers; without any field, the system's certificate authorities are trusted."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "certificate and key belong together",
            "write both, or neither",
            ("certificate", "key"),
            "has(self.certificate) == has(self.key)",
            lambda tls: (tls.certificate is None) == (tls.key is None),
        ),
    )

    ca: SecretValue | None = Field(default=None, description="Certificate authority of the brokers, PEM.")
    certificate: SecretValue | None = Field(default=None, description="Client certificate, PEM.")
    key: SecretValue | None = Field(default=None, description="Key of the client certificate, PEM.")


class SaslMechanism(StrEnum):
    """How the client proves who it is."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Sasl(Model):
    """Login to the brokers."""

    mechanism: SaslMechanism = Field(description="SASL mechanism.", examples=["SCRAM-SHA-512"])
    username: SecretValue = Field(description="User name.", examples=["{env: KAFKA_USER}"])
    password: SecretValue = Field(description="Password.", examples=["{env: KAFKA_PASSWORD}"])


class KafkaConnection(Model):
    """What a Kafka source, a Kafka sink and a table have in common."""

    bootstrap_servers: Text = Field(
        description="Brokers to start from, host:port, separated by commas.", examples=["kafka:9092"]
    )
    tls: Tls | None = Field(default=None, description="Use TLS.")
    sasl: Sasl | None = Field(default=None, description="Log in with SASL.")

    def is_cluster_of(self, other: KafkaConnection) -> bool:
        """Whether both reach the same cluster, as far as their addresses show: they have one in common."""
        return not self._addresses().isdisjoint(other._addresses())

    def _addresses(self) -> set[str]:
        return {address.strip().lower() for address in self.bootstrap_servers.split(",")}
