"""Connections to a Kafka cluster. Secrets stay references until a client is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.secrets import SecretValue
from millrace_jobs.secrets import Secret

Settings = dict[str, str | int | float | bool]
"""Settings of librdkafka, by librdkafka's names."""

SOCKET_TIMEOUT_MS = 10_000
"""Milliseconds after which a request that a broker has not answered is sent again over a new connection."""

_CLIENT: Settings = {
    "client.id": "millrace",
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": SOCKET_TIMEOUT_MS,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1_000,  # a broker that comes back is found within a second
    "enable.metrics.push": False,
    "log_level": 0,  # librdkafka reports failures as errors; its log lines would go to the terminal
}


@dataclass(frozen=True)
class Connection:
    """The address and security settings of a cluster; picklable, because it holds only references to secrets.

    ``secrets`` are pairs of a librdkafka setting and the reference to its value.
    """

    servers: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    secrets: tuple[tuple[str, Secret], ...] = ()

    @classmethod
    def of(cls, spec: KafkaConnection) -> Self:
        """Return the connection that a source, a sink or a table specifies; read no secret."""
        found: dict[str, tuple[str, SecretValue | None]] = {}
        if spec.tls is not None:
            found["ssl.ca.pem"] = ("the certificate authority", spec.tls.ca)
            found["ssl.certificate.pem"] = ("the client certificate", spec.tls.certificate)
            found["ssl.key.pem"] = ("the key of the client certificate", spec.tls.key)
        if spec.sasl is not None:
            found["sasl.username"] = ("the user name", spec.sasl.username)
            found["sasl.password"] = ("the password", spec.sasl.password)
        secrets = tuple(
            (setting, Secret.of(f"{what} for Kafka at {spec.bootstrap_servers}", value))
            for setting, (what, value) in found.items()
            if value is not None
        )
        protocol = ("SASL_" if spec.sasl else "") + ("SSL" if spec.tls else "PLAINTEXT")
        mechanism = spec.sasl.mechanism.value if spec.sasl else ""
        return cls(spec.bootstrap_servers, protocol, mechanism, secrets)

    def settings(self) -> Settings:
        """Return the librdkafka settings for any client of this cluster; do not store them: they contain the secrets.

        Raises:
            MillraceError: a secret cannot be read.
        """
        settings = _CLIENT | {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        return settings | {setting: secret.resolve() for setting, secret in self.secrets}
