"""A real S3 server for the tests in this folder, which share it and use prefixes of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lab.parts.maven_jars import S3_JARS
from lab.s3_server import BUCKET, S3Server, running_s3
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import S3_CLIENT
from spark.conftest import spark, workspace  # noqa: F401


@pytest.fixture(scope="session")
def shared_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server that tests share. Leave it running."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The shared server, as the environment of this process and of those that it starts names it."""
    for name, value in {**shared_s3.environment, S3_CLIENT.variable: str(S3_JARS.find())}.items():
        monkeypatch.setenv(name, value)
    return shared_s3


@pytest.fixture
def store(s3: S3Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> S3Server:  # noqa: F811
    """The shared server, as Spark's tasks know it too: their JVM runs since earlier tests."""
    for name, value in s3.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return s3


@pytest.fixture
def place(s3: S3Server) -> ObjectPath:
    """A place of its own in the bucket."""
    return ObjectPath.of(f"s3a://{BUCKET}/{uuid.uuid4().hex[:12]}/checkpoint")
