"""The object stores of a query: their logins, and what Spark needs to reach them."""

from __future__ import annotations

from collections.abc import Mapping

from millrace_api.model.streamquery import Spec
from millrace_jobs import azure_client, s3_client
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.spark_clients import SparkClient
from millrace_jobs.store_clients import AZURE

CLIENTS: Mapping[str, SparkClient] = {each.name: each for each in (s3_client.CLIENT, azure_client.CLIENT)}
"""Spark's clients for object stores, by their names."""

_JARS = "spark.jars"


def use(spec: Spec) -> None:
    """Let this process, and those that it starts from now on, use the stores and logins that a query names.

    Raises:
        MillraceError: a key cannot be read.
    """
    s3_client.use(spec.s3)
    azure_client.use(spec.azure)


def environment_of(spec: Spec) -> dict[str, str]:
    """Return the environment variables by which clients use what a query names; none of them holds a key."""
    s3 = {} if spec.s3 is None else s3_client.environment_of(spec.s3)
    return s3 | azure_client.environment_of(spec.azure)


def store_settings(checkpoint: ObjectPath | None, event_log: ObjectPath | None) -> dict[str, str]:
    """Return Spark's settings for a checkpoint and an event log in object stores.

    Raises:
        MillraceError: the jars of a client are missing, or a login is.
    """
    settings: dict[str, str] = {}
    if checkpoint is not None and checkpoint.scheme == AZURE:
        settings, checkpoint = azure_client.azure_settings(checkpoint), None
    s3 = s3_client.s3_settings(checkpoint, event_log)
    jars = ",".join(each[_JARS] for each in (settings, s3) if _JARS in each)
    return settings | s3 | ({_JARS: jars} if jars else {})
