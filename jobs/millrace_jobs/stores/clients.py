"""The clients of buckets in S3, and of containers in storage accounts of Azure.

Logins and addresses come from the environment, as other programs for a store take them: ``AWS_REGION``,
``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ... or the identity of the pod. What a query names is put there
(``spark.use``). Nothing of them is stored or shown.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from millrace_jobs.stores import login

if TYPE_CHECKING:
    from obstore.store import AzureStore, S3Store

S3, AZURE = "s3a", "abfss"
"""Schemes of the stores."""

_CONNECT_SECONDS, _REQUEST_SECONDS, _RETRY_SECONDS = 3, 8, 12
"""Time-outs of a connection, of a request, and of all its repetitions: a third of a lease at most."""


def client_of(scheme: str, bucket: str) -> S3Store | AzureStore:
    """Return the client of a bucket, as the environment says now how to reach it.

    Args:
        scheme: scheme of the store.
        bucket: name of the bucket; in Azure ``CONTAINER@ACCOUNT.blob.core.windows.net``.
    """
    process = os.getpid()  # the threads of a client do not survive a fork
    if scheme == AZURE:
        container, _, host = bucket.partition("@")
        return _azure_client(container, host.partition(".")[0], azure_endpoint(), login.azure_reference(), process)
    return s3_client(bucket, s3_endpoint(), s3_region(), process, with_keys=login.has_s3_keys())


def s3_endpoint() -> str | None:
    """Return the URL of the S3 that the environment names; None for that of AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def s3_region() -> str:
    """Return the region that the environment names; other stores than AWS take any."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def azure_endpoint() -> str | None:
    """Return the URL of an emulator that the environment names, as scheme, host and port; None for Azure itself."""
    return os.environ.get("AZURE_STORAGE_ENDPOINT", "").rstrip("/") or None


@cache
def s3_client(bucket: str, url: str | None, region: str, _process: int, *, with_keys: bool) -> S3Store:
    """Return the client of a bucket in S3."""
    from obstore.store import S3Store

    own: dict[str, Any] = {} if url is None else {"endpoint": url}
    own |= {"credential_provider": login.s3_login} if with_keys else {}
    return S3Store(bucket, region=region, **own, **_options(url))


@cache
def _azure_client(container: str, account: str, url: str | None, key: str | None, _process: int) -> AzureStore:
    """Return the client of a container; ``key`` refers to the key of its account, without which the pod logs in."""
    from obstore.store import AzureStore

    own: dict[str, Any] = {} if url is None else {"endpoint": f"{url}/{account}"}
    own |= {} if key is None else {"credential_provider": login.AzureLogin(key)}
    return AzureStore(container, account_name=account, **own, **_options(url))


def _options(url: str | None) -> dict[str, Any]:
    backoff: Any = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
    return {
        "client_options": {
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
            "allow_http": (url or "").startswith("http:"),
        },
        "retry_config": {"max_retries": 12, "retry_timeout": timedelta(seconds=_RETRY_SECONDS), "backoff": backoff},
    }
