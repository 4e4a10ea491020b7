"""S3: the store of a query's ``s3a://`` places, and the login to it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.secrets import SecretValue
from millrace_api.model.values import text

Endpoint = Annotated[
    str,
    *text(
        r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?",
        512,
        "the URL of an S3",
        "write scheme, host and port, such as https://minio.example.org:9000",
    ),
]
Region = Annotated[str, *text(r"[A-Za-z0-9._-]+", 64, "a region", "write one such as eu-central-1")]


class S3Spec(Model):
    """The S3 in which the ``s3a://`` places of a query are."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "accessKeyId and secretAccessKey belong together",
            "write both, or neither, to log in with the identity of the pods",
            ("access_key_id", "secret_access_key"),
            "has(self.accessKeyId) == has(self.secretAccessKey)",
            lambda s3: (s3.access_key_id is None) == (s3.secret_access_key is None),
        ),
    )

    endpoint: Annotated[Endpoint | None, External(ExternalKind.S3_ENDPOINTS)] = Field(
        default=None,
        description="URL of the store; default: AWS_ENDPOINT_URL of the environment, or the S3 of AWS.",
        examples=["https://minio.example.org:9000"],
    )
    region: Region | None = Field(
        default=None, description="Region; default: AWS_REGION of the environment.", examples=["eu-central-1"]
    )
    access_key_id: SecretValue | None = Field(
        default=None,
        description="Access key; default: the identity of the pods, or the login of the environment.",
        examples=["{secretKeyRef: {name: lake, key: AWS_ACCESS_KEY_ID}}"],
    )
    secret_access_key: SecretValue | None = Field(
        default=None,
        description="Secret of the access key.",
        examples=["{secretKeyRef: {name: lake, key: AWS_SECRET_ACCESS_KEY}}"],
    )
