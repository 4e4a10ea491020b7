"""Look-ups in a query's result table from other pods: who may ask, and who can reach the port."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.changes import REPLACED, Effect, OnChange
from millrace_api.model.secrets import SecretValue
from millrace_api.model.values import text

EVERYWHERE = "*"
"""What stands for every namespace, and for everything outside the cluster."""

ClientNamespace = Annotated[
    str,
    *text(
        r"\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        63,
        "a namespace",
        'write the name of a namespace, or "*" for everything that reaches the pod',
    ),
]


class ServerTls(Model):
    """TLS of a port that is served."""

    certificate: SecretValue = Field(
        description="Certificate of the server, with those between it and its authority, PEM; read again on a change.",
        examples=["{secretKeyRef: {name: trips-tls, key: tls.crt}}"],
    )
    key: SecretValue = Field(
        description="Key of the certificate, PEM.", examples=["{secretKeyRef: {name: trips-tls, key: tls.key}}"]
    )


class LookupsSpec(Model):
    """Look-ups from other pods, at port 8082 of the driver's Service."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f'look-ups from everywhere ("{EVERYWHERE}") need tls, or tokens pass the network unencrypted',
            "add tls, or write the names of namespaces",
            ("namespaces",),
            f"has(self.tls) || !has(self.namespaces) || !('{EVERYWHERE}' in self.namespaces)",
            lambda lookups: lookups.tls is not None or EVERYWHERE not in lookups.namespaces,
        ),
    )

    tokens: Annotated[SecretValue, REPLACED] = Field(
        description="Bearer tokens of those who may read the table, one a line, each of 16 characters or more; read "
        "again when they change.",
        examples=["{secretKeyRef: {name: trips-readers, key: tokens}}"],
    )
    tls: Annotated[ServerTls | None, REPLACED] = Field(default=None, description="TLS of the port; default: none.")
    namespaces: Annotated[
        tuple[ClientNamespace, ...],
        OnChange(Effect.IN_PLACE, "in place: the NetworkPolicy opens the port to these"),
    ] = Field(
        default=(),
        max_length=64,
        description='Namespaces whose pods reach the port; default: that of the query. "*": everything, with tls.',
        examples=[["dashboards"]],
    )
