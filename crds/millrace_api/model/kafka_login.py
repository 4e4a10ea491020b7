"""Logins to Kafka brokers: a user and a password, a token of an identity provider, or an identity of AWS."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from millrace_api.model.base import Model, Rule, problem
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.secrets import SecretValue
from millrace_api.model.values import Text, text

TokenUrl = Annotated[
    str,
    *text(
        r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
        1024,
        "the URL of a token endpoint",
        "write scheme, host and path, such as https://login.example.org/oauth2/token",
    ),
]
Scope = Annotated[
    str,
    *text(
        r"[A-Za-z0-9._~:/@-]+( [A-Za-z0-9._~:/@-]+)*",
        1024,
        "a scope of tokens",
        "write what the identity provider names it, such as api://kafka/.default, and several with one blank between",
    ),
]
ExtensionName = Annotated[
    str, *text("[A-Za-z]+", 64, "the name of a SASL extension", "write letters, such as logicalCluster")
]
ExtensionValue = Annotated[
    str,
    *text("[!-+.-~-]+", 256, "the value of a SASL extension", "write printable characters, without blanks and commas"),
]
AwsRegion = Annotated[
    str, *text("[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}", 32, "a region of AWS", "write its name, such as eu-west-1")
]
RoleArn = Annotated[
    str,
    *text(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+",
        1024,
        "the ARN of an IAM role",
        "write it in full, such as arn:aws:iam::123456789012:role/kafka-readers",
    ),
]


class SaslMechanism(StrEnum):
    """How the client authenticates to the brokers."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


def _not_kerberos(value: object) -> object:
    if isinstance(value, str) and value.upper() in ("GSSAPI", "KERBEROS"):
        raise problem(
            f'"{value}" is not supported: the Kafka client that Millrace runs with is built without Kerberos',
            "write OAUTHBEARER or SCRAM-SHA-512 for a listener that has it, or tls with a client certificate",
        )
    return value


class OidcLogin(Model):
    """Tokens that the client gets from an identity provider by its own id and secret (OAuth 2, client credentials)."""

    token_endpoint: Annotated[TokenUrl, External(ExternalKind.OIDC_ENDPOINTS)] = Field(
        description="URL that tokens come from.", examples=["https://login.example.org/oauth2/token"]
    )
    client_id: Text = Field(description="Client that the identity provider knows.", examples=["millrace"])
    client_secret: SecretValue = Field(description="Secret of the client.", examples=["{env: KAFKA_CLIENT_SECRET}"])
    scope: Scope | None = Field(default=None, description="Scope that tokens are asked for; default: none.")
    extensions: dict[ExtensionName, ExtensionValue] = Field(
        default={},
        max_length=16,
        description="SASL extensions that the brokers get beside the token.",
        examples=["{logicalCluster: lkc-12345, identityPoolId: pool-7}"],
    )
    ca: SecretValue | None = Field(
        default=None,
        description="Certificate authority of the token endpoint, PEM; default: those that the system trusts.",
    )


class MskIamLogin(Model):
    """Tokens for Amazon MSK, signed with the pod's own identity: a role of its service account, or AWS's variables."""

    region: AwsRegion = Field(description="Region of the cluster.", examples=["eu-west-1"])
    role_arn: Annotated[RoleArn | None, External(ExternalKind.ROLE_ARNS)] = Field(
        default=None,
        description="Role to assume with that identity, such as one of the cluster's account; default: none.",
    )


def _is_token(sasl: Sasl) -> bool:
    return sasl.mechanism is SaslMechanism.OAUTHBEARER


class Sasl(Model):
    """Login to the brokers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "PLAIN and SCRAM need username and password",
            "write both",
            ("username", "password", "mechanism"),
            None,  # the released CRD had both as required, and a new rule must not seem to break what is stored
            lambda sasl: _is_token(sasl) or None not in (sasl.username, sasl.password),
        ),
        Rule(
            "OAUTHBEARER takes exactly one of oidc and awsMskIam, and no username or password",
            "write oidc for tokens of an identity provider, or awsMskIam for Amazon MSK",
            ("username", "password", "oidc", "aws_msk_iam", "mechanism"),
            "self.mechanism != 'OAUTHBEARER' || [has(self.oidc), has(self.awsMskIam)].filter(given, given).size() == 1"
            " && !has(self.username) && !has(self.password)",
            lambda sasl: (
                not _is_token(sasl)
                or (sasl.username is sasl.password is None and (sasl.oidc is None) != (sasl.aws_msk_iam is None))
            ),
        ),
        Rule(
            "oidc is for mechanism OAUTHBEARER",
            "write mechanism: OAUTHBEARER, or leave oidc out",
            ("oidc", "mechanism"),
            "!has(self.oidc) || self.mechanism == 'OAUTHBEARER'",
            lambda sasl: sasl.oidc is None or _is_token(sasl),
        ),
        Rule(
            "awsMskIam is for mechanism OAUTHBEARER",
            "write mechanism: OAUTHBEARER, or leave awsMskIam out",
            ("aws_msk_iam", "mechanism"),
            "!has(self.awsMskIam) || self.mechanism == 'OAUTHBEARER'",
            lambda sasl: sasl.aws_msk_iam is None or _is_token(sasl),
        ),
    )

    mechanism: Annotated[SaslMechanism, BeforeValidator(_not_kerberos)] = Field(
        description="SASL mechanism.", examples=["SCRAM-SHA-512"]
    )
    username: SecretValue | None = Field(
        default=None, description="User name, for PLAIN and SCRAM.", examples=["{env: KAFKA_USER}"]
    )
    password: SecretValue | None = Field(default=None, description="Password.", examples=["{env: KAFKA_PASSWORD}"])
    oidc: OidcLogin | None = Field(default=None, description="For OAUTHBEARER: tokens of an identity provider.")
    aws_msk_iam: Annotated[MskIamLogin | None, External(ExternalKind.IDENTITIES)] = Field(
        default=None, description="For OAUTHBEARER: the pod's identity in AWS, for Amazon MSK."
    )
