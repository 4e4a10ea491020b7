"""Spark's client for Azure: its settings for a checkpoint, and the login that a query names."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import replace

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.azure import AzureSpec
from millrace_jobs import azure_login
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.secrets import Secret
from millrace_jobs.spark_clients import SparkClient

JARS = "MILLRACE_AZURE_JARS"
"""Environment variable with the folder of the jars, in place of the one in the user's cache."""

CLIENT = SparkClient("Azure", "azure", JARS, "hadoop-azure-*.jar")

_FIELD = "spec.azure.accountKey"

_READERS = {"file": "cat", "env": "printenv"}
"""Programs that print a key at ``file:PATH`` and ``env:NAME``."""

_READ = 'sh -c exec\t{program}\t"$(printf\t%s\t$0|base64\t-d)"'
"""The command by which Hadoop's client reads the key, so that no setting holds it.

The client parts it at blanks, and adds what it takes for an encrypted key: the place of the key,
in base64, which it requires.
"""

_SETTINGS = {
    # Java's own TLS: the client would look for OpenSSL's, which needs another jar
    "spark.hadoop.fs.azure.ssl.channel.mode": "Default_JSSE",
    # a request is repeated for about a minute, where the defaults repeat it for many; then the query starts again
    "spark.hadoop.fs.azure.io.retry.max.retries": "5",
    "spark.hadoop.fs.azure.http.connection.timeout": "3000",
    "spark.hadoop.fs.azure.http.read.timeout": "8000",
}


def use(azure: AzureSpec | None) -> None:
    """Let this process, and those that it starts from now on, use the login that a query names.

    Raises:
        MillraceError: the key cannot be read.
    """
    if azure is not None:
        try:
            key_of(azure).resolve()
        except MillraceError as error:
            raise MillraceError(*(replace(each, field=_FIELD) for each in error.problems)) from None
        os.environ.update(environment_of(azure))


def key_of(azure: AzureSpec) -> Secret:
    """Return the reference to the key that a query names."""
    return Secret.of("the key of the storage account", azure.account_key)


def environment_of(azure: AzureSpec | None) -> dict[str, str]:
    """Return the environment variables by which clients find the login that a query names; none holds the key."""
    if azure is None:
        return {}
    key = key_of(azure)
    return {azure_login.ACCOUNT_KEY: f"file:{key.file}" if key.file is not None else f"env:{key.env}"}


def azure_settings(checkpoint: ObjectPath) -> dict[str, str]:
    """Return Spark's settings for a checkpoint in Azure.

    Raises:
        MillraceError: the client's jars are missing, or there is no login.
    """
    host = checkpoint.bucket.partition("@")[2]
    reference = azure_login.reference()
    if reference is None:
        message = f"the checkpoint {checkpoint} needs a key of its storage account"
        hint = f"write spec.azure.accountKey, or set {azure_login.KEY}"
        raise MillraceError(Problem(message, hint, field="spec.azure"))
    kind, _, place = reference.partition(":")
    settings = _SETTINGS | {
        f"spark.hadoop.fs.azure.account.keyprovider.{host}": (
            "org.apache.hadoop.fs.azurebfs.services.ShellDecryptionKeyProvider"
        ),
        f"spark.hadoop.fs.azure.account.key.{host}": b64encode(os.fsencode(place)).decode(),
        "spark.hadoop.fs.azure.shellkeyprovider.script": _READ.format(program=_READERS[kind]),
    }
    if (url := azure_login.endpoint()) is not None:
        settings["spark.hadoop.fs.azure.abfs.endpoint"] = url.partition("://")[2]
    jars = CLIENT.jars(f"the checkpoint {checkpoint}", "spec.checkpoint.uri")
    return settings | ({"spark.jars": ",".join(jars)} if jars else {})
