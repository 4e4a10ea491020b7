"""Connections to a Kafka cluster. Secrets stay references until a client is created."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import KafkaConnection, SecretValue
from millrace_jobs.confinement import require_login

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
class _Secret:
    """A reference to a secret: its name in messages (``what``), and the file or environment variable that holds it.

    ``in_cluster`` is NAME/KEY of the Kubernetes Secret if the query names only that.
    """

    what: str
    file: str | None
    env: str | None
    in_cluster: str | None

    def resolve(self) -> str:
        """Return the secret itself, without the line breaks at the end of a file."""
        if self.env is not None:
            if value := os.environ.get(self.env):
                return value
            state = "empty" if value == "" else "not set"
            message = f"{self.what} is read from the environment variable {self.env}, which is {state}"
            hint = f"set {self.env} where the query is started, and for its executors"
            raise MillraceError(Problem(message, hint))
        if self.file is not None:
            return self._of_file(self.file)
        message = f"{self.what} is in the Kubernetes Secret {self.in_cluster}, which millrace run cannot read"
        hint = "write file: or env: to say where it is on this machine; on a cluster, the operator mounts the Secret"
        raise MillraceError(Problem(message, hint))

    def _of_file(self, path: str) -> str:
        require_login(path)
        try:
            value = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            hint = "write in file: the path of a file that holds it and nothing else"
            raise MillraceError(Problem(f"{self.what} cannot be read: {why}", hint, path)) from None
        if not value:
            raise MillraceError(Problem(f"{self.what} cannot be read: the file is empty", "write it there", path))
        return value


@dataclass(frozen=True)
class Connection:
    """The address and security settings of a cluster; picklable, because it holds only references to secrets.

    ``secrets`` are pairs of a librdkafka setting and the reference to its value.
    """

    servers: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    secrets: tuple[tuple[str, _Secret], ...] = ()

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
            (setting, _reference(f"{what} for Kafka at {spec.bootstrap_servers}", value))
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


def _reference(what: str, value: SecretValue) -> _Secret:
    ref = value.secret_key_ref
    return _Secret(what, value.file, value.env, f"{ref.name}/{ref.key}" if ref else None)
