"""Connections to a Kafka cluster. Secrets stay references until a client is created."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millrace_api.model.kafka_options import ZONE, ZONE_VARIABLE
from millrace_jobs.kafka.msk_tokens import MskTokens
from millrace_jobs.secrets import Secret

if TYPE_CHECKING:  # tasks import this module
    from millrace_api.model.kafka import KafkaConnection
    from millrace_api.model.kafka_login import OidcLogin, Sasl
    from millrace_api.model.secrets import SecretValue

Settings = dict[str, Any]
"""Settings of librdkafka, by librdkafka's names; ``oauth_cb`` is confluent-kafka's."""

SOCKET_TIMEOUT_MS = 10_000
"""Milliseconds after which a request that a broker has not answered is sent again over a new connection."""

_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Files in which systems keep the certificate authorities that they trust."""

_TOKENS_FROM = "sasl.oauthbearer.token.endpoint.url"

CLIENT: Settings = {
    "client.id": "millrace",
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": SOCKET_TIMEOUT_MS,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1_000,  # a broker that comes back is found within a second
    "enable.metrics.push": False,
    "log_level": 0,  # librdkafka reports failures as errors; its log lines would go to the terminal
}
"""Settings of every client."""


@dataclass(frozen=True)
class Connection:
    """The address and security settings of a cluster; picklable, because it holds only references to secrets.

    ``secrets`` are pairs of a librdkafka setting and the reference to its value. ``login`` are further settings of the
    login, none of them a secret, and ``options`` those of the user. ``tokens`` is where the tokens of a login in AWS
    come from.
    """

    servers: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    secrets: tuple[tuple[str, Secret], ...] = ()
    login: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    tokens: MskTokens | None = None

    @classmethod
    def of(cls, spec: KafkaConnection) -> Self:
        """Return the connection that a source, a sink or a table specifies; read no secret."""
        found: dict[str, tuple[str, SecretValue | None]] = {}
        if spec.tls is not None:
            found["ssl.ca.pem"] = ("the certificate authority", spec.tls.ca)
            found["ssl.certificate.pem"] = ("the client certificate", spec.tls.certificate)
            found["ssl.key.pem"] = ("the key of the client certificate", spec.tls.key)
        if spec.sasl is not None:
            found |= _login_secrets(spec.sasl)
        secrets = tuple(
            (setting, Secret.of(f"{what} for Kafka at {spec.bootstrap_servers}", value))
            for setting, (what, value) in found.items()
            if value is not None
        )
        protocol = ("SASL_" if spec.sasl else "") + ("SSL" if spec.tls else "PLAINTEXT")
        mechanism = spec.sasl.mechanism.value if spec.sasl else ""
        return cls(
            spec.bootstrap_servers,
            protocol,
            mechanism,
            secrets,
            login=_oidc_settings(spec.sasl.oidc) if spec.sasl and spec.sasl.oidc else (),
            options=tuple(sorted(spec.options.items())),
            tokens=_msk_tokens(spec),
        )

    @property
    def token_endpoint(self) -> str | None:
        """The URL that tokens of the login come from, if they come from one."""
        return dict(self.login).get(_TOKENS_FROM)

    def settings(self) -> Settings:
        """Return the librdkafka settings for any client of this cluster; do not store them: they contain the secrets.

        Raises:
            MillraceError: a secret cannot be read, or there is no identity for a login.
        """
        settings = CLIENT | self.client_options()
        settings |= {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        settings |= dict(self.login)
        if (self.token_endpoint or "").startswith("https:") and "https.ca.pem" not in dict(self.secrets):
            settings |= _system_authorities()
        if self.tokens is not None:
            self.tokens()  # a client would wait for a token, and could only say that there is none
            settings["oauth_cb"] = self.tokens
        return settings | {setting: secret.resolve() for setting, secret in self.secrets}

    def client_options(self) -> dict[str, str]:
        """Return the options of the user; a rack without its zone is none."""
        options = dict(self.options)
        if ZONE in options.get("client.rack", ""):
            zone = os.environ.get(ZONE_VARIABLE)
            rack = options.pop("client.rack")
            options |= {"client.rack": rack.replace(ZONE, zone)} if zone else {}
        return options


def _login_secrets(sasl: Sasl) -> dict[str, tuple[str, SecretValue | None]]:
    """Return the secrets of a login, each with what it is in messages, by librdkafka's settings."""
    found = {
        "sasl.username": ("the user name", sasl.username),
        "sasl.password": ("the password", sasl.password),
    }
    if sasl.oidc is not None:
        found["sasl.oauthbearer.client.secret"] = ("the client secret", sasl.oidc.client_secret)
        found["https.ca.pem"] = ("the certificate authority of the token endpoint", sasl.oidc.ca)
    return found


def _oidc_settings(oidc: OidcLogin) -> tuple[tuple[str, str], ...]:
    settings = {
        "sasl.oauthbearer.method": "oidc",
        _TOKENS_FROM: oidc.token_endpoint,
        "sasl.oauthbearer.client.id": oidc.client_id,
        "sasl.oauthbearer.scope": oidc.scope,
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in sorted(oidc.extensions.items())),
    }
    return tuple((name, value) for name, value in settings.items() if value)


def _msk_tokens(spec: KafkaConnection) -> MskTokens | None:
    login = spec.sasl.aws_msk_iam if spec.sasl is not None else None
    return None if login is None else MskTokens(spec.bootstrap_servers, login.region, login.role_arn or "")


def _system_authorities() -> Settings:
    """Return the setting for the authorities that the system trusts, in requests for tokens.

    By default, the client looks for them only where the system has them that its package was built on.
    """
    known = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_AUTHORITIES)
    found = next((path for path in known if path and Path(path).is_file()), None)
    return {} if found is None else {"https.ca.location": found}
