"""Spark's client for S3: its settings for a checkpoint, and the S3 that a query names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from millrace_api.errors import MillraceError
from millrace_api.model.s3 import S3Spec
from millrace_jobs import s3_login
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.secrets import Secret
from millrace_jobs.spark_clients import SparkClient
from millrace_jobs.store_clients import endpoint, region

JARS = "MILLRACE_S3_JARS"
"""Environment variable with the folder of the jars, in place of the one in the user's cache."""

CLIENT = SparkClient("S3", "s3", JARS, "hadoop-aws-*.jar")

_PROVIDERS = ",".join(
    (
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    )
)
"""Where the login comes from, in the order of the client that Millrace itself uses."""

_CREDENTIALS = "spark.hadoop.fs.s3a.aws.credentials.provider"
_PROFILE = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
_KEYS = {
    "AWS_CONFIG_FILE": str(Path(__file__).with_name("s3.aws-config")),
    "AWS_PROFILE": "millrace-s3",
    "MILLRACE_S3_LOGIN": s3_login.__file__,
}
"""Environment of Java's SDK where a query names keys. Driver and executors have the same image, so the same paths."""

_CHECKPOINT = {
    # writes each file by one request, where the default renames, which is a copy in S3
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    )
}
_SETTINGS = {
    _CREDENTIALS: _PROVIDERS,
    # no looks at what is there before it is written or removed: nothing but Spark writes there
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    # the files are small: no round trip to ask whether the store takes one before it is sent
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",
    # snapshots of state are sent as other files are: the SDK's transfer manager would need its Netty, which is left out
    "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
    # a request is repeated for about a minute, where the defaults repeat it for many; then the query starts again
    "spark.hadoop.fs.s3a.connection.establish.timeout": "3s",
    "spark.hadoop.fs.s3a.connection.timeout": "8s",
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "3",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "5",
}


def use(s3: S3Spec | None) -> None:
    """Let this process, and those that it starts from now on, use the S3 that a query names.

    Raises:
        MillraceError: a key cannot be read.
    """
    if s3 is not None:
        for name, key in keys_of(s3).items():
            try:
                key.resolve()
            except MillraceError as error:
                field = "spec.s3.accessKeyId" if name == s3_login.ACCESS_KEY else "spec.s3.secretAccessKey"
                raise MillraceError(*(replace(each, field=field) for each in error.problems)) from None
        os.environ.update(environment_of(s3))


@contextmanager
def using(s3: S3Spec | None) -> Iterator[None]:
    """Use the S3 that a query names in the ``with`` block, and what was used before after it; raise as ``use`` does."""
    changed = {} if s3 is None else {name: os.environ.get(name) for name in environment_of(s3)}
    try:
        use(s3)
        yield
    finally:
        for name, before in changed.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before


def keys_of(s3: S3Spec) -> dict[str, Secret]:
    """Return the keys that a query refers to, by the environment variables that say where they are."""
    if s3.access_key_id is None or s3.secret_access_key is None:
        return {}
    return {
        s3_login.ACCESS_KEY: Secret.of("the access key of S3", s3.access_key_id),
        s3_login.SECRET_KEY: Secret.of("the secret access key of S3", s3.secret_access_key),
    }


def environment_of(s3: S3Spec) -> dict[str, str]:
    """Return the environment variables by which clients use the S3 that a query names; none of them holds a key."""
    found = {} if s3.endpoint is None else {"AWS_ENDPOINT_URL_S3": s3.endpoint.rstrip("/")}
    found |= {} if s3.region is None else {"AWS_REGION": s3.region}
    keys = keys_of(s3)
    places = {name: f"file:{key.file}" if key.file is not None else f"env:{key.env}" for name, key in keys.items()}
    return found | places | (_KEYS if keys else {})


def s3_settings(checkpoint: ObjectPath | None, event_log: ObjectPath | None = None) -> dict[str, str]:
    """Return Spark's settings for a checkpoint or an event log in S3; none if neither is there.

    Raises:
        MillraceError: the client's jars are missing.
    """
    if checkpoint is None and event_log is None:
        return {}
    settings = _SETTINGS | {"spark.hadoop.fs.s3a.endpoint.region": region()}
    if checkpoint is not None:
        settings |= _CHECKPOINT
    if (url := endpoint()) is not None:
        settings["spark.hadoop.fs.s3a.endpoint"] = url
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if s3_login.is_given(os.environ):
        settings[_CREDENTIALS] = _PROFILE
    what = f"the checkpoint {checkpoint}" if checkpoint is not None else f"the event log {event_log}"
    field = "spec.checkpoint.uri" if checkpoint is not None else "spec.eventLog.path"
    jars = CLIENT.jars(what, field)
    return settings | ({"spark.jars": ",".join(jars)} if jars else {})
